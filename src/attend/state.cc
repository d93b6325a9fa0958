// The three operations on attention states: clear, merge, finish.
//
// All exponents are differences of logits against their maximum, so they are at most 0 and nothing
// overflows, however large the logits. The one difference that is not a number, -inf - -inf, would
// come from two empty states or from finishing an empty one; both are answered before it is made.
#include "quire/state.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attend/softmax.h"

namespace quire {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// 2^difference, of one to a maximum: 0 for one side of each merge at least.
float exp2_below(float difference) noexcept {
  return difference == 0.0f ? 1.0f : std::exp2(difference);
}

}  // namespace

void state_clear(float* o, float* m, float* l, std::int64_t count, std::int64_t dim) noexcept {
  std::fill_n(o, count * dim, 0.0f);
  std::fill_n(m, count, kNothing);
  std::fill_n(l, count, 0.0f);
}

void state_merge(float* o, float* m, float* l, const float* o2, const float* m2, const float* l2,
                 std::int64_t count, std::int64_t dim) noexcept {
  const Softmax& softmax = softmax_of(chosen_isa());
  for (std::int64_t i = 0; i < count; ++i, o += dim, o2 += dim) {
    if (m2[i] == kNothing) continue;
    if (m[i] == kNothing) {
      std::copy_n(o2, dim, o);
      m[i] = m2[i];
      l[i] = l2[i];
      continue;
    }
    const float top = std::max(m[i], m2[i]);
    const float keep = exp2_below(m[i] - top);
    const float take = exp2_below(m2[i] - top);
    softmax.blend(o, keep, o2, take, dim);
    l[i] = l[i] * keep + l2[i] * take;
    m[i] = top;
  }
}

void state_finish(float* out, const float* o, float m, float l, float sink,
                  std::int64_t dim) noexcept {
  if (m == kNothing || l == 0.0f) {
    std::fill_n(out, dim, 0.0f);
    return;
  }
  // The larger of m and the sink is the base, so that neither 2^(sink - m) nor 2^(m - sink) can
  // overflow. A sink of -inf adds exactly 0.
  const float sink_base2 = sink * kLog2E;
  if (sink_base2 <= m) {
    const float weight = l + std::exp2(sink_base2 - m);
    for (std::int64_t c = 0; c < dim; ++c) out[c] = o[c] / weight;
    return;
  }
  const float keep = std::exp2(m - sink_base2);
  const float weight = l * keep + 1.0f;
  for (std::int64_t c = 0; c < dim; ++c) out[c] = o[c] * keep / weight;
}

}  // namespace quire
