// Generating with a draft gives what generating without one gives, token by token.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/generator.h"
#include "model_runner/chat_fixture.h"

namespace quire::model::test {
namespace {

// The small model repeats itself little.
constexpr LookupDraft kEager{.tokens = 8, .shortest_match = 1};

const std::vector<std::string> kCodecs = {"f16", "int8", "balanced", "tiny"};

// The tokenizer of the small model with another token that ends a text; -1: none.
Tokenizer ending_with(int id) {
  ChatVocabulary vocabulary;
  vocabulary.eos = id;
  vocabulary.eot = -1;
  return Tokenizer::create(vocabulary).value();
}

// The small model writes a text that does not end, into pages so small that drafts reach over their
// ends.
struct Writer {
  Writer(const std::string& codec, const std::optional<LookupDraft>& draft,
         const SamplerOptions& options = {}, const std::function<void(CacheSpec&)>& change = {},
         int end = -1)
      : small([&](CacheSpec& spec) {
          spec.page_tokens = 16;
          spec.set_codec(codec).value();
          if (change) change(spec);
        }),
        tokenizer(ending_with(end)),
        generator(small.model, tokenizer, *small.cache, draft),
        sampler(sampler_of(options)),
        sequence(small.cache->open().value()) {}

  Writer& feed(const std::vector<int>& ids) {
    generator.feed(sequence, ids).value();
    return *this;
  }
  Generation write(std::int64_t most) {
    Generation made =
        generator.generate(sequence, sampler, most, [&](std::string_view part) { text += part; })
            .value();
    tokens.insert(tokens.end(), made.tokens.begin(), made.tokens.end());
    return made;
  }

  SmallModel small;
  Tokenizer tokenizer;
  Generator generator;
  Sampler sampler;
  Sequence sequence;
  std::vector<int> tokens;  // all that was written
  std::string text;
};

const std::vector<int> kPrompt = {104, 101, 108, 108, 111};

TEST(Draft, WritesWhatIsWrittenWithoutIt) {
  for (const std::string& codec : kCodecs) {
    for (const double temperature : {0.0, 0.2}) {
      const SamplerOptions options{.temperature = temperature, .seed = 7};
      Writer plain(codec, {}, options);
      const Generation expected = plain.feed(kPrompt).write(200);
      EXPECT_EQ(expected.drafted, 0);
      for (const int tokens : {1, 8, 20}) {
        SCOPED_TRACE(fmt::format("{}, temperature {}, {} tokens", codec, temperature, tokens));
        Writer drafting(codec, LookupDraft{.tokens = tokens, .shortest_match = 1}, options);
        const Generation made = drafting.feed(kPrompt).write(200);
        EXPECT_EQ(drafting.tokens, plain.tokens);
        EXPECT_EQ(drafting.text, plain.text);
        EXPECT_EQ(made.stop, expected.stop);
        EXPECT_EQ(drafting.small.ids_of(drafting.sequence), plain.small.ids_of(plain.sequence));
        EXPECT_TRUE(drafting.sequence.is_exact().value());
        // Both kinds of guesses came.
        EXPECT_GT(made.accepted, 0);
        EXPECT_GT(made.drafted, made.accepted);
      }
    }
  }
}

TEST(Draft, StopsWhereGeneratingWithoutItStops) {
  for (const double temperature : {0.0, 0.2}) {
    const SamplerOptions options{.temperature = temperature, .seed = 7};
    Writer plain("int8", {}, options);
    plain.feed(kPrompt);
    Writer drafting("int8", kEager, options);
    drafting.feed(kPrompt);
    // The sampler and the logits go on from each end as if there had been no draft.
    for (const int most : {60, 1, 2, 3, 5, 7, 0, 11}) {
      const Generation expected = plain.write(most);
      const Generation made = drafting.write(most);
      EXPECT_EQ(made.tokens, expected.tokens);
      EXPECT_EQ(made.stop, Stop::length);
      EXPECT_LE(made.accepted, std::max(most - 1, 0));
    }
    EXPECT_EQ(drafting.small.ids_of(drafting.sequence), plain.small.ids_of(plain.sequence));
  }
}

TEST(Draft, ATokenThatEndsIsNotKept) {
  Writer endless("int8", {});
  endless.feed(kPrompt).write(200);
  const auto [prompt_end, end] = std::pair{endless.tokens.begin() + 170, endless.tokens.end()};
  std::vector<int> prompt = kPrompt;
  prompt.insert(prompt.end(), endless.tokens.begin(), prompt_end);
  // Each token that follows ends the text in turn. Some of them are guessed, as they came before.
  for (auto last = prompt_end + 1; last < end; ++last) {
    const std::vector<int> expected(prompt_end, std::find(prompt_end, end, *last));
    Writer drafting("int8", kEager, {}, {}, *last);
    const Generation made = drafting.feed(prompt).write(100);
    EXPECT_EQ(made.stop, Stop::ended);
    EXPECT_EQ(made.tokens, expected);
    EXPECT_EQ(drafting.sequence.length().value(), std::ssize(prompt) + std::ssize(expected));
  }
}

TEST(Draft, AFullCacheHoldsAsManyTokens) {
  const std::vector<std::function<void(CacheSpec&)>> limits = {
      [](CacheSpec& spec) { spec.max_tokens = 123; },
      [](CacheSpec& spec) { spec.memory_limit_bytes = 64 * KiB; },
      [](CacheSpec& spec) { spec.max_tokens = 123, spec.max_batch = 5; },
  };
  for (const std::string& codec : kCodecs) {
    for (const auto& limit : limits) {
      Writer plain(codec, {}, {}, limit);
      const Generation expected = plain.feed(kPrompt).write(2000);
      Writer drafting(codec, kEager, {}, limit);
      const Generation made = drafting.feed(kPrompt).write(2000);
      EXPECT_EQ(expected.stop, Stop::memory);
      EXPECT_EQ(made.stop, Stop::memory);
      EXPECT_EQ(made.tokens, expected.tokens);
      EXPECT_EQ(drafting.sequence.length().value(), plain.sequence.length().value());
    }
  }
}

TEST(Draft, AWindowShowsWhatItShowsWithoutIt) {
  for (const std::string& codec : kCodecs) {
    const auto narrow = [](CacheSpec& spec) {
      for (LayerSpec& layer : spec.layers) layer.pattern = Pattern::window(40);
    };
    Writer plain(codec, {}, {}, narrow);
    plain.feed(kPrompt).write(200);
    Writer drafting(codec, kEager, {}, narrow);
    EXPECT_GT(drafting.feed(kPrompt).write(200).accepted, 0);
    EXPECT_EQ(drafting.tokens, plain.tokens);
  }
}

}  // namespace
}  // namespace quire::model::test
