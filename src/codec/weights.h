// Softmax of a page, for one instruction set: include after base/lanes_<set>.h.
//
//     top' = the larger of top and the largest logit
//     weight = 2^(logit - top'), 0 where top' is -inf
//     sum' = sum 2^(top - top') + sum of weights
//
// Rows are taken up to four at a time, so that what is folded across lanes is folded for all of
// them at once; a row's bits do not depend on the others. What becomes of the weights is said by a
// template `Rows`, of R rows and V vectors of slots (0: as many as there are):
//
//     Rows(values, logits, row)   of the rows from `row` on
//     take(v, weights)            of vector v of the slots; rounded there, they are summed so
//     done()                      after the last slot
//     kDegree                     how exact weights must be (base/exp2_terms.h)
//     kKeeps                      whether it can keep V > 0 in registers
#pragma once

#include <cstring>

#include "codec/kernel.h"
#include "codec/products.h"

namespace quire {
namespace {

template <int R>
QUIRE_INLINE Quad load_quad(const float* from) {
  if constexpr (R == 4) {
    Quad rows;
    std::memcpy(&rows, from, sizeof rows);
    return rows;
  }
  return Quad{from[0], R > 1 ? from[1] : 0.0f, R > 2 ? from[2] : 0.0f, 0.0f};
}
template <int R>
QUIRE_INLINE void store_quad(float* to, const Quad& rows) {
  if constexpr (R == 4) {
    std::memcpy(to, &rows, sizeof rows);
  } else {
    for (int r = 0; r < R; ++r) to[r] = rows[r];
  }
}

// Tops, 0 where nothing was seen: -inf less that is -inf, and not NaN.
QUIRE_INLINE Quad finite_top(const Quad& top) {
  const Quad nothing = {-__builtin_inff(), -__builtin_inff(), -__builtin_inff(), -__builtin_inff()};
  return top == nothing ? Quad{} : top;
}

// f(v) for each of V vectors, or of `count` where V is 0.
template <int V, class F>
QUIRE_INLINE void each_vector(int count, const F& f) {
  if constexpr (V > 0) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) f(v);
  } else {
    for (int v = 0; v < count; ++v) f(v);
  }
}

template <template <int, int> class Rows, int R, int V>
QUIRE_INLINE void weigh_some(const PageSide& values, const Logits& logits, int row) {
  Rows<R, V> rows(values, logits, row);
  const float* from[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) from[r] = logits.row(row + r) + logits.first;
  const int vectors = (logits.end - logits.first) / kLanes;

  const Floats nothing = spread(-__builtin_inff());
  Floats largest[4] = {nothing, nothing, nothing, nothing};  // NaN is seen in the sums
  each_vector<V>(vectors, [&](int v) QUIRE_INLINED {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      largest[r] = larger_number(load_floats(from[r] + v * kLanes), largest[r]);
    }
  });
  const Quad found = largest_of_rows(largest) * logits.scale;
  const Quad before = load_quad<R>(logits.top + row);
  const Quad top = found > before ? found : before;
  const Quad finite = finite_top(top);

  const Floats scale = spread(logits.scale);
  Floats base[R];
  Floats sums[4] = {zeros(), zeros(), zeros(), zeros()};
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) base[r] = spread(finite[r]);
  each_vector<V>(vectors, [&](int v) QUIRE_INLINED {
    Floats weights[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      // Rounded as the top was, so that no exponent is above 0.
      const Floats logit = mul(load_floats(from[r] + v * kLanes), scale);
      weights[r] = exp2<Rows<R, V>::kDegree>(sub(logit, base[r]));
    }
    rows.take(v, weights);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sums[r] = add(sums[r], weights[r]);
  });
  rows.done();

  const Quad total = sums_of_rows(sums);
  const Quad seen_top = total == total ? top : total;
  store_quad<R>(logits.keep + row, exp2(load_quad<R>(logits.base + row) - finite));
  store_quad<R>(logits.sum + row, load_quad<R>(logits.sum + row) * exp2(before - finite) + total);
  store_quad<R>(logits.top + row, seen_top);
  store_quad<R>(logits.base + row, seen_top);
}

template <template <int, int> class Rows, int V>
QUIRE_INLINE void weigh_rows(const PageSide& values, const Logits& logits) {
  int row = 0;
  for (; row + 4 <= logits.count; row += 4) weigh_some<Rows, 4, V>(values, logits, row);
  switch (logits.count - row) {
    case 3:
      return weigh_some<Rows, 3, V>(values, logits, row);
    case 2:
      return weigh_some<Rows, 2, V>(values, logits, row);
    case 1:
      return weigh_some<Rows, 1, V>(values, logits, row);
    default:
      return;
  }
}

template <template <int, int> class Rows>
void weigh(const PageSide& values, const Logits& logits) noexcept {
  if constexpr (Rows<4, 0>::kKeeps && kRegisters == 32) {
    constexpr int kKept = 4;  // of 4 rows: half of the registers
    if (logits.end - logits.first == kKept * kLanes) return weigh_rows<Rows, kKept>(values, logits);
  }
  weigh_rows<Rows, 0>(values, logits);
}

// As they are, in place of the dot products.
template <int R, int V>
struct FloatWeights {
  static constexpr int kDegree = 5;
  static constexpr bool kKeeps = false;
  const Logits& logits;
  int row;
  QUIRE_INLINE FloatWeights(const PageSide&, const Logits& l, int first_row)
      : logits(l), row(first_row) {}
  QUIRE_INLINE void take(int v, Floats (&weights)[R]) const {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      store_floats(logits.row(row + r) + logits.first + v * kLanes, weights[r]);
    }
  }
  QUIRE_INLINE void done() const {}
};

}  // namespace
}  // namespace quire
