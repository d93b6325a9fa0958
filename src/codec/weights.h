// Weights of a page from its logits, for one instruction set: include after base/lanes_<set>.h.
//
//     weight = 2^(logit - top), 0 where top is -inf
//
// Rows are taken up to four at a time, so that what is folded across lanes is folded for all of
// them at once; a row's bits do not depend on the others. What becomes of the weights is said by a
// template `Rows`, of R rows:
//
//     Rows(values, logits, row)   of the rows from `row` on
//     take(t, weights)            of slots [t, t + kLanes); rounded there, they are summed so
//     done()                      after the last slot
#pragma once

#include "codec/kernel.h"
#include "codec/products.h"

namespace quire {
namespace {

template <template <int> class Rows, int R>
QUIRE_INLINE void weigh_some(const PageSide& values, const Logits& logits, int row) {
  Rows<R> rows(values, logits, row);
  Floats base[R];
  Floats sums[4] = {zeros(), zeros(), zeros(), zeros()};
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const float top = logits.top[row + r];
    base[r] = spread(top == -__builtin_inff() ? 0.0f : top);  // all of its logits are -inf too
  }
  for (int t = logits.first; t < logits.end; t += kLanes) {
    Floats weights[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      weights[r] = exp2(sub(load_floats(logits.row(row + r) + t), base[r]));
    }
    rows.take(t, weights);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sums[r] = add(sums[r], weights[r]);
  }
  float totals[4];
  sums_of_rows(sums, totals);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) logits.sum[row + r] += totals[r];
  rows.done();
}

template <template <int> class Rows>
void weigh(const PageSide& values, const Logits& logits) noexcept {
  int row = 0;
  for (; row + 4 <= logits.count; row += 4) weigh_some<Rows, 4>(values, logits, row);
  switch (logits.count - row) {
    case 3:
      return weigh_some<Rows, 3>(values, logits, row);
    case 2:
      return weigh_some<Rows, 2>(values, logits, row);
    case 1:
      return weigh_some<Rows, 1>(values, logits, row);
    default:
      return;
  }
}

// As they are, in place of the logits.
template <int R>
struct FloatWeights {
  const Logits& logits;
  int row;
  QUIRE_INLINE FloatWeights(const PageSide&, const Logits& l, int first_row)
      : logits(l), row(first_row) {}
  QUIRE_INLINE void take(int t, Floats (&weights)[R]) const {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) store_floats(logits.row(row + r) + t, weights[r]);
  }
  QUIRE_INLINE void done() const {}
};

}  // namespace
}  // namespace quire
