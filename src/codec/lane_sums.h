// Sums of products of encoders, in one order for every instruction set: 16 partial sums, of which
// number i takes the channels i, i + 16, i + 32 ..., folded in halves:
//
//     8 = 16 sums i and i + 8 added, 4 = sums i and i + 4 of those, 2, 1
#pragma once

#include <cstddef>

namespace quire {

struct LaneSum {
  float lanes[16] = {};

  void add(std::size_t channel, float product) noexcept { lanes[channel % 16] += product; }

  float total() const noexcept {
    float sums[16];
    for (int i = 0; i < 16; ++i) sums[i] = lanes[i];
    for (int half = 8; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
    }
    return sums[0];
  }
};

}  // namespace quire
