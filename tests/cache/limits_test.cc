// The byte limit, and what happens where memory ends.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "base/seed.h"
#include "base/test_memory.h"
#include "cache/fixture.h"

namespace quire::test {
namespace {

class LimitTest : public testing::Test {
 protected:
  TestMemory source;

  Cache make(CacheSpec spec) {
    spec.memory = &source;
    return Cache::create(spec).value();
  }

  // True bytes of a cache of that spec with `sequences` empty sequences.
  std::size_t empty_bytes(const CacheSpec& spec, int sequences) {
    Cache cache = make(spec);
    for (int i = 0; i < sequences; ++i) cache.open().value();
    cache.shrink();
    return cache.stats().bytes;
  }
};

TEST_F(LimitTest, IsNeverExceeded) {
  std::mt19937_64 random(announce_seed());
  CacheSpec spec = pattern_spec({Pattern::causal(), Pattern::window(5)}, "int8");
  spec.memory_limit_bytes = 40000;
  Cache cache = make(spec);
  std::vector<Sequence> all;
  std::int64_t refused = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::size_t which = all.empty() ? 0 : random() % all.size();
    switch (random() % 8) {
      case 0:
        if (Result<Sequence> made = cache.open(); made.ok()) all.push_back(*made);
        break;
      case 1:
        if (all.empty()) break;
        if (Result<Sequence> made = all[which].fork(); made.ok()) all.push_back(*made);
        break;
      case 2:
        if (all.empty()) break;
        all[which].close().value();
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(which));
        break;
      default: {
        if (all.empty()) break;
        const std::int64_t next = all[which].next_position().value();
        const Batch batch =
            batch_of(all[which], next, 1 + static_cast<std::int64_t>(random() % 20));
        Result<Step> step = cache.begin(batch);
        if (!step.ok()) {
          ASSERT_TRUE(fails(step, ErrorCode::over_limit, {"40000"}));
          ++refused;
          break;
        }
        put_all(*step, spec, batch);
        if (random() % 4 != 0) step->commit().value();
      }
    }
    ASSERT_LE(source.peak_bytes, 40000u);
    ASSERT_EQ(cache.stats().bytes, source.bytes);
  }
  EXPECT_GT(refused, 0) << "the limit was met";
}

TEST_F(LimitTest, ARefusedBeginNamesTheNumbersAndChangesNothing) {
  CacheSpec spec = small_spec(2, "int8");
  spec.memory_limit_bytes = 30000;
  Cache cache = make(spec);
  const Sequence sequence = filled(cache, 10);
  const Snapshot before = snapshot(cache);
  EXPECT_TRUE(fails(cache.begin(batch_of(sequence, 10, 200)), ErrorCode::over_limit,
                    {"begin", "200 tokens", "50 pages", "30000"}));
  EXPECT_EQ(snapshot(cache), before);
  append(cache, sequence, 10, 8);
  EXPECT_EQ(sequence.length().value(), 18);
}

// --- enforce_memory_limit ------------------------------------------------------------------------

TEST_F(LimitTest, EnforcedAboveWhatIsHeldItCutsNothing) {
  Cache cache = make(small_spec(2));
  filled(cache, 20);
  const Snapshot before = snapshot(cache);
  EXPECT_FALSE(cache.enforce_memory_limit(cache.stats().bytes).value());
  EXPECT_EQ(snapshot(cache), before);
}

TEST_F(LimitTest, FreeMemoryGoesBeforeTokens) {
  Cache cache = make(small_spec(2));
  const Sequence sequence = filled(cache, 20);
  filled(cache, 100).close().value();
  cache.reserve({.sequences = 1, .tokens = 100}).value();
  const Stats stats = cache.stats();
  EXPECT_FALSE(cache.enforce_memory_limit(stats.bytes - stats.bytes_free).value());
  EXPECT_EQ(sequence.length().value(), 20);
  EXPECT_LE(source.bytes, stats.bytes - stats.bytes_free);
}

TEST_F(LimitTest, TheLongestSequenceIsCutToThreeQuartersOldestFirst) {
  Cache cache = make(small_spec(2));
  const Sequence longest = filled(cache, 100);
  const Sequence other = filled(cache, 70);
  cache.shrink();
  EXPECT_TRUE(cache.enforce_memory_limit(cache.stats().bytes - 1).value());
  EXPECT_TRUE(holds(cache, longest, 0, range(25, 100)));
  EXPECT_TRUE(holds(cache, other, 0, range(0, 70)));
}

TEST_F(LimitTest, CutsRepeatUntilTrueBytesFit) {
  Cache cache = make(small_spec(2));
  const Sequence a = filled(cache, 200);
  const Sequence b = filled(cache, 150);
  cache.shrink();
  for (std::size_t bytes = cache.stats().bytes; bytes > 6000; bytes = bytes * 2 / 3) {
    cache.enforce_memory_limit(bytes).value();
    EXPECT_LE(cache.stats().bytes, bytes);
    EXPECT_EQ(cache.stats().bytes, source.bytes) << "memory is really given back";
    EXPECT_TRUE(holds(cache, a, 0, range(200 - a.length().value(), 200)));
    EXPECT_TRUE(holds(cache, b, 1, range(150 - b.length().value(), 150)));
  }
  EXPECT_LT(a.length().value(), 60);
  EXPECT_LT(b.length().value(), 60);
}

TEST_F(LimitTest, SharedPagesAreCutUntilTheyReallyGo) {
  Cache cache = make(small_spec(2));
  const Sequence parent = filled(cache, 200);
  const Sequence child = parent.fork().value();
  cache.shrink();
  const std::size_t bytes = cache.stats().bytes / 2;
  EXPECT_TRUE(cache.enforce_memory_limit(bytes).value());
  EXPECT_LE(source.bytes, bytes);
  EXPECT_LT(parent.length().value(), 200);
  EXPECT_LT(child.length().value(), 200) << "cutting one alone frees nothing";
}

TEST_F(LimitTest, DownToAnEmptyCacheItFits) {
  for (const CacheSpec& spec :
       {small_spec(2), pattern_spec({Pattern::causal(), Pattern::chunked(9), Pattern::cross()})}) {
    const std::size_t empty = empty_bytes(spec, 2);
    Cache cache = make(spec);
    const Sequence a = filled(cache, 50);
    filled(cache, 30);
    EXPECT_TRUE(cache.enforce_memory_limit(empty).value());
    EXPECT_EQ(a.length().value(), 0);
    EXPECT_LE(source.bytes, empty);
    append(cache, a, 0, 3);
  }
}

TEST_F(LimitTest, LessThanAnEmptyCacheIsRefusedAndChangesNothing) {
  for (const CacheSpec& spec :
       {small_spec(2), pattern_spec({Pattern::causal(), Pattern::chunked(9), Pattern::cross()})}) {
    const std::size_t empty = empty_bytes(spec, 2);
    Cache cache = make(spec);
    filled(cache, 50);
    filled(cache, 30);
    const Snapshot before = snapshot(cache);
    EXPECT_TRUE(fails(cache.enforce_memory_limit(empty - 1), ErrorCode::over_limit,
                      {"enforce_memory_limit", std::to_string(empty - 1), "2 sequences"}));
    EXPECT_TRUE(fails(cache.resize(empty - 1), ErrorCode::over_limit, {"resize"}));
    EXPECT_TRUE(fails(cache.enforce_memory_limit(0), ErrorCode::over_limit));
    EXPECT_EQ(snapshot(cache), before);
  }
}

TEST_F(LimitTest, SequencesWithOpenStepsAreLeftAlone) {
  Cache cache = make(small_spec(2));
  const Sequence busy = filled(cache, 100);
  const Sequence idle = filled(cache, 80);
  Step step = stepped(cache, batch_of(busy, 100, 4));
  cache.shrink();
  const std::size_t bytes = cache.stats().bytes;
  EXPECT_TRUE(cache.enforce_memory_limit(bytes - 1000).value());
  EXPECT_EQ(busy.length().value(), 100);
  EXPECT_LT(idle.length().value(), 80);
  EXPECT_TRUE(fails(cache.enforce_memory_limit(bytes / 4), ErrorCode::busy));
  EXPECT_EQ(busy.length().value(), 100);
  step.commit().value();
  EXPECT_TRUE(holds(cache, busy, 0, range(0, 104)));
}

// --- resize and shrink ---------------------------------------------------------------------------

TEST_F(LimitTest, ResizeMakesANewLimit) {
  Cache cache = make(small_spec(2));
  EXPECT_EQ(cache.stats().bytes_limit, SIZE_MAX);
  const Sequence sequence = filled(cache, 100);
  const std::size_t bytes = cache.stats().bytes / 2;
  EXPECT_TRUE(cache.resize(bytes).value());
  EXPECT_EQ(cache.stats().bytes_limit, bytes);
  EXPECT_LE(source.bytes, bytes);
  EXPECT_LT(sequence.length().value(), 100);
  EXPECT_TRUE(fails(cache.begin(batch_of(sequence, 100, 200)), ErrorCode::over_limit,
                    {std::to_string(bytes)}));
  EXPECT_FALSE(cache.resize(1 << 20).value());
  append(cache, sequence, 100, 200);
}

TEST_F(LimitTest, AFullCacheCanBeResizedDown) {
  CacheSpec spec = small_spec(2);
  spec.memory_limit_bytes = 30000;
  Cache cache = make(spec);
  const Sequence sequence = cache.open().value();
  std::int64_t end = 0;
  for (;; ++end) {
    const Batch batch = batch_of(sequence, end, 1);
    Result<Step> step = cache.begin(batch);
    if (!step.ok()) break;
    put_all(*step, spec, batch);
    step->commit().value();
  }
  source.peak_bytes = 0;
  EXPECT_TRUE(cache.resize(20000).value());
  EXPECT_LE(source.bytes, 20000u);
  EXPECT_LE(source.peak_bytes, 30000u) << "cutting takes no more than the limit in force";
  EXPECT_TRUE(holds(cache, sequence, 0, range(end - sequence.length().value(), end)));
}

TEST_F(LimitTest, ShrinkGivesFreeMemoryToTheSystem) {
  Cache cache = make(small_spec(2));
  const Sequence sequence = filled(cache, 100);
  const Sequence other = filled(cache, 100);
  sequence.keep_last(10).value();
  other.close().value();
  const Stats before = cache.stats();
  EXPECT_GT(before.bytes_free, 0u);
  EXPECT_EQ(cache.shrink(), before.bytes_free);
  EXPECT_EQ(cache.stats().bytes, before.bytes - before.bytes_free);
  EXPECT_EQ(source.bytes, cache.stats().bytes);
  EXPECT_EQ(cache.stats().pages_free, 0);
  EXPECT_EQ(cache.stats().pages_total, cache.stats().pages_used);
  EXPECT_TRUE(holds(cache, sequence, 0, range(90, 100)));
  EXPECT_EQ(cache.shrink(), 0u);
}

// --- wherever memory ends ------------------------------------------------------------------------

TEST_F(LimitTest, ACallThatFindsNoMemoryChangesNothing) {
  CacheSpec spec = pattern_spec({Pattern::causal(), Pattern::window(9), Pattern::cross()}, "int8");
  for (LayerSpec& layer : spec.layers) layer.rotation = Rotation::none();
  spec.layers[0].rotation = Rotation::with_function(
      [](int, float* keys, int, int, std::int64_t, std::int64_t) { keys[0] += 1.0f; });
  const Rows row(1, 2, 4);
  const std::vector<std::function<Result<void>(Cache&, const Sequence&)>> calls = {
      [](Cache& c, const Sequence&) -> Result<void> {
        if (Result<Sequence> r = c.open(); !r) return r.error();
        return {};
      },
      [](Cache&, const Sequence& s) -> Result<void> {
        if (Result<Forked> r = s.fork(7); !r) return r.error();
        return {};
      },
      [](Cache&, const Sequence& s) -> Result<void> {
        if (Result<Cut> r = s.truncate(7); !r) return r.error();
        return {};
      },
      [](Cache&, const Sequence& s) -> Result<void> {
        if (Result<Cut> r = s.keep_last(5); !r) return r.error();
        return {};
      },
      [](Cache&, const Sequence& s) -> Result<void> {
        if (Result<Cut> r = s.remove(12, 15); !r) return r.error();
        return {};
      },
      [](Cache& c, const Sequence& s) -> Result<void> {
        if (Result<Cut> r = c.copy_prefix(s.id(), c.sequences().back(), 9); !r) return r.error();
        return {};
      },
      [&](Cache&, const Sequence& s) { return s.overwrite(0, 14, row.view(), row.view()); },
      [](Cache& c, const Sequence& s) -> Result<void> {
        Batch batch = batch_of(s, 19, 30);
        batch.cross.push_back({s.id(), 9, 19, 20});
        batch.spans.push_back({s.id(), 20, 25});
        if (Result<Step> r = c.begin(batch); !r) return r.error();
        return {};
      },
      [](Cache& c, const Sequence&) { return c.reserve({.sequences = 2, .tokens = 50}); },
  };
  for (std::size_t which = 0; which < calls.size(); ++which) {
    Cache cache = make(spec);
    const Sequence sequence = cache.open().value();
    Batch batch = batch_of(sequence, 0, 19);
    batch.cross.push_back({sequence.id(), 6, 3, 5});
    stepped(cache, batch).commit().value();
    const Sequence fork = sequence.fork().value();  // every page is shared
    const Snapshot before = snapshot(cache);
    bool done = false;
    for (std::int64_t allowed = 0; !done; ++allowed) {
      ASSERT_EQ(snapshot(cache), before) << "call " << which << " with " << allowed;
      cache.shrink();
      source.allowed = allowed;
      const Result<void> result = calls[which](cache, sequence);
      source.allowed = INT64_MAX;
      done = result.ok();
      if (!done) {
        ASSERT_TRUE(fails(result, ErrorCode::out_of_memory)) << "call " << which;
      }
    }
  }
}

}  // namespace
}  // namespace quire::test
