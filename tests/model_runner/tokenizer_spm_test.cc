#include "model/tokenizer_spm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "model_runner/tokenizer_fixture.h"

namespace quire::model::test {
namespace {

// What a model file would say; ids 0, 1 and 2 are the unknown token, the first and the last one.
Vocabulary vocabulary_of(const Json& row) {
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  row.at("tokens").get_to(vocabulary.tokens);
  row.at("scores").get_to(vocabulary.scores);
  row.at("types").get_to(vocabulary.types);
  row.at("add_space").get_to(vocabulary.add_space);
  vocabulary.bos = 1;
  vocabulary.eos = 2;
  vocabulary.add_bos = true;
  return vocabulary;
}

std::map<std::string, Vocabulary> vocabularies() {
  std::map<std::string, Vocabulary> found;
  for (const Json& row : truth("tokenizer_spm.jsonl")) {
    if (row.is_object()) found[row.at("name").get<std::string>()] = vocabulary_of(row);
  }
  return found;
}

TEST(SpmTokenizer, EncodesAsSentencePieceDoes) {
  std::map<std::string, Tokenizer> tokenizers;
  for (const auto& [name, vocabulary] : vocabularies()) {
    tokenizers.emplace(name, Tokenizer::create(vocabulary).value());
  }
  ASSERT_EQ(tokenizers.size(), 2u);
  int cases = 0;
  for (const Json& row : truth("tokenizer_spm.jsonl")) {
    if (row.is_object()) continue;
    const std::string name = row[0], text = row[1];
    const Tokenizer& tokenizer = tokenizers.at(name);
    const std::vector<int> ids = tokenizer.encode(text).value();
    EXPECT_EQ(ids, row[2].get<std::vector<int>>()) << name << ": \"" << text << "\"";
    // A text that has the sign for a space loses it.
    if (text.find("\u2581") == std::string::npos) {
      const bool prefixed = name == "prefixed" && !text.empty();
      EXPECT_EQ(tokenizer.decode(ids).value(), (prefixed ? " " : "") + text);
    }
    ++cases;
  }
  EXPECT_EQ(cases, 1012);
}

TEST(SpmTokenizer, SpecialTokensAreFoundWhenAskedFor) {
  const Tokenizer tokenizer = Tokenizer::create(vocabularies().at("prefixed")).value();
  EXPECT_EQ(tokenizer.encode("</s>", {.parse_special = true}).value(), std::vector<int>{2});
  EXPECT_GT(tokenizer.encode("</s>").value().size(), 1u);
  EXPECT_EQ(tokenizer.encode("", {.bos = true}).value(), std::vector<int>{1});
  EXPECT_EQ(tokenizer.find_special("<s>"), 1);
  EXPECT_TRUE(tokenizer.is_end(2));
  EXPECT_TRUE(tokenizer.has_all_bytes());
}

TEST(SpmTokenizer, BytesThatAreNoTextComeBack) {
  const Tokenizer tokenizer = Tokenizer::create(vocabularies().at("defined")).value();
  const std::string text = "a\xff\xe2\x96 b\x80";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text).value()).value(), text);
}

TEST(SpmTokenizer, WithoutBytesThereIsTheUnknownToken) {
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.tokens = {"<unk>", "a", "b", "ab", "<0x63>"};
  vocabulary.scores = {0, -2, -3, -1, 0};
  vocabulary.types = {2, 1, 1, 1, 6};
  vocabulary.add_space = false;
  const Tokenizer tokenizer = Tokenizer::create(vocabulary).value();
  EXPECT_EQ(tokenizer.encode("abcd\u00e9ba").value(), (std::vector<int>{3, 4, 0, 0, 2, 1}));
  EXPECT_FALSE(tokenizer.has_all_bytes());
}

TEST(SpmTokenizer, ScoresMustFit) {
  Vocabulary vocabulary = vocabularies().at("prefixed");
  vocabulary.scores.pop_back();
  const auto made = Tokenizer::create(vocabulary);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().text.find("699 scores for 700 tokens"), std::string::npos);
  vocabulary.scores.push_back(std::nanf(""));
  EXPECT_FALSE(Tokenizer::create(vocabulary).ok());
}

}  // namespace
}  // namespace quire::model::test
