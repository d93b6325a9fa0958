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
      Floats s = load_floats(logits + t);
      if (t < begin || t + kLanes > end) {
        const int from = begin <= t ? 0 : begin - t >= kLanes ? kLanes : begin - t;
        const int to = end <= t ? 0 : end - t >= kLanes ? kLanes : end - t;
        s = only(s, from, to, nothing);
      }
      store_floats(logits + t, s);
      largest = larger(largest, mul(s, factor));
    }
    top[row] = largest_of(largest);
  }
}

void rescale(const float* top, int rows, float* m, float* l) noexcept {
  for (int row = 0; row < rows; ++row) {
    // NaN goes on, whichever has it.
    if (top[row] <= m[row] || m[row] != m[row]) continue;
    l[row] *= exp2(Quad{m[row] - top[row]})[0];
    m[row] = top[row];
  }
}

void blend(float* o, float keep, const float* more, float take, std::int64_t count) noexcept {
  const Floats kept = spread(keep);
  const Floats taken = spread(take);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store_floats(o + i, add(mul(load_floats(o + i), kept), mul(load_floats(more + i), taken)));
  }
  for (; i < count; ++i) o[i] = o[i] * keep + more[i] * take;
}

}  // namespace
}  // namespace quire
