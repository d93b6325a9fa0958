// Copies of a whole cache.
#include <gtest/gtest.h>

#include "base/test_memory.h"
#include "cache/fixture.h"

namespace quire::test {
namespace {

TEST(Clone, HoldsTheSameSequencesUnderTheSameIds) {
  Cache cache = Cache::create(small_spec(2)).value();
  const Sequence a = filled(cache, 10);
  const Sequence b = filled(cache, 3, 1);
  Cache clone = cache.clone().value();
  EXPECT_EQ(clone.sequences(), (std::vector<SequenceId>{a.id(), b.id()}));
  EXPECT_TRUE(holds(clone, clone.find(a.id()).value(), 1, range(0, 10)));
  EXPECT_TRUE(holds(clone, clone.find(b.id()).value(), 0, range(0, 3), 1));
  EXPECT_EQ(clone.spec().page_tokens, 4);
}

TEST(Clone, SharesPages) {
  Cache cache = Cache::create(small_spec(2)).value();
  filled(cache, 40);
  const Stats before = cache.stats();
  const Cache clone = cache.clone().value();
  const Stats after = cache.stats();
  EXPECT_EQ(after.pages_used, before.pages_used);
  EXPECT_EQ(after.bytes_rows, before.bytes_rows);
  EXPECT_EQ(after.bytes_sealed, before.bytes_sealed);
  EXPECT_EQ(clone.stats().tokens, 40);
}

TEST(Clone, GoesItsOwnWay) {
  Cache cache = Cache::create(small_spec(2)).value();
  const Sequence original = filled(cache, 10);
  Cache clone = cache.clone().value();
  const Sequence copy = clone.find(original.id()).value();
  append(cache, original, 10, 3);
  copy.truncate(5).value();
  append(clone, copy, 5, 1);
  EXPECT_TRUE(holds(cache, original, 0, range(0, 13)));
  EXPECT_TRUE(holds(clone, copy, 0, range(0, 6)));
  const SequenceId made = cache.open().value().id();
  EXPECT_NE(clone.open().value().id(), made) << "ids of clones do not collide";
  original.close().value();
  EXPECT_TRUE(holds(clone, copy, 1, range(0, 6)));
}

TEST(Clone, TakesTheCommittedStateOfOpenSteps) {
  Cache cache = Cache::create(small_spec(2)).value();
  const Sequence sequence = filled(cache, 6);
  Step step = stepped(cache, batch_of(sequence, 6, 4));
  Cache clone = cache.clone().value();
  const Sequence copy = clone.find(sequence.id()).value();
  EXPECT_EQ(clone.stats().open_steps, 0);
  append(clone, copy, 6, 1, 3);
  step.commit().value();
  EXPECT_TRUE(holds(cache, sequence, 0, range(0, 10)));
  EXPECT_EQ(positions_of(copy), range(0, 7));
}

TEST(Clone, OutlivesTheOriginal) {
  std::optional<Cache> clone;
  SequenceId id{};
  {
    Cache cache = Cache::create(small_spec(2)).value();
    id = filled(cache, 10).id();
    clone = cache.clone().value();
  }
  const Sequence sequence = clone->find(id).value();
  EXPECT_TRUE(holds(*clone, sequence, 0, range(0, 10)));
  append(*clone, sequence, 10, 5);
}

TEST(Clone, SharesTheByteLimit) {
  CacheSpec spec = small_spec();
  spec.memory_limit_bytes = 20000;
  Cache cache = Cache::create(spec).value();
  Cache clone = cache.clone().value();
  const Sequence a = cache.open().value();
  const Sequence b = clone.open().value();
  bool refused = false;
  for (std::int64_t p = 0; p < 400 && !refused; p += 4) {
    for (const auto& [owner, sequence] : {std::pair(&cache, &a), std::pair(&clone, &b)}) {
      const Batch batch = batch_of(*sequence, p, 4);
      Result<Step> step = owner->begin(batch);
      if (!step.ok()) {
        EXPECT_TRUE(fails(step, ErrorCode::over_limit, {"20000"}));
        refused = true;
        break;
      }
      put_all(*step, spec, batch);
      step->commit().value();
    }
    EXPECT_LE(cache.stats().bytes, 20000u);
    EXPECT_EQ(cache.stats().bytes, clone.stats().bytes);
  }
  EXPECT_TRUE(refused);
}

TEST(Clone, ThatFindsNoMemoryLeavesNothing) {
  TestMemory source;
  {
    CacheSpec spec = small_spec(2);
    spec.memory = &source;
    Cache cache = Cache::create(spec).value();
    for (int i = 0; i < 5; ++i) filled(cache, 6);
    const Snapshot before = snapshot(cache);
    for (std::int64_t allowed = 0;; ++allowed) {
      cache.shrink();
      source.allowed = allowed;
      const bool done = cache.clone().ok();
      source.allowed = INT64_MAX;
      EXPECT_EQ(snapshot(cache), before);
      if (done) break;
    }
  }
}

// --- assignment ----------------------------------------------------------------------------------

TEST(Assign, MakesACacheACloneOfAnother) {
  Cache source = Cache::create(small_spec(2)).value();
  const Sequence sequence = filled(source, 10);
  CacheSpec other = small_spec(1);
  other.page_tokens = 16;
  Cache target = Cache::create(other).value();
  const Sequence old = filled(target, 3);
  target.assign(source).value();
  EXPECT_EQ(target.spec().page_tokens, 4);
  EXPECT_TRUE(holds(target, target.find(sequence.id()).value(), 1, range(0, 10)));
  EXPECT_TRUE(fails(old.length(), ErrorCode::unknown_sequence)) << "handles of before are over";
  EXPECT_TRUE(holds(source, sequence, 0, range(0, 10)));
}

TEST(Assign, OfItselfKeepsItsContents) {
  Cache cache = Cache::create(small_spec(2)).value();
  const SequenceId id = filled(cache, 10).id();
  cache.assign(cache).value();
  EXPECT_TRUE(holds(cache, cache.find(id).value(), 0, range(0, 10)));
}

TEST(Assign, IsRefusedWhileAStepIsOpen) {
  Cache source = Cache::create(small_spec(2)).value();
  Cache target = Cache::create(small_spec(2)).value();
  const Sequence sequence = filled(target, 3);
  Step step = stepped(target, batch_of(sequence, 3, 1));
  EXPECT_TRUE(fails(target.assign(source), ErrorCode::busy, {"1"}));
  step.commit().value();
  EXPECT_EQ(sequence.length().value(), 4);
  EXPECT_TRUE(succeeds(target.assign(source)));
  EXPECT_TRUE(target.sequences().empty());
}

TEST(Assign, OfAClosedCacheIsRefused) {
  Cache source = Cache::create(small_spec(2)).value();
  Cache target = Cache::create(small_spec(2)).value();
  const Sequence sequence = filled(target, 3);
  source.close();
  EXPECT_TRUE(fails(target.assign(source), ErrorCode::unknown_sequence));
  EXPECT_EQ(sequence.length().value(), 3);
}

TEST(Cache, MovedItKeepsItsSequences) {
  Cache first = Cache::create(small_spec(2)).value();
  const Sequence sequence = filled(first, 10);
  Cache second = std::move(first);
  EXPECT_TRUE(holds(second, sequence, 0, range(0, 10)));
  Cache third = Cache::create(small_spec(1)).value();
  const Sequence other = filled(third, 2);
  third = std::move(second);
  EXPECT_TRUE(fails(other.length(), ErrorCode::unknown_sequence)) << "the one before is closed";
  EXPECT_TRUE(holds(third, sequence, 0, range(0, 10)));
}

}  // namespace
}  // namespace quire::test
