// How fast this machine reads memory and multiplies: what a benchmark's rows are compared with.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "print.h"

namespace quire::tool {

// Runs work(0) .. work(threads - 1) at once, each on a thread of its own, the caller's among them.
// They begin together; returns the seconds from there until the last is done.
double run_together(int threads, const std::function<void(int thread)>& work);

// The loops of the instruction set of that name ("scalar", "avx2", "avx512").
struct RateLoops;  // rates_loops.h
const RateLoops& loops_of(const std::string& isa);

constexpr double kRoundSeconds = 0.004;  // of a round at most

// The best of many short rounds, all threads at once. Rates are in 10^9 multiply-adds per second of
// all threads together; none where the instruction set has no such instruction.
struct Rates {
  int threads = 1;
  double read_gbps = 0;
  double fma_f32_gmacs = 0;
  std::optional<double> dot_bf16_gmacs;
  std::optional<double> dot16_gmacs;
  std::optional<double> dot8_gmacs;

  // Takes from `again` what is larger. Requires: the same threads and instruction set.
  void keep_larger(const Rates& again);
};

// Measures all but read_gbps, for which there is a ReadMeter, with the instruction set of that
// name. Cost: about a second; `quick`: some milliseconds, and numbers that mean little.
Rates measure_multiplying(const std::string& isa, int threads, bool quick);

// {"read_gbps", "fma_f32_gmacs", "dot_bf16_gmacs", "dot16_gmacs", "dot8_gmacs"}
Json to_json(const Rates& rates);

}  // namespace quire::tool
