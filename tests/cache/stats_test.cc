// What a cache says it uses.
#include <gtest/gtest.h>

#include "base/test_memory.h"
#include "cache/fixture.h"

namespace quire::test {
namespace {

TEST(Stats, AnEmptyCacheHoldsNoPages) {
  const Cache cache = Cache::create(small_spec(2)).value();
  const Stats stats = cache.stats();
  EXPECT_EQ(stats.pages_total, 0);
  EXPECT_EQ(stats.bytes_sealed, 0u);
  EXPECT_EQ(stats.bytes_rows, 0u);
  EXPECT_EQ(stats.sequences, 0);
  EXPECT_EQ(stats.tokens, 0);
  EXPECT_EQ(stats.bits_per_value, 0.0);
  EXPECT_EQ(stats.compression_ratio, 0.0);
}

TEST(Stats, BytesAreTrueAndAddUp) {
  TestMemory source;
  {
    CacheSpec spec = pattern_spec({Pattern::causal(), Pattern::window(3)}, "int8");
    spec.memory = &source;
    Cache cache = Cache::create(spec).value();
    const auto check = [&] {
      const Stats stats = cache.stats();
      EXPECT_EQ(stats.bytes, source.bytes);
      EXPECT_EQ(stats.bytes,
                stats.bytes_sealed + stats.bytes_rows + stats.bytes_tables + stats.bytes_free);
      EXPECT_EQ(stats.pages_total, stats.pages_used + stats.pages_free);
    };
    check();
    const Sequence sequence = filled(cache, 50);
    check();
    const Sequence fork = sequence.fork().value();
    check();
    {
      const Step step = stepped(cache, batch_of(fork, 50, 9));
      check();
    }
    check();
    sequence.close().value();
    check();
    cache.reserve({.sequences = 1, .tokens = 40}).value();
    check();
    cache.shrink();
    check();
  }
}

TEST(Stats, RowsOfOpenStepsCount) {
  Cache cache = Cache::create(small_spec(2, "int8")).value();
  const Sequence sequence = filled(cache, 4);
  const Stats before = cache.stats();
  Step step = cache.begin(batch_of(sequence, 4, 40)).value();
  const Stats open = cache.stats();
  EXPECT_EQ(open.pages_used, before.pages_used + 10);
  EXPECT_GT(open.bytes_rows, before.bytes_rows);
  EXPECT_GT(open.bytes_sealed, before.bytes_sealed);
  EXPECT_EQ(open.tokens, 4) << "not held yet";
  EXPECT_EQ(open.open_steps, 1);
  step.drop();
  EXPECT_EQ(cache.stats().bytes_rows, before.bytes_rows);
}

TEST(Stats, AFullPageKeepsNoSpareOne) {
  CacheSpec spec = small_spec();
  spec.rollback = 0;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 8);
  EXPECT_EQ(cache.stats().pages_used, 2);
  EXPECT_EQ(cache.stats().bytes_rows, 0u) << "no rows are needed behind a page's end";
  append(cache, sequence, 8, 1);
  EXPECT_EQ(cache.stats().pages_used, 3);
}

TEST(Stats, OneTokenAtATimeCopiesNoPage) {
  CacheSpec spec = small_spec(1, "int8");
  spec.page_tokens = 64;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 1);
  const std::byte* page = sequence.runs(0).value().at(0).data;
  for (std::int64_t p = 1; p < 60; ++p) {
    append(cache, sequence, p, 1);
    ASSERT_EQ(sequence.runs(0).value().at(0).data, page) << "rows stay where they were written";
  }
  EXPECT_EQ(cache.stats().pages_total, 1);
}

TEST(Stats, SharedPagesAreSeenByMoreThanOneSequence) {
  Cache cache = Cache::create(small_spec(2)).value();
  const Sequence a = filled(cache, 10);
  EXPECT_EQ(cache.stats().pages_shared, 0);
  const Sequence b = a.fork().value();
  const Sequence c = a.fork(5).value().sequence;
  EXPECT_EQ(cache.stats().pages_shared, 3);
  EXPECT_EQ(cache.stats().tokens, 10 + 10 + 5) << "each sequence counted for itself";
  b.close().value();
  EXPECT_EQ(cache.stats().pages_shared, 2);
}

TEST(Stats, APageInPiecesIsNotShared) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence sequence = filled(cache, 12);
  sequence.remove(5, 6, true).value();
  EXPECT_EQ(cache.stats().pages_shared, 0);
}

// --- bits per value ------------------------------------------------------------------------------

Stats full_pages(const std::string& key, const std::string& value) {
  CacheSpec spec = CacheSpec::uniform({.layers = 2, .kv_heads = 3, .head_dim = 64});
  spec.set_codec(key, value);
  spec.rollback = 0;
  Cache cache = Cache::create(spec).value();
  filled(cache, 128);
  return cache.stats();
}

TEST(Stats, BitsPerValueAreThoseOfTheCodec) {
  EXPECT_DOUBLE_EQ(full_pages("f32", "f32").bits_per_value, 32.0);
  EXPECT_DOUBLE_EQ(full_pages("f16", "f16").bits_per_value, 16.0);
  EXPECT_DOUBLE_EQ(full_pages("bf16", "bf16").bits_per_value, 16.0);
  EXPECT_DOUBLE_EQ(full_pages("fp8_e4m3", "fp8_e4m3").bits_per_value, 8.0);
  EXPECT_DOUBLE_EQ(full_pages("int8", "int8").bits_per_value, 8.25) << "a scale for 64 numbers";
  EXPECT_DOUBLE_EQ(full_pages("int8", "f16").bits_per_value, 12.125);
}

TEST(Stats, CompressionIsAgainstF16) {
  EXPECT_DOUBLE_EQ(full_pages("f16", "f16").compression_ratio, 1.0);
  EXPECT_DOUBLE_EQ(full_pages("f32", "f32").compression_ratio, 0.5);
  EXPECT_DOUBLE_EQ(full_pages("int8", "int8").compression_ratio, 16.0 / 8.25);
}

TEST(Stats, OpenPagesAndHeldRowsAreNotHidden) {
  CacheSpec spec = CacheSpec::uniform({.layers = 1, .kv_heads = 1, .head_dim = 64});
  spec.set_codec("int8", "int8");
  Cache open = Cache::create(spec).value();
  filled(open, 32);
  EXPECT_DOUBLE_EQ(open.stats().bits_per_value, 32.0) << "half of a page of f16 rows is filled";
  Cache held = Cache::create(spec).value();
  filled(held, 64);
  EXPECT_DOUBLE_EQ(held.stats().bits_per_value, 24.25)
      << "rollback holds the rows beside the codes";
}

TEST(Stats, APageSeenByManyCountsOnce) {
  CacheSpec spec = CacheSpec::uniform({.layers = 1, .kv_heads = 1, .head_dim = 64});
  spec.rollback = 0;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 64);
  sequence.fork().value();
  EXPECT_DOUBLE_EQ(cache.stats().bits_per_value, 16.0);
}

TEST(Stats, AnMlaLayerStoresItsLatentOnce) {
  CacheSpec spec = CacheSpec::mla(1, 4, 48, 16);
  spec.rollback = 0;
  Cache cache = Cache::create(spec).value();
  filled(cache, 64);
  EXPECT_DOUBLE_EQ(cache.stats().bits_per_value, 16.0);
  EXPECT_EQ(cache.stats().bytes_sealed, 64u * 64 * 2);
}

}  // namespace
}  // namespace quire::test
