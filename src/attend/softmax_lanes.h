// Softmax in the lanes of the instruction set that was included before.
#pragma once

#include "attend/softmax.h"

namespace quire {
namespace {

void raise(float* logits, std::ptrdiff_t stride, int rows, int slots, int begin, int end,
           float scale, float* top) noexcept {
  const Floats nothing = spread(-__builtin_inff());
  const Floats factor = spread(scale);
  for (int row = 0; row < rows; ++row, logits += stride) {
    Floats largest = spread(top[row]);
    for (int t = 0; t < slots; t += kLanes) {
      Floats s = mul(load_floats(logits + t), factor);
      if (t < begin || t + kLanes > end) {
        const int from = begin <= t ? 0 : begin - t >= kLanes ? kLanes : begin - t;
        const int to = end <= t ? 0 : end - t >= kLanes ? kLanes : end - t;
        s = only(s, from, to, nothing);
      }
      store_floats(logits + t, s);
      largest = larger(largest, s);
    }
    top[row] = largest_of(largest);
  }
}

}  // namespace
}  // namespace quire
