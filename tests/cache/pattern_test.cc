// What queries see and what commit keeps, by pattern.
#include <gtest/gtest.h>

#include "base/test_memory.h"
#include "cache/fixture.h"

namespace quire::test {
namespace {

using Seens = std::vector<std::vector<std::int64_t>>;

CacheSpec window_spec(Pattern pattern, std::int64_t rollback) {
  CacheSpec spec = pattern_spec({pattern});
  spec.rollback = rollback;
  return spec;
}

// --- what is seen --------------------------------------------------------------------------------

TEST(Pattern, CausalSeesAllUpToItself) {
  Cache cache = Cache::create(pattern_spec({Pattern::causal()})).value();
  const Sequence sequence = filled(cache, 3);
  const Batch batch = batch_of(sequence, 3, 2);
  const Step step = stepped(cache, batch);
  EXPECT_EQ(seen_positions(step, 0, batch), (Seens{range(0, 4), range(0, 5)}));
}

TEST(Pattern, AWindowOfWShowsWTokensWithTheQueryItself) {
  for (const std::int64_t w : {1, 2, 5}) {
    Cache cache = Cache::create(window_spec(Pattern::window(w), 8)).value();
    const Sequence sequence = filled(cache, 10);
    const Batch batch = batch_of(sequence, 10, 3);
    const Step step = stepped(cache, batch);
    EXPECT_EQ(seen_positions(step, 0, batch),
              (Seens{range(11 - w, 11), range(12 - w, 12), range(13 - w, 13)}));
  }
}

TEST(Pattern, AWindowCountsPositionsNotTokens) {
  Cache cache = Cache::create(window_spec(Pattern::window(4), 8)).value();
  const Sequence sequence = cache.open().value();
  append(cache, sequence, 0, 3);
  const Batch batch = batch_of(sequence, 5, 1);
  const Step step = stepped(cache, batch);
  EXPECT_EQ(seen_positions(step, 0, batch), (Seens{{2, 5}})) << "positions 2 to 5";
}

TEST(Pattern, AChunkShowsItsOwnPositionsOnly) {
  Cache cache = Cache::create(pattern_spec({Pattern::chunked(4)})).value();
  const Sequence sequence = filled(cache, 6);
  const Batch batch = batch_of(sequence, 6, 4);
  const Step step = stepped(cache, batch);
  EXPECT_EQ(seen_positions(step, 0, batch),
            (Seens{range(4, 7), range(4, 8), range(8, 9), range(8, 10)}));
}

TEST(Pattern, SequencesDoNotSeeEachOther) {
  Cache cache = Cache::create(pattern_spec({Pattern::causal()})).value();
  const Sequence a = filled(cache, 2);
  const Sequence b = filled(cache, 5);
  Batch batch;
  batch.add(b.id(), 5, 1).add(a.id(), 2, 1).add(b.id(), 6, 1);
  const Step step = stepped(cache, batch);
  EXPECT_EQ(seen_positions(step, 0, batch), (Seens{range(0, 6), range(0, 3), range(0, 7)}));
}

TEST(Pattern, LayersOfOneCacheMayDiffer) {
  CacheSpec spec = pattern_spec({Pattern::causal(), Pattern::window(3), Pattern::chunked(5)});
  spec.rollback = 0;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  append_singly(cache, sequence, 0, 12);
  EXPECT_EQ(sequence.length(0).value(), 12);
  EXPECT_EQ(sequence.length(1).value(), 3);
  EXPECT_EQ(sequence.length(2).value(), 12) << "chunked layers evict nothing";
  EXPECT_EQ(sequence.length().value(), 12) << "the layers that hold most";
  EXPECT_EQ(sequence.first_position(1).value(), 9);
  EXPECT_TRUE(holds(cache, sequence, 1, range(9, 12)));
  const Batch batch = batch_of(sequence, 12, 1);
  const Step step = stepped(cache, batch);
  EXPECT_EQ(seen_positions(step, 0, batch), Seens{range(0, 13)});
  EXPECT_EQ(seen_positions(step, 1, batch), Seens{range(10, 13)});
  EXPECT_EQ(seen_positions(step, 2, batch), Seens{range(10, 13)});
}

// --- what is kept --------------------------------------------------------------------------------

TEST(Retention, KeepsMLessOneAndRollbackBelowTheFirstTokenOfAStep) {
  for (const auto& [w, m, rollback] :
       {std::tuple(1, 1, 0), std::tuple(3, 3, 0), std::tuple(3, 3, 2), std::tuple(3, 7, 0),
        std::tuple(3, 7, 4), std::tuple(9, 9, 8)}) {
    for (const std::int64_t per_step : {1, 3, 8}) {
      Cache cache = Cache::create(window_spec(Pattern::window(w, m), rollback)).value();
      const Sequence sequence = cache.open().value();
      for (std::int64_t first = 0; first < 48; first += per_step) {
        append(cache, sequence, first, per_step);
        const std::int64_t kept_from = std::max<std::int64_t>(0, first - (m - 1 + rollback));
        ASSERT_TRUE(holds(cache, sequence, 0, range(kept_from, first + per_step)))
            << "W " << w << " M " << m << " rollback " << rollback;
        ASSERT_EQ(sequence.length().value(), first + per_step - kept_from);
      }
    }
  }
}

TEST(Retention, ASequenceThatTookNoPartKeepsItsLastTokens) {
  Cache cache = Cache::create(window_spec(Pattern::window(3, 5), 2)).value();
  const Sequence idle = cache.open().value();
  append_singly(cache, idle, 0, 20);
  EXPECT_EQ(positions_of(idle), range(13, 20)) << "5 - 1 + 2 below the last step's token";
  const Sequence other = filled(cache, 1);
  EXPECT_EQ(positions_of(idle), range(14, 20)) << "its last 5 - 1 + 2 tokens";
  append(cache, other, 1, 1);
  EXPECT_EQ(positions_of(idle), range(14, 20));
  append(cache, idle, 20, 1);
  EXPECT_EQ(positions_of(idle), range(14, 21));
}

TEST(Retention, AForkOrACopyThatTakesNoPartIsTrimmedToo) {
  Cache cache = Cache::create(window_spec(Pattern::window(3, 5), 2)).value();
  const Sequence first = cache.open().value();
  append(cache, first, 0, 20);  // one step keeps all of its own tokens
  const Sequence fork = first.fork().value();
  const Sequence copy = cache.open().value();
  cache.copy_prefix(first.id(), copy.id(), 18).value();
  EXPECT_EQ(positions_of(fork), range(0, 20));
  filled(cache, 1);
  EXPECT_EQ(positions_of(first), range(14, 20));
  EXPECT_EQ(positions_of(fork), range(14, 20));
  EXPECT_EQ(positions_of(copy), range(12, 18));
}

TEST(Retention, ASequenceWithAnOpenStepIsLeftAlone) {
  Cache cache = Cache::create(window_spec(Pattern::window(3), 0)).value();
  const Sequence busy = cache.open().value();
  append(cache, busy, 0, 10);
  Step step = stepped(cache, batch_of(busy, 10, 2));
  filled(cache, 1);
  EXPECT_EQ(positions_of(busy), range(0, 10));
  step.drop();
  filled(cache, 1);
  EXPECT_EQ(positions_of(busy), range(8, 10));
}

TEST(Retention, ADroppedOrRefusedStepEvictsNothing) {
  TestMemory source;
  {
    CacheSpec spec = window_spec(Pattern::window(3), 0);
    spec.memory = &source;
    Cache cache = Cache::create(spec).value();
    const Sequence sequence = cache.open().value();
    append(cache, sequence, 0, 10);
    const Snapshot before = snapshot(cache);
    { const Step step = stepped(cache, batch_of(sequence, 10, 5)); }
    EXPECT_EQ(snapshot(cache), before);
    cache.shrink();
    source.allowed = 0;
    EXPECT_TRUE(fails(cache.begin(batch_of(sequence, 10, 5)), ErrorCode::out_of_memory));
    source.allowed = INT64_MAX;
    EXPECT_EQ(snapshot(cache), before);
  }
}

TEST(Retention, PagesGoBackWhenNoRunUsesThem) {
  CacheSpec spec = window_spec(Pattern::window(4), 0);
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  append_singly(cache, sequence, 0, 100);
  EXPECT_LE(cache.stats().pages_used, 2) << "four tokens lie in at most two pages of four";
  EXPECT_EQ(sequence.next_position().value(), 100);
}

// What the next step evicts makes room for its tokens.
TEST(Retention, AWindowIsFullOnlyWhenItsNextStepWouldNotFit) {
  CacheSpec spec = window_spec(Pattern::window(4), 0);
  spec.max_tokens = 6;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  append_singly(cache, sequence, 0, 50);
  EXPECT_EQ(sequence.length().value(), 4);
  EXPECT_EQ(sequence.remaining().value(), 3) << "3 of the 4 stay when the next step commits";
  EXPECT_FALSE(sequence.is_full().value());
  EXPECT_TRUE(fails(cache.begin(batch_of(sequence, 50, 4)), ErrorCode::full, {"4 tokens", "6"}));
  append(cache, sequence, 50, 3);
  EXPECT_EQ(sequence.length().value(), 6);
  EXPECT_EQ(sequence.remaining().value(), 3);
}

// A page is sealed from all its rows, also those that a window no longer shows.
TEST(Retention, APageIsSealedWithTheTokensThatWereEvictedFromIt) {
  CacheSpec spec = pattern_spec({Pattern::window(2)}, "int8");
  spec.rollback = 0;
  spec.page_tokens = 8;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  append_singly(cache, sequence, 0, 9);
  CacheSpec causal = spec;
  causal.layers[0].pattern = Pattern::causal();
  Cache other = Cache::create(causal).value();
  const Sequence all = filled(other, 9);
  ASSERT_EQ(positions_of(sequence, 0), range(7, 9));
  const std::vector<float> tail = read_all(sequence, 0, Side::key);
  const std::vector<float> full = read_all(all, 0, Side::key);
  EXPECT_TRUE(
      std::equal(tail.begin(), tail.end(), full.end() - static_cast<std::ptrdiff_t>(tail.size())));
}

// --- going on where something is gone ------------------------------------------------------------

TEST(Resume, OfAWindowNeedsItsWholeWindow) {
  CacheSpec spec = window_spec(Pattern::window(4, 6), 1);
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  append_singly(cache, sequence, 0, 20);  // 6 - 1 + 1 below 19: held from 13 on
  ASSERT_EQ(sequence.first_position().value(), 13);
  for (std::int64_t at = 0; at <= 20; ++at) {
    const bool whole = at - 3 >= 13 || at == 0;
    EXPECT_EQ(sequence.can_resume(at).value() != Resume::no, whole) << at;
  }
}

TEST(Resume, ABeginThatWouldNeedAnEvictedPositionIsRefused) {
  Cache cache = Cache::create(window_spec(Pattern::window(4), 2)).value();
  const Sequence sequence = cache.open().value();
  append_singly(cache, sequence, 0, 20);  // held from 14 on
  ASSERT_EQ(sequence.first_position().value(), 14);
  sequence.truncate(16).value();
  const Snapshot before = snapshot(cache);
  EXPECT_TRUE(fails(cache.begin(batch_of(sequence, 16, 1)), ErrorCode::not_resumable,
                    {"position 16", "position 13", "from 14"}));
  EXPECT_TRUE(fails(cache.plan(batch_of(sequence, 16, 1)), ErrorCode::not_resumable));
  EXPECT_EQ(snapshot(cache), before);
  EXPECT_TRUE(succeeds(cache.begin(batch_of(sequence, 17, 1)))) << "its window is whole";
}

TEST(Resume, UndoingRollbackTokensIsAlwaysPossible) {
  for (const std::int64_t rollback : {1, 3, 8}) {
    CacheSpec spec = pattern_spec({Pattern::window(4)}, "int8");
    spec.rollback = rollback;
    Cache cache = Cache::create(spec).value();
    const Sequence sequence = cache.open().value();
    append_singly(cache, sequence, 0, 30);
    EXPECT_EQ(sequence.can_resume(30 - rollback).value(), Resume::exact) << rollback;
    sequence.truncate(30 - rollback).value();
    append(cache, sequence, 30 - rollback, 5);
    EXPECT_TRUE(sequence.is_exact().value());
  }
}

TEST(Resume, IsExactAgainOnceAWindowHasLetGoOfACodedCut) {
  CacheSpec spec = pattern_spec({Pattern::window(4), Pattern::causal()}, "int8");
  spec.layers[1].codec = {"f32", "f32"};
  spec.page_tokens = 4;
  spec.exact_tail = 0;
  spec.rollback = 0;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  append_singly(cache, sequence, 0, 9);  // the window shows 5 to 8
  sequence.truncate(2).value();          // in page 0, which has no rows any more
  append(cache, sequence, 14, 1);        // the window shows this one alone
  EXPECT_EQ(sequence.can_resume(15).value(), Resume::exact);
  EXPECT_FALSE(sequence.is_exact().value()) << "what was computed before is as it was";
}

TEST(Resume, ARemovalThatBringsEvictedPositionsIntoTheWindowIsNotAnsweredShort) {
  CacheSpec spec = window_spec(Pattern::window(8), 0);
  spec.layers[0].rotation = Rotation::none();
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  append_singly(cache, sequence, 0, 20);  // held: 12 to 19
  sequence.remove(14, 18).value();        // 12 to 15
  ASSERT_EQ(positions_of(sequence), range(12, 16));
  EXPECT_EQ(sequence.can_resume(16).value(), Resume::no);
  EXPECT_TRUE(fails(cache.begin(batch_of(sequence, 16, 1)), ErrorCode::not_resumable,
                    {"position 9", "from 12"}));
}

TEST(Resume, KeepLastRaisesWhatAWindowOrChunkNeeds) {
  CacheSpec spec = pattern_spec({Pattern::window(6), Pattern::chunked(8)});
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 16);
  sequence.keep_last(4).value();
  EXPECT_TRUE(fails(cache.begin(batch_of(sequence, 16, 1)), ErrorCode::not_resumable,
                    {"position 11", "from 12"}))
      << "the window of 16 begins at 11";
  EXPECT_TRUE(succeeds(cache.begin(batch_of(sequence, 17, 1))));
  sequence.keep_last(0).value();
  EXPECT_TRUE(succeeds(cache.begin(batch_of(sequence, 3, 1)))) << "as new";
}

TEST(Resume, AChunkNeedsItsStart) {
  Cache cache = Cache::create(pattern_spec({Pattern::chunked(8)})).value();
  const Sequence sequence = filled(cache, 14);
  sequence.keep_last(3).value();  // 11, 12, 13
  EXPECT_EQ(sequence.can_resume(14).value(), Resume::no);
  EXPECT_TRUE(fails(cache.begin(batch_of(sequence, 14, 1)), ErrorCode::not_resumable,
                    {"position 8", "from 11"}));
  EXPECT_TRUE(succeeds(cache.begin(batch_of(sequence, 16, 1)))) << "a new chunk";
}

TEST(Resume, OfALayerWithoutBoundsNeedsNothing) {
  Cache cache = Cache::create(pattern_spec({Pattern::causal()})).value();
  const Sequence sequence = filled(cache, 10);
  sequence.keep_last(2).value();
  EXPECT_TRUE(succeeds(cache.begin(batch_of(sequence, 10, 1))));
}

// --- exceptions ----------------------------------------------------------------------------------

TEST(Exceptions, SeeEveryLaterTokenOfTheirSequence) {
  Cache cache = Cache::create(pattern_spec({Pattern::causal(), Pattern::window(3)})).value();
  const Sequence a = filled(cache, 2);
  const Sequence b = cache.open().value();
  Batch batch;
  batch.add(a.id(), 2, 2).add(b.id(), 0, 2).add(a.id(), 4, 1);
  Step step = stepped(cache, batch);
  step.set_exceptions({0, 2}).value();
  EXPECT_EQ(seen_positions(step, 0, batch),
            (Seens{range(0, 5), range(0, 4), range(0, 2), range(0, 2), range(0, 5)}));
  EXPECT_EQ(seen_positions(step, 1, batch),
            (Seens{range(0, 5), range(1, 4), range(0, 2), range(0, 2), range(2, 5)}))
      << "the lower bound of a window stays";
}

TEST(Exceptions, MayChangeBetweenLayers) {
  Cache cache = Cache::create(small_spec(2)).value();
  const Sequence sequence = cache.open().value();
  const Batch batch = batch_of(sequence, 0, 3);
  Step step = stepped(cache, batch);
  const Rows q = known_queries(3, 2, 4);
  step.set_exceptions({0}).value();
  EXPECT_EQ(seen_positions(step, 0, batch), (Seens{range(0, 3), range(0, 2), range(0, 3)}));
  const Rows with = attend(step, cache.spec(), 0, q);
  step.set_exceptions({1}).value();
  EXPECT_EQ(seen_positions(step, 0, batch), (Seens{range(0, 1), range(0, 3), range(0, 3)}));
  step.set_exceptions({}).value();
  EXPECT_EQ(seen_positions(step, 1, batch), (Seens{range(0, 1), range(0, 2), range(0, 3)}));
  const Rows without = attend(step, cache.spec(), 0, q);
  EXPECT_NE(with.data, without.data);
  EXPECT_TRUE(std::equal(with.at(1, 0), with.at(1, 0) + 16, without.at(1, 0)))
      << "the others see what they saw";
}

TEST(Exceptions, EndWithTheStep) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence sequence = cache.open().value();
  Step step = stepped(cache, batch_of(sequence, 0, 3));
  step.set_exceptions({0, 1, 2}).value();
  step.commit().value();
  const Batch batch = batch_of(sequence, 3, 2);
  const Step next = stepped(cache, batch);
  EXPECT_EQ(seen_positions(next, 0, batch), (Seens{range(0, 4), range(0, 5)}));
}

TEST(Exceptions, AreTokensOfTheBatch) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence sequence = cache.open().value();
  const Batch batch = batch_of(sequence, 0, 3);
  Step step = stepped(cache, batch);
  step.set_exceptions({0}).value();
  EXPECT_TRUE(fails(step.set_exceptions({1, 3}), ErrorCode::out_of_range, {"token 3", "3"}));
  EXPECT_TRUE(fails(step.set_exceptions({-1}), ErrorCode::out_of_range, {"token -1"}));
  EXPECT_EQ(seen_positions(step, 0, batch), (Seens{range(0, 3), range(0, 2), range(0, 3)}))
      << "a refused list changes nothing";
}

}  // namespace
}  // namespace quire::test
