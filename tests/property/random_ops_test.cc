// Random operation sequences against the naive model: after every call, everything that can be seen
// of the cache is what a list of tokens would give.
//
// 10,000 sequences in all, in parts that run side by side. QUIRE_TEST_SEED repeats a run,
// QUIRE_TEST_SEQUENCES sets how many there are in all. For crashes: QUIRE_TEST_ISOLATE runs each in
// a process of its own, QUIRE_TEST_TRACE prints calls as they are made.
#include <gtest/gtest.h>

#include "base/seed.h"
#include "property/cases.h"

namespace quire::test {
namespace {

constexpr std::int64_t kSequences = 10000;
constexpr std::int64_t kParts = 8;

class RandomOperations : public testing::TestWithParam<std::int64_t> {};

TEST_P(RandomOperations, AgreeWithTheNaiveModel) {
  const std::uint64_t seed = announce_seed() + static_cast<std::uint64_t>(GetParam());
  EXPECT_EQ(run_cases(seed, scaled_count(kSequences / kParts), {}), "");
}

INSTANTIATE_TEST_SUITE_P(Part, RandomOperations, testing::Range(std::int64_t{0}, kParts));

}  // namespace
}  // namespace quire::test
