// Seeds of random tests, printed: the same in every run, so that a change fails by its own faults
// alone. QUIRE_TEST_SEED=N gives another, QUIRE_TEST_SEED=random a new one.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string_view>

namespace quire::test {

inline std::uint64_t announce_seed() {
  constexpr std::uint64_t kUsual = 20261;
  const char* asked = std::getenv("QUIRE_TEST_SEED");
  std::uint64_t seed = asked != nullptr ? std::strtoull(asked, nullptr, 10) : kUsual;
  if (asked != nullptr && std::string_view(asked) == "random") seed = std::random_device{}();
  std::cout << "[ seed     ] " << seed << " (repeat with QUIRE_TEST_SEED=" << seed << ")\n";
  return seed;
}

}  // namespace quire::test
