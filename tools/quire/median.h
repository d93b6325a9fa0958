// The median of samples: between the two in the middle where their number is even.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace quire::tool {

// Requires: not empty.
inline double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t half = samples.size() / 2;
  return samples.size() % 2 == 1 ? samples[half] : (samples[half - 1] + samples[half]) / 2;
}

}  // namespace quire::tool
