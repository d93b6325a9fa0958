// Putting the tokens of sparsely used pages together.
#include <gtest/gtest.h>

#include "cache/fixture.h"

namespace quire::test {
namespace {

CacheSpec sparse_spec(const std::string& codec) {
  CacheSpec spec = small_spec(2, codec);
  spec.page_tokens = 8;
  spec.rollback = 0;
  for (LayerSpec& layer : spec.layers) layer.rotation = Rotation::none();
  spec.layers[1].pattern = Pattern::chunked(1000);
  return spec;
}

// What a token becomes depends on the others of its page.
bool looks_at_pages(const std::string& codec) { return codec.starts_with("dual"); }

// Ten pages of 8, of which two tokens each are left.
Sequence sparse(Cache& cache) {
  const Sequence sequence = filled(cache, 80);
  for (std::int64_t page = 0; page < 10; ++page) {
    sequence.remove(8 * page + 2, 8 * page + 8, true).value();
  }
  append(cache, sequence, 80, 3);
  return sequence;
}

TEST(Compact, GivesPagesBackAndChangesNoValue) {
  for (const std::string& codec : codec_names()) {
    if (looks_at_pages(codec)) continue;
    CacheSpec spec = sparse_spec(codec);
    for (LayerSpec& layer : spec.layers) layer.key_dim = layer.value_dim = 32;  // for every codec
    Cache cache = Cache::create(spec).value();
    const Sequence sequence = sparse(cache);
    const std::vector<std::int64_t> positions = positions_of(sequence);
    std::vector<std::vector<float>> before;
    for (int layer = 0; layer < 2; ++layer) {
      before.push_back(read_all(sequence, layer, Side::key));
      before.push_back(read_all(sequence, layer, Side::value));
    }
    const std::int64_t used = cache.stats().pages_used;
    const std::int64_t given = cache.compact().value();
    EXPECT_GE(given, 2 * 6) << codec << ": twenty tokens of ten pages fit in three, in two groups";
    EXPECT_EQ(cache.stats().pages_used, used - given);
    EXPECT_EQ(positions_of(sequence), positions);
    for (int layer = 0; layer < 2; ++layer) {
      EXPECT_EQ(read_all(sequence, layer, Side::key), before[index_of(2 * layer)]);
      EXPECT_EQ(read_all(sequence, layer, Side::value), before[index_of(2 * layer + 1)]);
    }
    EXPECT_EQ(cache.compact().value(), 0) << "once is enough";
  }
}

TEST(Compact, TokensOfCodecsThatLookAtWholePagesStay) {
  for (const std::string& codec : codec_names()) {
    if (!looks_at_pages(codec)) continue;
    CacheSpec spec = sparse_spec(codec);
    spec.set_codec(codec, "int8");
    Cache cache = Cache::create(spec).value();
    const Sequence sequence = sparse(cache);
    const std::vector<float> before = read_all(sequence, 0, Side::key);
    const std::int64_t used = cache.stats().pages_used;
    EXPECT_EQ(cache.compact().value(), 0) << codec;
    EXPECT_EQ(cache.stats().pages_used, used);
    EXPECT_EQ(read_all(sequence, 0, Side::key), before);
  }
}

TEST(Compact, AttentionIsTheSameBitForBit) {
  const CacheSpec spec = sparse_spec("int8");
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = sparse(cache);
  const Rows q = known_queries(2, 4, 4);
  const auto ask = [&] {
    Step step = stepped(cache, batch_of(sequence, 83, 2));
    return std::pair(attend(step, spec, 0, q).data, attend(step, spec, 1, q).data);
  };
  const auto before = ask();
  cache.compact().value();
  EXPECT_EQ(ask(), before);
}

TEST(Compact, WhatFollowsWorksAsBefore) {
  const CacheSpec spec = sparse_spec("f32");
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = sparse(cache);
  cache.compact().value();
  append(cache, sequence, 83, 10);
  sequence.remove(9, 17, true).value();
  sequence.truncate(70).value();
  append(cache, sequence, 90, 3);
  std::vector<std::int64_t> left;
  for (std::int64_t page = 0; page < 9; ++page) {
    for (const std::int64_t p : range(8 * page, 8 * page + 2)) {
      if ((p < 9 || p >= 17) && p < 70) left.push_back(p);
    }
  }
  for (const std::int64_t p : range(90, 93)) left.push_back(p);
  EXPECT_TRUE(holds(cache, sequence, 0, left));
  EXPECT_TRUE(holds(cache, sequence, 1, left));
}

TEST(Compact, MovedTokensKeepTheirTurn) {
  CacheSpec spec = sparse_spec("f32");
  spec.layers[0].rotation = Rotation::with_rope({});
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 40);
  for (std::int64_t page = 0; page < 5; ++page) sequence.remove(2 * page + 2, 2 * page + 8).value();
  const std::vector<float> before = read_all(sequence, 0, Side::key);
  ASSERT_GT(cache.compact().value(), 0);
  EXPECT_EQ(read_all(sequence, 0, Side::key), before);
  EXPECT_EQ(positions_of(sequence), range(0, 10));
}

TEST(Compact, SharedPagesStay) {
  Cache cache = Cache::create(sparse_spec("f32")).value();
  const Sequence sequence = filled(cache, 80);
  const Sequence fork = sequence.fork().value();
  for (std::int64_t page = 0; page < 10; ++page) {
    sequence.remove(8 * page + 2, 8 * page + 8, true).value();
  }
  EXPECT_EQ(cache.compact().value(), 0) << "the fork shows them whole";
  fork.close().value();
  EXPECT_GT(cache.compact().value(), 0);
}

TEST(Compact, ASequenceWithAnOpenStepIsLeftAlone) {
  Cache cache = Cache::create(sparse_spec("f32")).value();
  const Sequence sequence = sparse(cache);
  Step step = stepped(cache, batch_of(sequence, 83, 1));
  EXPECT_EQ(cache.compact().value(), 0);
  step.commit().value();
  EXPECT_GT(cache.compact().value(), 0);
}

TEST(Compact, FullPagesAreNotSparse) {
  Cache cache = Cache::create(sparse_spec("f32")).value();
  const Sequence sequence = filled(cache, 80);
  sequence.remove(3, 6, true).value();
  EXPECT_EQ(cache.compact().value(), 0);
}

}  // namespace
}  // namespace quire::test
