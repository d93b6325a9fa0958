// Knowing before a step what it takes, and holding it ready.
#include <gtest/gtest.h>

#include <functional>

#include "base/test_memory.h"
#include "cache/fixture.h"

namespace quire::test {
namespace {

// --- plan ----------------------------------------------------------------------------------------

void expect_begin_takes_the_plan(Cache& cache, const Batch& batch) {
  const Snapshot untouched = snapshot(cache);
  const Plan plan = cache.plan(batch).value();
  EXPECT_EQ(snapshot(cache), untouched) << "plan changes nothing";
  const Stats before = cache.stats();
  const Step step = cache.begin(batch).value();
  const Stats after = cache.stats();
  EXPECT_EQ(plan.pages, after.pages_used - before.pages_used);
  EXPECT_EQ(plan.bytes_rows, after.bytes_rows - before.bytes_rows);
  EXPECT_EQ(plan.bytes_sealed, after.bytes_sealed - before.bytes_sealed);
  EXPECT_GE(plan.bytes, plan.bytes_rows + plan.bytes_sealed);
  const std::size_t headers = plan.bytes - plan.bytes_rows - plan.bytes_sealed;
  EXPECT_EQ(headers > 0, plan.pages > 0);
  EXPECT_LE(headers, after.bytes_tables - before.bytes_tables);
}

TEST(Plan, IsWhatBeginTakes) {
  struct Case {
    const char* name;
    std::function<void(CacheSpec&)> spec;
    std::function<void(Cache&, const Sequence&)> history;
  };
  const auto nothing = [](CacheSpec&) {};
  const std::vector<Case> cases = {
      {"new", nothing, [](Cache&, const Sequence&) {}},
      {"inside a page", nothing, [](Cache& c, const Sequence& s) { append(c, s, 0, 6); }},
      {"at a page's end", nothing, [](Cache& c, const Sequence& s) { append(c, s, 0, 8); }},
      {"a shared open page", nothing,
       [](Cache& c, const Sequence& s) {
         append(c, s, 0, 6);
         s.fork().value();
       }},
      {"a cut that kept its rows", nothing,
       [](Cache& c, const Sequence& s) {
         append(c, s, 0, 12);
         s.truncate(9).value();
       }},
      {"a coded cut", [](CacheSpec& spec) { spec.rollback = 0; },
       [](Cache& c, const Sequence& s) {
         append(c, s, 0, 20);
         s.truncate(9).value();
       }},
      {"a cut of lossless pages",
       [](CacheSpec& spec) {
         spec.rollback = 0;
         spec.set_codec("f16", "f16");
       },
       [](Cache& c, const Sequence& s) {
         append(c, s, 0, 20);
         s.truncate(9).value();
       }},
      {"an exact tail rebuilt from lossless pages",
       [](CacheSpec& spec) {
         spec.rollback = 0;
         spec.exact_tail = 6;
         spec.set_codec("f16", "f16");
       },
       [](Cache& c, const Sequence& s) {
         append(c, s, 0, 30);
         s.truncate(12).value();
       }},
      {"an exact head", [](CacheSpec& spec) { spec.exact_head = 5; },
       [](Cache&, const Sequence&) {}},
      {"a hole in the open page", nothing,
       [](Cache& c, const Sequence& s) {
         append(c, s, 0, 7);
         s.remove(4, 5, true).value();
       }},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name);
    CacheSpec spec = pattern_spec({Pattern::causal(), Pattern::window(6)}, "int8");
    test.spec(spec);
    for (const std::int64_t count : {1, 2, 4, 11}) {
      Cache cache = Cache::create(spec).value();
      const Sequence sequence = cache.open().value();
      test.history(cache, sequence);
      expect_begin_takes_the_plan(cache,
                                  batch_of(sequence, sequence.next_position().value(), count));
    }
  }
}

TEST(Plan, CountsCrossEntriesAndSeveralSequences) {
  Cache cache = Cache::create(pattern_spec({Pattern::causal(), Pattern::cross()})).value();
  const Sequence a = filled(cache, 5);
  const Sequence b = cache.open().value();
  Batch batch = batch_of(a, 5, 2).add(b.id(), 0, 9);
  batch.cross.push_back({b.id(), 10, 0, 4});
  expect_begin_takes_the_plan(cache, batch);
}

TEST(Plan, NamesTheLargestGatherAndMask) {
  CacheSpec spec = small_spec(2);
  spec.layers[1].value_dim = 10;
  Cache cache = Cache::create(spec).value();
  const Sequence a = filled(cache, 5);
  const Sequence b = filled(cache, 2);
  const Batch batch = batch_of(a, 5, 2).add(b.id(), 2, 1);
  const Plan plan = cache.plan(batch).value();
  EXPECT_EQ(plan.gather_bytes, 2u * 7 * 2 * 10 * 4) << "[2 sequences][2 heads][7 tokens][10]";
  EXPECT_EQ(plan.mask_bytes, 3u * 7 * 4) << "[3 tokens][7 columns]";
  const Step step = stepped(cache, batch);
  const GatherFormat format{DType::f32, Layout::head_major, false, 1};
  const Gathered size = step.gather_size(1, {a.id(), b.id()}, format).value();
  EXPECT_EQ(static_cast<std::size_t>(size.value_elements) * 4, plan.gather_bytes);
}

TEST(Plan, RefusesWhatBeginRefuses) {
  CacheSpec spec = small_spec();
  spec.max_tokens = 6;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 4);
  EXPECT_TRUE(fails(cache.plan({}), ErrorCode::invalid_argument, {"plan"}));
  EXPECT_TRUE(fails(cache.plan(batch_of(sequence, 3, 1)), ErrorCode::duplicate_position, {"3"}));
  EXPECT_TRUE(fails(cache.plan(batch_of(sequence, 4, 3)), ErrorCode::full, {"6"}));
}

// --- reserve -------------------------------------------------------------------------------------

class ReserveTest : public testing::Test {
 protected:
  TestMemory source;

  Cache make(CacheSpec spec) {
    spec.memory = &source;
    return Cache::create(spec).value();
  }
};

TEST_F(ReserveTest, ABeginOfThatSizeAllocatesNothing) {
  for (const std::string codec : {"f32", "int8"}) {
    for (const std::int64_t tail : {0, 9}) {
      CacheSpec spec =
          pattern_spec({Pattern::causal(), Pattern::window(6), Pattern::cross()}, codec);
      spec.exact_tail = tail;
      spec.rollback = 3;
      Cache cache = make(spec);
      const Sequence a = filled(cache, 37);
      const Sequence b = filled(cache, 6);
      const Sequence c = a.fork().value();  // its open page is shared
      a.truncate(35).value();
      cache.reserve({.sequences = 3, .tokens = 40, .cross_entries = 1, .cross_tokens = 11}).value();
      Batch batch = batch_of(a, 35, 17).add(b.id(), 6, 3).add(c.id(), 37, 20);
      batch.cross.push_back({b.id(), 11, 6, 8});
      batch.spans.push_back({a.id(), 36, 45});
      const std::int64_t calls = source.calls;
      source.allowed = 0;
      Step step = stepped(cache, batch);
      step.commit().value();
      EXPECT_EQ(source.calls, calls);
      source.allowed = INT64_MAX;
      EXPECT_TRUE(b.has_cross().value());
      EXPECT_EQ(c.length().value(), 57);
    }
  }
}

TEST_F(ReserveTest, ASmallerBeginAllocatesNothingEither) {
  Cache cache = make(small_spec(2, "int8"));
  const Sequence sequence = filled(cache, 6);
  cache.reserve({.sequences = 2, .tokens = 64}).value();
  source.allowed = 0;
  append(cache, sequence, 6, 1);
  EXPECT_EQ(sequence.length().value(), 7);
}

TEST_F(ReserveTest, HoldsAlsoWhereAHistoryIsInManyPieces) {
  CacheSpec spec = small_spec(1, "int8");
  spec.page_tokens = 64;
  spec.rollback = 60;
  spec.layers[0].rotation = Rotation::none();
  Cache cache = make(spec);
  const Sequence sequence = filled(cache, 250);
  for (int i = 0; i < 60; ++i) sequence.remove(10 + 2 * i, 11 + 2 * i).value();
  const Sequence fork = sequence.fork().value();
  cache.reserve({.sequences = 1, .tokens = 8}).value();
  source.allowed = 0;
  const Result<Step> step = cache.begin(batch_of(sequence, sequence.next_position().value(), 8));
  source.allowed = INT64_MAX;
  EXPECT_TRUE(succeeds(step));
}

TEST_F(ReserveTest, ADroppedStepGivesBackWhatItDrew) {
  Cache cache = make(small_spec(2, "int8"));
  const Sequence sequence = filled(cache, 6);
  cache.reserve({.sequences = 1, .tokens = 20}).value();
  source.allowed = 0;
  for (int i = 0; i < 3; ++i) {
    Result<Step> step = cache.begin(batch_of(sequence, 6, 20));
    ASSERT_TRUE(succeeds(step)) << i;
    step->drop();
    cache.shrink();
  }
}

TEST_F(ReserveTest, ARefusedBeginDoesNotUseItUp) {
  Cache cache = make(small_spec(2, "int8"));
  const Sequence sequence = filled(cache, 6);
  cache.reserve({.sequences = 1, .tokens = 8}).value();
  source.allowed = 0;
  EXPECT_TRUE(fails(cache.begin(batch_of(sequence, 6, 500)), ErrorCode::out_of_memory));
  cache.shrink();
  EXPECT_TRUE(succeeds(cache.begin(batch_of(sequence, 6, 8))));
}

TEST_F(ReserveTest, ShrinkLeavesIt) {
  Cache cache = make(small_spec(2, "int8"));
  const Sequence sequence = filled(cache, 6);
  cache.shrink();
  const std::size_t before = cache.stats().bytes;
  cache.reserve({.sequences = 1, .tokens = 8}).value();
  EXPECT_GT(cache.stats().bytes, before);
  EXPECT_EQ(cache.shrink(), 0u);
  source.allowed = 0;
  EXPECT_TRUE(succeeds(cache.begin(batch_of(sequence, 6, 8))));
}

TEST_F(ReserveTest, ChangesNothingThatIsSeen) {
  Cache cache = make(small_spec(2, "int8"));
  const Sequence sequence = filled(cache, 6);
  const Snapshot before = snapshot(cache);
  cache.reserve({.sequences = 1, .tokens = 100}).value();
  EXPECT_EQ(snapshot(cache), before);
}

TEST_F(ReserveTest, MoreThanThereIsIsRefusedAndHoldsNothing) {
  CacheSpec spec = small_spec(2, "int8");
  spec.memory_limit_bytes = 64 * KiB;
  Cache cache = make(spec);
  const Sequence sequence = filled(cache, 6);
  cache.shrink();
  const std::size_t before = cache.stats().bytes;
  EXPECT_TRUE(fails(cache.reserve({.sequences = 1, .tokens = 100000}), ErrorCode::over_limit,
                    {"reserve", std::to_string(64 * KiB)}));
  cache.shrink();
  EXPECT_EQ(cache.stats().bytes, before);
  append(cache, sequence, 6, 20);
}

TEST_F(ReserveTest, ARefusedOneLeavesTheOneBefore) {
  CacheSpec spec = small_spec(2, "int8");
  spec.memory_limit_bytes = 64 * KiB;
  Cache cache = make(spec);
  const Sequence sequence = filled(cache, 6);
  cache.reserve({.sequences = 1, .tokens = 8}).value();
  ASSERT_FALSE(cache.reserve({.sequences = 1, .tokens = 100000}).ok());
  cache.shrink();
  source.allowed = 0;
  EXPECT_TRUE(succeeds(cache.begin(batch_of(sequence, 6, 8))));
}

TEST_F(ReserveTest, SizesAreChecked) {
  Cache cache = make(small_spec());
  for (const BatchSize& size :
       {BatchSize{0, 1, 0, 0}, BatchSize{2, 1, 0, 0}, BatchSize{1, -1, 0, 0}, BatchSize{1, 1, 2, 2},
        BatchSize{1, 1, 1, 0}, BatchSize{1, 1, -1, 0}, BatchSize{1, INT64_MAX, 0, 0}}) {
    EXPECT_TRUE(fails(cache.reserve(size), ErrorCode::invalid_argument,
                      {"reserve", std::to_string(size.tokens) + " tokens"}));
  }
}

}  // namespace
}  // namespace quire::test
