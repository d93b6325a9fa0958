// The first half of softmax, of rows over one page, for each instruction set; kernels do the second
// (codec/weights.h).
//
// Thread-safety: functions of their arguments.
#pragma once

#include <cstddef>

#include "base/isa.h"

namespace quire {

// Logits are [row][slots], rows `stride` floats apart, slots a multiple of 16.
struct Softmax {
  // Multiplies the logits in [begin, end) by `scale`, makes the others -inf, and raises top[row] to
  // the largest, NaN where one is: a broken query must not look empty.
  void (*raise)(float* logits, std::ptrdiff_t stride, int rows, int slots, int begin, int end,
                float scale, float* top) noexcept;
};

const Softmax& softmax_of(Isa isa) noexcept;

}  // namespace quire
