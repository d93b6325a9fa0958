// Random cases: a spec and a list of operations, run against the model; a failing one is shrunk to
// a short one and written down.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "property/driver.h"

namespace quire::test {

struct Case {
  CacheSpec spec;
  DriverOptions options;
  std::vector<Op> ops;
};

// With options.faults the list changes how memory fails now and then.
Case random_case(Random& random, const DriverOptions& options);

// What went wrong, or nothing. `trace` takes the calls made, `refused` counts those that failed for
// memory.
std::optional<std::string> run_case(const Case& c, std::vector<std::string>* trace = nullptr,
                                    std::int64_t* refused = nullptr);

// Takes out operations and simplifies the spec as long as the case still fails.
Case shrink(Case failing);

// Runs `count` cases; the text of the first that fails, shrunk, with its calls, or "".
std::string run_cases(std::uint64_t seed, std::int64_t count, const DriverOptions& options,
                      std::int64_t* refused = nullptr);

}  // namespace quire::test
