#include "model/generator.h"

#include <gtest/gtest.h>

#include "model_runner/chat_fixture.h"

namespace quire::model::test {
namespace {

std::vector<int> many(std::size_t count) {
  std::vector<int> ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(static_cast<int>(i * 7 % 256));
  return ids;
}

TEST(Generator, AppendsWhatItDraws) {
  SmallModel small;
  const Sequence sequence = small.cache->open().value();
  std::vector<int> expected = small.tokenizer.encode("hello").value();
  ASSERT_TRUE(small.generator->feed(sequence, expected).ok());
  Sampler sampler = sampler_of({.temperature = 1, .seed = 1});
  std::string text;
  const Generation made =
      small.generator
          ->generate(sequence, sampler, 20, [&](std::string_view words) { text += words; })
          .value();
  ASSERT_FALSE(made.tokens.empty());
  EXPECT_EQ(text, small.tokenizer.decode(made.tokens, false).value());
  expected.insert(expected.end(), made.tokens.begin(), made.tokens.end());
  EXPECT_EQ(small.ids_of(sequence), expected);
  EXPECT_LE(made.first_seconds, made.seconds);
}

TEST(Generator, StopsAtTheLengthOrAtAnEnd) {
  SmallModel small;
  const Sequence sequence = small.cache->open().value();
  ASSERT_TRUE(small.generator->feed(sequence, many(3)).ok());
  // All tokens are about as likely, so one of 268 ends it: sooner or later, but not at once.
  Sampler sampler = sampler_of({.temperature = 1e6, .seed = 3});
  const Generation brief = small.generator->generate(sequence, sampler, 2).value();
  EXPECT_EQ(brief.stop, Stop::length);
  EXPECT_EQ(brief.tokens.size(), 2u);
  const Generation whole = small.generator->generate(sequence, sampler, 20000).value();
  EXPECT_EQ(whole.stop, Stop::ended);
  for (const int id : whole.tokens) EXPECT_FALSE(small.tokenizer.is_end(id));
  EXPECT_EQ(sequence.length().value(), 5 + std::ssize(whole.tokens));
  EXPECT_TRUE(small.generator->generate(sequence, sampler, 0).value().tokens.empty());
}

TEST(Generator, ThePromptMayBeLongerThanAStep) {
  SmallModel small;
  const Sequence sequence = small.cache->open().value();
  const std::vector<int> prompt = many(1300);
  ASSERT_TRUE(small.generator->feed(sequence, prompt).ok());
  EXPECT_EQ(small.ids_of(sequence), prompt);
  EXPECT_EQ(small.cache->stats().sequences, 1);
}

TEST(Generator, KeepsWhatItHasWhenTheCacheIsFull) {
  SmallModel small([](CacheSpec& spec) { spec.max_tokens = 40; });
  const Sequence sequence = small.cache->open().value();
  ASSERT_TRUE(small.generator->feed(sequence, many(30)).ok());
  Sampler sampler = sampler_of({.temperature = 1, .seed = 1});
  const Generation made = small.generator->generate(sequence, sampler, 100).value();
  EXPECT_EQ(made.stop, Stop::memory);
  EXPECT_EQ(made.tokens.size(), 10u);
  EXPECT_EQ(sequence.length().value(), 40);
}

TEST(Generator, ARefusedPromptLeavesTheSequence) {
  for (const Pattern& pattern : {Pattern::causal(), Pattern::window(64)}) {
    SmallModel small([&](CacheSpec& spec) {
      for (LayerSpec& layer : spec.layers) layer.pattern = pattern;
    });
    const Sequence sequence = small.cache->open().value();
    ASSERT_TRUE(small.generator->feed(sequence, many(100)).ok());
    const std::vector<int> before = small.ids_of(sequence);
    // In the third step; by then a window has dropped what is to be restored.
    std::vector<int> prompt = many(2000);
    prompt[1500] = small.tokenizer.size();
    ASSERT_FALSE(small.generator->feed(sequence, prompt).ok());
    // A window may have let go of tokens that it does not show.
    const std::vector<int> after = small.ids_of(sequence);
    ASSERT_GE(std::ssize(after), pattern.kind == Pattern::Kind::causal ? 100 : 63);
    EXPECT_TRUE(std::equal(after.rbegin(), after.rend(), before.rbegin()));
    EXPECT_EQ(sequence.next_position().value(), 100);
    EXPECT_TRUE(sequence.is_exact().value());
    EXPECT_EQ(small.cache->stats().sequences, 1);
    Sampler sampler = sampler_of();
    EXPECT_EQ(small.generator->generate(sequence, sampler, 1).code(), ErrorCode::wrong_state);
    EXPECT_TRUE(small.generator->feed(sequence, many(3)).ok());
  }
}

TEST(Generator, GoesOnOnlyWithTheSequenceFedLast) {
  SmallModel small;
  const Sequence first = small.cache->open().value();
  const Sequence second = small.cache->open().value();
  Sampler sampler = sampler_of();
  EXPECT_EQ(small.generator->generate(first, sampler, 1).code(), ErrorCode::wrong_state);
  ASSERT_TRUE(small.generator->feed(first, many(2)).ok());
  ASSERT_TRUE(small.generator->feed(second, many(2)).ok());
  EXPECT_EQ(small.generator->generate(first, sampler, 1).code(), ErrorCode::wrong_state);
  EXPECT_TRUE(small.generator->generate(second, sampler, 1).ok());
  EXPECT_EQ(small.generator->feed(first, {}).code(), ErrorCode::invalid_argument);
}

TEST(Generator, KnowsWantOfRoom) {
  EXPECT_TRUE(is_want_of_room(ErrorCode::over_limit));
  EXPECT_TRUE(is_want_of_room(ErrorCode::out_of_memory));
  EXPECT_TRUE(is_want_of_room(ErrorCode::full));
  EXPECT_FALSE(is_want_of_room(ErrorCode::not_resumable));
  EXPECT_FALSE(is_want_of_room(ErrorCode::ok));
}

}  // namespace
}  // namespace quire::model::test
