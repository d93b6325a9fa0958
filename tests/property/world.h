// A cache and its naive model side by side, and the comparison of everything that can be seen of
// the two.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "model/naive_cache.h"
#include "property/memory_source.h"
#include "property/random.h"
#include "quire/cache.hpp"

namespace quire::test {

// The library and the model disagree, or an invariant is broken.
class Disagreement : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Args>
void require(bool holds, fmt::format_string<Args...> text, Args&&... args) {
  if (!holds) throw Disagreement(fmt::format(text, std::forward<Args>(args)...));
}

inline std::uint64_t number_of(SequenceId id) { return static_cast<std::uint64_t>(id); }

// The value of a call that cannot fail.
template <typename T>
T must(Result<T> result, const char* call) {
  require(result.ok(), "{}: {}", call, result.ok() ? "" : result.error().text);
  return std::move(result).value();
}
inline void must(const Result<void>& result, const char* call) {
  require(result.ok(), "{}: {}", call, result.ok() ? "" : result.error().text);
}

struct OpenStep {
  Step step;
  NaiveStep model;
};

struct World {
  World(Cache made, NaiveCache shadow) : cache(std::move(made)), model(std::move(shadow)) {}

  Cache cache;
  NaiveCache model;
  std::vector<OpenStep> steps;
};

// Whether a number read back is the one expected: bit for bit, or close where keys were turned.
// `scale` is the largest number of its row.
bool same_number(float found, double expected, bool turned, double scale);

// Throws Disagreement where anything that can be asked of the cache differs from the model.
void check_world(const World& world, const TestMemory& memory);

// The same for one sequence.
void check_sequence(const Cache& cache, SequenceId id, const NaiveSequence& model);

// Reads a sequence by for_each and by gather in a random format.
void check_reading(Random& random, const Cache& cache, SequenceId id, const NaiveSequence& model);

// Compares what gather wrote for sequences whose columns are `expected`, [sequence][column].
void check_gathered(const NaiveSpec& spec, std::size_t layer, const GatherFormat& format,
                    const Gathered& gathered, const std::vector<std::vector<NaiveRead>>& expected,
                    const std::vector<std::byte>& keys, const std::vector<std::byte>& values);

GatherFormat random_format(Random& random, bool several);

}  // namespace quire::test
