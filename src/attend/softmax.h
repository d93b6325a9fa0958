// Masks of rows, the common maximum of units of several pages, and sums of two states; kernels do
// the rest of softmax (codec/weights.h). For each instruction set.
//
// Thread-safety: functions of their arguments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/isa.h"

namespace quire {

// Logits are [row][slots], rows `stride` floats apart, slots a multiple of 16.
struct Softmax {
  // Makes what is not in [begin, end) -inf, and raises top[row] to the largest times `scale`, NaN
  // where one is: a broken query must not look empty. Requires: scale > 0.
  void (*raise)(float* logits, std::ptrdiff_t stride, int rows, int slots, int begin, int end,
                float scale, float* top) noexcept;
  // Raises m[row] to top[row], and multiplies l[row] by what that makes of its weights, as kernels
  // do.
  void (*rescale)(const float* top, int rows, float* m, float* l) noexcept;
  // o[i] = o[i] keep + more[i] take, both products rounded: the same bits on every set.
  void (*blend)(float* o, float keep, const float* more, float take, std::int64_t count) noexcept;
};

const Softmax& softmax_of(Isa isa) noexcept;

}  // namespace quire
