// Seeds of random tests: a new one per run, printed, or the one in QUIRE_TEST_SEED to repeat a run.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>

namespace quire::test {

inline std::uint64_t announce_seed() {
  const char* fixed = std::getenv("QUIRE_TEST_SEED");
  const std::uint64_t seed =
      fixed != nullptr ? std::strtoull(fixed, nullptr, 10) : std::uint64_t{std::random_device{}()};
  std::cout << "[ seed     ] " << seed << " (repeat with QUIRE_TEST_SEED=" << seed << ")\n";
  return seed;
}

}  // namespace quire::test
