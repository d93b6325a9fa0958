// Random numbers that cost little to seed: every operation of a case has a generator of its own,
// so that an operation does the same whatever was taken out before it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/slow_build.h"

namespace quire::test {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  // splitmix64
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In [low, high].
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    const auto span = static_cast<std::uint64_t>(high - low) + 1;
    return low + static_cast<std::int64_t>(bits() % span);
  }
  int number(int low, int high) { return static_cast<int>(integer(low, high)); }
  std::size_t index(std::size_t count) { return static_cast<std::size_t>(bits() % count); }
  // True once in `n` times.
  bool one_in(int n) { return bits() % static_cast<std::uint64_t>(n) == 0; }
  float real(float low, float high) {
    return low + (high - low) * static_cast<float>(bits() >> 40) / 16777216.0f;
  }
  template <typename T>
  const T& pick(const std::vector<T>& from) {
    return from[index(from.size())];
  }
  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[index(i)]);
  }

 private:
  std::uint64_t state_;
};

// How many of `full` random cases to run: all in a release build, a tenth of them in a slow one, or
// QUIRE_TEST_SEQUENCES / 10000 of them where that is set.
inline std::int64_t scaled_count(std::int64_t full) {
  const char* wanted = std::getenv("QUIRE_TEST_SEQUENCES");
  if (wanted != nullptr) {
    const std::int64_t count = full * std::strtoll(wanted, nullptr, 10) / 10000;
    return count < 1 ? 1 : count;
  }
  return kSlowBuild ? full / 10 : full;
}

}  // namespace quire::test
