// The same random operations on memory that fails: every N-th allocation, all of them for a while,
// or whatever does not fit under a byte limit. A call that fails leaves everything as it was, the
// limit is never passed, and nothing is left behind.
#include <gtest/gtest.h>

#include "base/seed.h"
#include "property/cases.h"
#include "property/random_spec.h"

namespace quire::test {
namespace {

constexpr std::int64_t kParts = 4;

class FailingMemory : public testing::TestWithParam<std::int64_t> {
 protected:
  // Runs a part of `full` cases; memory must really have failed in some of them.
  static void run(std::uint64_t salt, std::int64_t full, const DriverOptions& options) {
    const std::uint64_t seed = announce_seed() + salt + static_cast<std::uint64_t>(GetParam());
    const std::int64_t count = scaled_count(full / kParts);
    std::int64_t refused = 0;
    ASSERT_EQ(run_cases(seed, count, options, &refused), "");
    if (count >= 50) {
      EXPECT_GT(refused, count) << "memory hardly ever failed";
    }
  }
};

TEST_P(FailingMemory, LosesNothing) { run(100, 4000, {.faults = true}); }

TEST_P(FailingMemory, LimitIsNeverExceeded) { run(200, 4000, {.random_limit = true}); }

TEST_P(FailingMemory, LosesNothingUnderALimit) {
  run(300, 2000, {.faults = true, .random_limit = true});
}

INSTANTIATE_TEST_SUITE_P(Part, FailingMemory, testing::Range(std::int64_t{0}, kParts));

// Reserved for a size, any batch of that size begins when the source has nothing left, whatever
// happened to the sequences in between.
TEST(Reserve, BatchesOfThatSizeNeedNoMemory) {
  Random random(announce_seed() + 400);
  for (std::int64_t i = 0; i < scaled_count(1500); ++i) {
    TestMemory memory;
    CacheSpec spec = random_spec(random);
    spec.memory = &memory;
    spec.max_tokens.reset();
    spec.max_batch.reset();
    spec.max_sequences.reset();
    Cache cache = Cache::create(spec).value();
    const NaiveSpec shape(spec);
    std::vector<Sequence> sequences;
    for (int s = 0; s < 4; ++s) sequences.push_back(cache.open().value());
    // Histories of some length, cut here and there so that runs are many.
    for (int round = 0; round < 6; ++round) {
      Batch batch;
      for (const Sequence& sequence : sequences) {
        batch.add(sequence.id(), sequence.next_position().value(), random.integer(1, 30));
      }
      Result<Step> step = cache.begin(batch);
      if (!step) continue;
      const std::vector<float> zeros(batch.tokens.size() * 2 * 8);
      for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
        const LayerSpec& l = spec.layers[layer];
        if (!shape.stores(layer) || shape.is_cross_layer(layer)) continue;
        const auto view = [&](int dim) {
          return TensorView::dense(zeros.data(), DType::f32, step->tokens(), l.kv_heads, dim);
        };
        const int index = static_cast<int>(layer);
        const Result<void> put = l.mla ? step->put(index, view(l.key_dim))
                                       : step->put(index, view(l.key_dim), view(l.value_dim));
        ASSERT_TRUE(put.ok()) << put.error().text;
      }
      ASSERT_TRUE(step->commit().ok());
      for (const Sequence& sequence : sequences) {
        for (int cuts = random.number(0, 8); cuts > 0; --cuts) {
          const std::int64_t at_position = random.integer(0, sequence.next_position().value());
          ASSERT_TRUE(sequence.remove(at_position, at_position + 1, true).ok());
        }
        if (random.one_in(4)) {
          ASSERT_TRUE(sequence.truncate(random.integer(0, sequence.next_position().value())).ok());
        }
      }
    }
    BatchSize size;
    size.sequences = random.integer(1, 4);
    size.tokens = size.sequences + random.integer(0, 60);
    const bool cross = shape.has_cross_layers() && random.one_in(2);
    if (cross) {
      size.cross_entries = random.integer(1, size.sequences);
      size.cross_tokens = size.cross_entries + random.integer(0, 30);
    }
    ASSERT_TRUE(cache.reserve(size).ok());
    if (random.one_in(2)) sequences.push_back(sequences.front().fork().value());
    if (random.one_in(2)) {
      ASSERT_TRUE(sequences.back().keep_last(random.integer(1, 20)).ok());
    }
    memory.fail_all = true;
    random.shuffle(sequences);
    Batch batch;
    std::int64_t tokens = size.tokens;
    std::int64_t entries = size.cross_entries;
    std::int64_t cross_tokens = size.cross_tokens;
    for (std::int64_t s = 0; s < size.sequences; ++s) {
      const Sequence& sequence = sequences[at(s)];
      const bool last = s + 1 == size.sequences;
      const std::int64_t count =
          last ? tokens : random.integer(1, tokens - (size.sequences - s - 1));
      const std::int64_t first = sequence.next_position().value() + random.integer(0, 1);
      for (std::int64_t t = 0; t < count; ++t) {
        batch.add(sequence.id(), first + t, 1);
        if (random.one_in(3)) batch.spans.push_back({sequence.id(), first + t, first + t + 1});
      }
      tokens -= count;
      if (entries == 0) continue;
      const std::int64_t length = entries == 1 ? cross_tokens : 1;
      batch.cross.push_back({sequence.id(), length, first, first + 1});
      cross_tokens -= length;
      --entries;
    }
    const std::uint64_t failures = memory.failures;
    const Result<Step> step = cache.begin(batch);
    if (step.code() == ErrorCode::not_resumable) continue;
    ASSERT_TRUE(step.ok()) << step.error().text << "\n"
                           << describe(spec) << "\n"
                           << size.sequences << " sequences, " << size.tokens << " tokens";
    EXPECT_EQ(memory.failures, failures) << "begin asked for memory after reserve";
  }
}

}  // namespace
}  // namespace quire::test
