#include "model/tokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "base/seed.h"
#include "model_runner/tokenizer_fixture.h"

namespace quire::model::test {
namespace {

using Ids = std::vector<int>;
using Pieces = std::vector<std::string>;

Pieces pieces_of(const std::string& rules, std::string_view text) {
  const std::vector<std::string_view> views = Splitter::create(rules).value().split(text).value();
  return {views.begin(), views.end()};
}

std::string random_bytes(std::mt19937_64& random, std::size_t most) {
  // Few letters and leads, so that words, runs of spaces and whole characters come up.
  static constexpr std::string_view kBytes =
      "hello  \n\t'1\x04\xc3\xa9\xe2\x80\x83\xf0\x9f\x98\x80\xed\xa0\xff";
  std::string text(random() % (most + 1), ' ');
  for (char& byte : text) {
    byte = random() % 8 == 0 ? static_cast<char>(random()) : kBytes[random() % kBytes.size()];
  }
  return text;
}

// --- UTF-8

TEST(Utf8Front, TellsWholeCutAndInvalid) {
  EXPECT_EQ(utf8_front("a").character, U'a');
  EXPECT_EQ(utf8_front("é!").character, U'é');
  EXPECT_EQ(utf8_front("é!").bytes, 2u);
  EXPECT_EQ(utf8_front("漢").character, U'漢');
  EXPECT_EQ(utf8_front("\xf4\x8f\xbf\xbf").character, char32_t{0x10ffff});
  for (const char* cut : {"\xc3", "\xe2\x80", "\xf0\x9f\x98"}) {
    EXPECT_EQ(utf8_front(cut).kind, Utf8::cut);
    EXPECT_EQ(utf8_front(cut).bytes, std::string_view(cut).size());
  }
  // A byte inside, overlong forms, a surrogate, above the last character, never used, broken off.
  for (const char* invalid :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xed\xa0\x80",
        "\xf4\x90\x80\x80", "\xf5", "\xff", "\xe2(", "\xe0\x80"}) {
    EXPECT_EQ(utf8_front(invalid).kind, Utf8::invalid) << invalid;
    EXPECT_EQ(utf8_front(invalid).bytes, 1u);
  }
}

TEST(Utf8Stream, HoldsBackACharacterUntilItIsWhole) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xf0"), "a");
  EXPECT_EQ(stream.push("\x9f"), "");
  EXPECT_EQ(stream.push("\x98"), "");
  EXPECT_EQ(stream.push("\x80!"), "😀!");
  EXPECT_EQ(stream.push("\xe2\x80"), "");
  EXPECT_EQ(stream.finish(), "\xe2\x80");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, GivesOnWhatCannotBecomeACharacter) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xff"), "\xff");
  EXPECT_EQ(stream.push("\xe2"), "");
  EXPECT_EQ(stream.push("x"), "\xe2x");
}

TEST(Utf8Stream, LosesNothingHoweverTextIsCut) {
  std::mt19937_64 random(quire::test::announce_seed());
  for (int round = 0; round < 300; ++round) {
    const std::string text = random_bytes(random, 40);
    Utf8Stream stream;
    std::string given;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = std::min<std::size_t>(random() % 4, text.size() - at);
      given += stream.push(text.substr(at, size));
      ASSERT_GE(given.size() + 3, at + size);  // at most three bytes are held back
      at += size;
    }
    ASSERT_EQ(given + stream.finish(), text);
  }
}

// --- splitting

TEST(Splitter, Gpt2KeepsOneSpaceWithAWord) {
  EXPECT_EQ(pieces_of("gpt-2", "I'll  go 12 3!? \n"),
            (Pieces{"I", "'ll", " ", " go", " 12", " 3", "!?", " \n"}));
  EXPECT_EQ(pieces_of("", "a b"), (Pieces{"a", " b"}));
  EXPECT_EQ(pieces_of("default", "IT'S"), (Pieces{"IT", "'", "S"}));
}

TEST(Splitter, SmollmTakesNumbersOneByOneAndWithoutTheirSpace) {
  EXPECT_EQ(pieces_of("smollm", "in 2024, x½"),
            (Pieces{"in", " ", "2", "0", "2", "4", ",", " x", "½"}));
}

TEST(Splitter, Llama3TakesNumbersInThrees) {
  EXPECT_EQ(pieces_of("llama-bpe", "IT'S 12345 (a)\n\nb"),
            (Pieces{"IT", "'S", " ", "123", "45", " (", "a", ")\n\n", "b"}));
  EXPECT_EQ(pieces_of("llama3", "1234"), (Pieces{"123", "4"}));
}

TEST(Splitter, Qwen2TakesDigits) {
  EXPECT_EQ(pieces_of("qwen2", "IT'S 12 _a"), (Pieces{"IT", "'S", " ", "1", "2", " _", "a"}));
}

TEST(Splitter, InvalidBytesArePiecesOfTheirOwn) {
  // The spaces before them end a text, so they are not shortened for a word to come.
  EXPECT_EQ(pieces_of("gpt-2", "a  \xff\xfe b\xc3"), (Pieces{"a", "  ", "\xff\xfe", " b", "\xc3"}));
  EXPECT_EQ(pieces_of("smollm",
                      "1\xed\xa0\x80"
                      "2"),
            (Pieces{"1", "\xed\xa0\x80", "2"}));
}

TEST(Splitter, RefusesUnknownRulesByName) {
  const auto made = Splitter::create("tekken");
  ASSERT_EQ(made.code(), ErrorCode::not_supported);
  EXPECT_NE(made.error().text.find("\"tekken\""), std::string::npos) << made.error().text;
  EXPECT_NE(made.error().text.find("smollm"), std::string::npos) << made.error().text;
}

TEST(Splitter, PiecesAreTheTextWhateverItsBytes) {
  std::mt19937_64 random(quire::test::announce_seed());
  for (const char* rules : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    const Splitter splitter = Splitter::create(rules).value();
    for (int round = 0; round < 300; ++round) {
      const std::string text = random_bytes(random, 60);
      std::string joined;
      for (const std::string_view piece : splitter.split(text).value()) {
        ASSERT_FALSE(piece.empty());
        joined += piece;
      }
      ASSERT_EQ(joined, text) << rules;
    }
  }
}

TEST(Splitter, CutsAsHuggingFaceDoes) {
  int cases = 0;
  for (const Json& row : truth("tokenizer_pieces.jsonl")) {
    const std::string text = row[1];
    std::vector<std::size_t> sizes;
    for (const std::string& piece : pieces_of(row[0], text)) sizes.push_back(piece.size());
    EXPECT_EQ(Json(sizes), row[2]) << row[0] << " " << row[1];
    ++cases;
  }
  EXPECT_EQ(cases, 1200);
}

TEST(Splitter, LongRunsAreSplitToo) {
  // Each of these makes some expression look through the whole run; none may run into a limit.
  for (const char* rules : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    for (const char* unit : {" ", "\n", "a", "1", "!", "\xff", " \n"}) {
      std::string text;
      while (text.size() < 2'000'000) text += unit;
      const auto pieces = Splitter::create(rules).value().split(text);
      ASSERT_TRUE(pieces.ok()) << rules << " "
                               << Json(unit).dump(-1, ' ', true, Json::error_handler_t::replace);
    }
  }
}

// --- merging

// The definition: look for the best pair again and again.
Ids merged_slowly(Ids ids, const std::vector<std::array<int, 3>>& joins) {
  for (bool found = true; found;) {
    found = false;
    for (const auto& [left, right, joined] : joins) {
      for (std::size_t i = 0; i + 1 < ids.size() && !found; ++i) {
        if (ids[i] != left || ids[i + 1] != right) continue;
        ids[i] = joined;
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        found = true;
      }
      if (found) break;
    }
  }
  return ids;
}

TEST(Merger, JoinsTheBestPairFirst) {
  std::mt19937_64 random(quire::test::announce_seed());
  for (int round = 0; round < 200; ++round) {
    Merger merger;
    std::vector<std::array<int, 3>> joins;
    for (int joined = 4; joined < 20; ++joined) {
      const int left = static_cast<int>(random() % static_cast<unsigned>(joined));
      const int right = static_cast<int>(random() % static_cast<unsigned>(joined));
      if (merger.add(left, right, joined)) joins.push_back({left, right, joined});
    }
    Ids ids(random() % 60);
    for (int& id : ids) id = static_cast<int>(random() % 4);
    const Ids expected = merged_slowly(ids, joins);
    Ids merged = {77};
    merger.merge(ids, merged);
    ASSERT_EQ(merged.front(), 77);  // appended
    merged.erase(merged.begin());
    ASSERT_EQ(merged, expected);
  }
}

TEST(Merger, APairHasOneRank) {
  Merger merger;
  EXPECT_TRUE(merger.add(1, 2, 3));
  EXPECT_FALSE(merger.add(1, 2, 4));
  Ids ids = {1, 2}, merged;
  merger.merge(ids, merged);
  EXPECT_EQ(merged, Ids{3});
}

// --- encoding with a small vocabulary

TEST(Tokenizer, MergesInsidePiecesOnly) {
  const SmallVocabulary small;
  const Tokenizer tokenizer = Tokenizer::create(small).value();
  EXPECT_EQ(tokenizer.size(), static_cast<int>(small.tokens.size()));
  EXPECT_EQ(tokenizer.encode("hello hello").value(),
            (Ids{small.id_of("hello"), small.id_of("Ġhello")}));
  // "hel" and "lo" are letters of one word; "he" ranks before "lo".
  EXPECT_EQ(tokenizer.encode("helo").value(), (Ids{small.id_of("he"), small.id_of("lo")}));
  EXPECT_EQ(tokenizer.encode("he!llo").value(),
            (Ids{small.id_of("he"), '!', small.id_of("ll"), 'o'}));
  EXPECT_EQ(tokenizer.encode("").value(), Ids{});
}

TEST(Tokenizer, SpecialTokensAreFoundOnlyWhenAsked) {
  const SmallVocabulary small;
  const Tokenizer tokenizer = Tokenizer::create(small).value();
  const std::string text = "hello<|end|><user>hello<|en";
  const Ids parsed = tokenizer.encode(text, {.parse_special = true}).value();
  EXPECT_EQ(parsed, (Ids{small.id_of("hello"), small.eos, small.user, small.id_of("hello"), '<',
                         '|', 'e', 'n'}));
  const Ids plain = tokenizer.encode(text).value();
  EXPECT_EQ(std::count(plain.begin(), plain.end(), small.eos), 0);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), small.user), 0);
  EXPECT_EQ(tokenizer.decode(plain).value(), text);
  EXPECT_EQ(tokenizer.decode(parsed).value(), text);
  EXPECT_EQ(tokenizer.decode(parsed, false).value(), "hello<user>hello<|en");
  EXPECT_EQ(tokenizer.find_special("<user>"), small.user);
  EXPECT_EQ(tokenizer.find_special("hello"), -1);
}

TEST(Tokenizer, OfSpecialTokensTheLongestIsTaken) {
  SmallVocabulary small;
  const int longer = small.add("<|end|>!", 3);
  const Tokenizer tokenizer = Tokenizer::create(small).value();
  EXPECT_EQ(tokenizer.encode("<|end|>!<|end|>?", {.parse_special = true}).value(),
            (Ids{longer, small.eos, '?'}));
}

TEST(Tokenizer, EndsAreTheEndOfTextAndOfATurn) {
  const SmallVocabulary small;
  const Tokenizer tokenizer = Tokenizer::create(small).value();
  EXPECT_TRUE(tokenizer.is_end(small.eos));
  EXPECT_TRUE(tokenizer.is_end(small.eot));
  EXPECT_FALSE(tokenizer.is_end(small.user));
  EXPECT_FALSE(tokenizer.is_end(-1));
}

TEST(Tokenizer, BeginsWithTheFirstTokenWhereTheModelWantsIt) {
  SmallVocabulary small;
  small.bos = small.add("<s>", 3);
  EXPECT_EQ(Tokenizer::create(small).value().encode("a", {.bos = true}).value(), Ids{'a'});
  small.add_bos = true;
  const Tokenizer tokenizer = Tokenizer::create(small).value();
  EXPECT_EQ(tokenizer.encode("a", {.bos = true}).value(), (Ids{small.bos, 'a'}));
  EXPECT_EQ(tokenizer.encode("a").value(), Ids{'a'});
}

TEST(Tokenizer, Llama3TakesAPieceThatIsATokenWithoutMerging) {
  SmallVocabulary small;
  const int whole = small.add("xyz", 1);
  EXPECT_EQ(Tokenizer::create(small).value().encode("xyz").value(), (Ids{'x', 'y', 'z'}));
  small.pre = "llama-bpe";
  EXPECT_EQ(Tokenizer::create(small).value().encode("xyz xyz").value(),
            (Ids{whole, ' ', 'x', 'y', 'z'}));
}

TEST(Tokenizer, EveryTextComesBack) {
  const Tokenizer tokenizer = Tokenizer::create(SmallVocabulary()).value();
  EXPECT_TRUE(tokenizer.has_all_bytes());
  std::mt19937_64 random(quire::test::announce_seed());
  for (int round = 0; round < 500; ++round) {
    const std::string text = random_bytes(random, 80);
    const Ids ids = tokenizer.encode(text).value();
    ASSERT_EQ(tokenizer.decode(ids).value(), text);
    Utf8Stream stream;
    std::string streamed;
    for (const int id : ids) streamed += stream.push(tokenizer.decode({&id, 1}).value());
    ASSERT_EQ(streamed + stream.finish(), text);
  }
}

TEST(Tokenizer, AByteWithoutATokenIsLeftOut) {
  SmallVocabulary small;
  small.tokens[4] = "unused";  // byte 04
  const Tokenizer tokenizer = Tokenizer::create(small).value();
  EXPECT_FALSE(tokenizer.has_all_bytes());
  EXPECT_EQ(tokenizer.encode("\x04").value(), Ids{});
  EXPECT_EQ(tokenizer.encode("!\x04?").value(), (Ids{'!', '?'}));
}

TEST(Tokenizer, RefusesIdsOutsideTheVocabulary) {
  const Tokenizer tokenizer = Tokenizer::create(SmallVocabulary()).value();
  for (const int id : {-1, tokenizer.size()}) {
    const auto decoded = tokenizer.decode(Ids{'a', id});
    ASSERT_EQ(decoded.code(), ErrorCode::out_of_range);
    EXPECT_NE(decoded.error().text.find(std::to_string(id)), std::string::npos);
  }
}

TEST(Tokenizer, RefusesAVocabularyThatDoesNotFitItself) {
  const auto refusal = [](auto&& change) {
    SmallVocabulary small;
    change(small);
    const auto made = Tokenizer::create(small);
    return made.ok() ? "made" : made.error().text;
  };
  using V = SmallVocabulary&;
  EXPECT_EQ(refusal([](V) {}), "made");
  EXPECT_EQ(refusal([](V v) { v.tokens.clear(), v.types.clear(), v.merges.clear(); }),
            "tokenizer: the vocabulary has no tokens");
  EXPECT_EQ(refusal([](V v) { v.types.pop_back(); }), "tokenizer: 265 types for 266 tokens");
  EXPECT_EQ(refusal([](V v) { v.eos = 266; }), "tokenizer: eos is 266, outside 266 tokens");
  EXPECT_EQ(refusal([](V v) { v.bos = -2; }), "tokenizer: bos is -2, outside 266 tokens");
  EXPECT_EQ(refusal([](V v) { v.merges.push_back("h q"); }),
            "tokenizer: merge 7 \"h q\": \"hq\" is no token");
  EXPECT_EQ(refusal([](V v) { v.merges[0] = "h 漢"; }),
            "tokenizer: merge 0 \"h 漢\": \"漢\" is no token");
  EXPECT_EQ(refusal([](V v) { v.merges.push_back("hello"); }),
            "tokenizer: merge 7 \"hello\": not two texts with a space between them");
  EXPECT_EQ(refusal([](V v) { v.merges.push_back("h  e"); }),
            "tokenizer: merge 7 \"h  e\": not two texts with a space between them");
  EXPECT_EQ(refusal([](V v) { v.merges.push_back("h e"); }),
            "tokenizer: merge 7 \"h e\": given before");
  EXPECT_NE(refusal([](V v) { v.model = "bert"; }).find("\"bert\""), std::string::npos);
  EXPECT_NE(refusal([](V v) { v.pre = "poro"; }).find("\"poro\""), std::string::npos);
}

TEST(Tokenizer, WithoutTypesAllTokensAreNormal) {
  SmallVocabulary small;
  small.types.clear();
  const Tokenizer tokenizer = Tokenizer::create(small).value();
  EXPECT_EQ(tokenizer.find_special("<|end|>"), -1);
  EXPECT_EQ(tokenizer.encode("hello").value(), Ids{small.id_of("hello")});
}

// --- with the default model

class DefaultModel : public testing::Test {
 protected:
  void SetUp() override {
    const auto path = default_model();
    if (!path) GTEST_SKIP() << kNoModel;
    tokenizer_.emplace(Tokenizer::create(vocabulary_of(*path)).value());
  }
  std::optional<Tokenizer> tokenizer_;
};

TEST_F(DefaultModel, EncodesAsHuggingFaceDoes) {
  int cases = 0;
  for (const Json& row : truth("tokenizer_ids.jsonl")) {
    EXPECT_EQ(Json(tokenizer_->encode(row[0].get<std::string>()).value()), row[1]) << row[0];
    ++cases;
  }
  EXPECT_EQ(cases, 2000);
}

TEST_F(DefaultModel, FindsSpecialTokensAsHuggingFaceDoes) {
  int cases = 0;
  for (const Json& row : truth("tokenizer_special.jsonl")) {
    EXPECT_EQ(Json(tokenizer_->encode(row[0].get<std::string>(), {.parse_special = true}).value()),
              row[1])
        << row[0];
    ++cases;
  }
  EXPECT_EQ(cases, 100);
}

TEST_F(DefaultModel, LacksTokensForSomeBytes) {
  EXPECT_FALSE(tokenizer_->has_all_bytes());
  EXPECT_EQ(tokenizer_
                ->decode(tokenizer_
                             ->encode("a\x04\xff"
                                      "b")
                             .value())
                .value(),
            "ab");
}

}  // namespace
}  // namespace quire::model::test
