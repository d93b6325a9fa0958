#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <random>
#include <vector>

#include "base/seed.h"

namespace quire {
namespace {

std::vector<const std::byte*> asked;
std::size_t asked_in_half;  // of the blocks of a loop
std::size_t asked_nearest;
void prefetch(const std::byte* at) { asked.push_back(at); }
void prefetch_nearest(const std::byte* at) {
  ++asked_nearest;
  asked.push_back(at);
}

}  // namespace
}  // namespace quire

#include "codec/prefetcher.h"

namespace quire {
namespace {

// Addresses that a loop over `blocks` blocks of `steps` steps asked for, as often as it did.
template <int kLines, bool kNearest = false>
void ask(const Ahead& ahead, int blocks, int steps) {
  asked.clear();
  asked_nearest = 0;
  with_prefetcher<kLines, kNearest>(ahead, blocks, blocks * steps, [&](auto& prefetcher) {
    for (int block = 0; block < blocks; ++block) {
      if (block == blocks / 2) asked_in_half = asked.size();
      prefetcher.block();
      for (int step = 0; step < steps; ++step) prefetcher.step();
    }
  });
}

template <int kLines, bool kNearest>
void expect_all_lines(std::mt19937_64& random) {
  alignas(64) static std::byte memory[64 * 1024];
  const int blocks = std::uniform_int_distribution(1, 8)(random);
  const int steps = std::uniform_int_distribution(1, 128)(random);
  const std::size_t bytes = std::uniform_int_distribution<std::size_t>(1, 48 * 1024)(random);
  const std::size_t at = std::uniform_int_distribution<std::size_t>(0, 255)(random);
  const std::size_t first = at / 64;
  const std::size_t last = (at + bytes - 1) / 64;
  const bool nearest = random() % 2 == 0;
  ask<kLines, kNearest>({memory + at, bytes, nearest}, blocks, steps);
  ASSERT_EQ(asked_nearest, nearest && kNearest ? asked.size() : 0);
  std::vector<std::ptrdiff_t> lines;
  for (const std::byte* address : asked) lines.push_back((address - memory) / 64);
  ASSERT_TRUE(std::is_sorted(lines.begin(), lines.end()));
  for (std::size_t line = first; line <= last; ++line) {
    ASSERT_TRUE(std::binary_search(lines.begin(), lines.end(), static_cast<std::ptrdiff_t>(line)))
        << "line " << line << " of " << first << " to " << last << ", " << blocks << " blocks of "
        << steps << " steps with " << kLines << " lines";
  }
  // Those behind the last are few.
  const auto asks = static_cast<std::size_t>(blocks * steps * kLines);
  ASSERT_LE(lines.back(), static_cast<std::ptrdiff_t>(last + asks / 64 + 8));
  if (last - first + 1 >= asks) {
    ASSERT_EQ(std::adjacent_find(lines.begin(), lines.end()), lines.end()) << "none twice";
  }
}

TEST(Prefetcher, LeavesNoLineOutAndKeepsTheirOrder) {
  std::mt19937_64 random(test::announce_seed());
  for (int round = 0; round < 1000; ++round) {
    expect_all_lines<1, true>(random);
    expect_all_lines<1, false>(random);
    expect_all_lines<2, true>(random);
    expect_all_lines<4, true>(random);
    expect_all_lines<4, false>(random);
  }
}

TEST(Prefetcher, AsksInEveryPartOfTheLoop) {
  alignas(64) static std::byte memory[4 * 1024];
  for (const int blocks : {1, 2, 4}) {
    for (const int steps : {2, 16, 64}) {
      ask<1>({memory, sizeof memory}, 2 * blocks, steps);
      EXPECT_EQ(2 * asked_in_half, asked.size()) << blocks << " " << steps;
    }
  }
}

TEST(Prefetcher, AsksForOneLineAtMostWhereNothingComes) {
  ask<2>({}, 4, 32);
  EXPECT_TRUE(asked.empty());
  ask<1>({}, 4, 32);
  EXPECT_EQ(asked.size(), 128u);
  EXPECT_EQ(std::adjacent_find(asked.begin(), asked.end(), std::not_equal_to<>()), asked.end());
  EXPECT_NE(asked.front(), nullptr);
  ask<1>({asked.front(), 64}, 4, 0);
  EXPECT_TRUE(asked.empty());
}

}  // namespace
}  // namespace quire
