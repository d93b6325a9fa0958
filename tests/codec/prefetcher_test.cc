#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

#include "base/seed.h"

namespace quire {
namespace {

std::vector<const std::byte*> asked;
void prefetch(const std::byte* at) { asked.push_back(at); }

}  // namespace
}  // namespace quire

#include "codec/prefetcher.h"

namespace quire {
namespace {

// The lines that a loop of `steps` asked for, as often as it did.
std::vector<std::ptrdiff_t> lines_asked(const Ahead& ahead, int steps, const std::byte* origin) {
  asked.clear();
  Prefetcher prefetcher(ahead, steps);
  for (int step = 0; step < steps; ++step) prefetcher.step();
  std::vector<std::ptrdiff_t> lines;
  for (const std::byte* at : asked) lines.push_back((at - origin) / 64);
  return lines;
}

TEST(Prefetcher, LeavesNoLineOutAndKeepsTheirOrder) {
  std::mt19937_64 random(test::announce_seed());
  alignas(64) static std::byte memory[64 * 1024];
  for (int round = 0; round < 2000; ++round) {
    const int steps = std::uniform_int_distribution(1, 600)(random);
    const auto most = std::min<std::size_t>(static_cast<std::size_t>(steps) * 5 * 64, 48 * 1024);
    const std::size_t bytes = std::uniform_int_distribution<std::size_t>(1, most)(random);
    const std::size_t at = std::uniform_int_distribution<std::size_t>(0, 255)(random);
    // Bytes that begin within a line may need one line more than five a step.
    const std::size_t first = at / 64;
    const std::size_t last = (at + bytes - 1) / 64;
    if (last - first + 1 > static_cast<std::size_t>(steps) * 5) continue;
    const std::vector<std::ptrdiff_t> lines = lines_asked({memory + at, bytes}, steps, memory);
    ASSERT_TRUE(std::is_sorted(lines.begin(), lines.end()));
    for (std::size_t line = first; line <= last; ++line) {
      ASSERT_TRUE(std::binary_search(lines.begin(), lines.end(), static_cast<std::ptrdiff_t>(line)))
          << "line " << line << " of " << first << " to " << last << ", " << steps << " steps";
    }
    if (last - first + 1 >= static_cast<std::size_t>(steps)) {
      ASSERT_EQ(lines.size(), last - first + 1) << "none twice";
    }
  }
}

TEST(Prefetcher, AsksInEveryPartOfTheLoop) {
  alignas(64) static std::byte memory[4 * 1024];
  for (const int steps : {16, 32, 64, 128, 512}) {
    asked.clear();
    Prefetcher prefetcher({memory, sizeof memory}, steps);
    for (int step = 0; step < steps / 2; ++step) prefetcher.step();
    const std::size_t half = asked.size();
    for (int step = steps / 2; step < steps; ++step) prefetcher.step();
    EXPECT_LE(half, asked.size() - half + 1) << steps;
    EXPECT_GE(half + 1, asked.size() - half) << steps;
  }
}

TEST(Prefetcher, AsksForNothingWhereNothingComes) {
  asked.clear();
  Prefetcher nothing({}, 32);
  for (int step = 0; step < 32; ++step) nothing.step();
  Prefetcher no_steps({reinterpret_cast<const std::byte*>(&asked), 64}, 0);
  EXPECT_TRUE(asked.empty());
}

}  // namespace
}  // namespace quire
