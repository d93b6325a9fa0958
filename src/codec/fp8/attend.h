// Attention on fp8 tiles, for the instruction set whose lanes were included before.
//
// A byte becomes the upper bits of an f16, and that a float. The four neighbours of a lane are
// split into bytes 0 and 2 and bytes 1 and 3, so that a register holds pairs of neighbours of half
// the lanes: two sums per lane, which are added at the end. `Format` has kScale, what the f16 must
// be multiplied by, and unpack, which makes the floats.
#pragma once

#include "codec/products.h"
#include "codec/weights.h"

namespace quire {
namespace {

// Sums of pairs of neighbours: lanes 0, 0, 1, 1, ... of the lower and of the upper half.
struct PairSums {
  Floats low, high;
};

// Four neighbours as floats: bytes 0 and 2 of the lower and the upper half of the lanes, then
// bytes 1 and 3.
struct Quads {
  Floats low02, high02, low13, high13;
};

template <class Format>
struct Fp8PairOps {  // on expanded operands: two neighbours at a step
  static constexpr int kPack = 2;
  static constexpr int kCodeBytes = 4;
  static constexpr int kHeaderBytes = 0;
  static constexpr int kQueryHeaderBytes = 0;
  static constexpr bool kQueryRest = false;
  static constexpr int kStepBytes = 8;
  static constexpr int kMaxRows = rows_for(6, 4);
  static constexpr bool kInTwos = false;
  static constexpr int vectors(int rows) { return vectors_for(rows, 2); }
  using Sum = PairSums;
  struct Operand {
    Floats low, high;
  };
  using Weight = Floats;
  QUIRE_INLINE static Sum zero() { return {zeros(), zeros()}; }
  QUIRE_INLINE static Operand load(const std::byte* data) {
    return {load_floats(data), load_floats(data + kLanes * 4)};
  }
  QUIRE_INLINE static Weight weight(const std::byte* at) { return spread_pair(at); }
  QUIRE_INLINE static void add(Sum& sum, const Operand& x, Weight w) {
    sum.low = fma(x.low, w, sum.low);
    sum.high = fma(x.high, w, sum.high);
  }
  using Header = F32Ops::Header;
  QUIRE_INLINE static Header header(const std::byte*, int) { return {}; }
  QUIRE_INLINE static Floats score(const Sum& sum, const Header& header, const std::byte*) {
    return mixed(sum, header);
  }
  QUIRE_INLINE static Floats mixed(const Sum& sum, const Header&) {
    return mul(add_pairs(sum.low, sum.high), spread(Format::kScale));
  }
};

template <class Format>
struct Fp8Ops : Fp8PairOps<Format> {
  using Sum = PairSums;
  static constexpr int kPack = 4;
  static constexpr int kCodeBytes = 1;
  static constexpr int kStepBytes = 16;
  static constexpr int kMaxRows = rows_for(4, 4);
  using Operand = Quads;
  struct Weight {
    Floats w02, w13;
  };
  QUIRE_INLINE static Operand load(const std::byte* data) { return Format::unpack(data); }
  QUIRE_INLINE static Weight weight(const std::byte* at) {
    return {spread_pair(at), spread_pair(at + 8)};
  }
  QUIRE_INLINE static void add(Sum& sum, const Operand& x, const Weight& w) {
    sum.low = fma(x.low13, w.w13, fma(x.low02, w.w02, sum.low));
    sum.high = fma(x.high13, w.w13, fma(x.high02, w.w02, sum.high));
  }
};

template <class Format>
struct Fp8Unpack {
  static constexpr int kPack = 4;
  static constexpr int kCodeBytes = 1;
  static constexpr int kSteps = 2;
  static constexpr int kUnitBytes = 8;
  QUIRE_INLINE static void unpack(const std::byte* data, std::byte* to, std::ptrdiff_t next) {
    const Quads quads = Format::unpack(data);
    store_bytes(to, quads.low02);
    store_bytes(to + kLanes * 4, quads.high02);
    store_bytes(to + next, quads.low13);
    store_bytes(to + next + kLanes * 4, quads.high13);
  }
};

// Floats in the order 0, 2, 1, 3 of each four, as the steps take them.
inline std::size_t quad_bytes(int count) noexcept {
  return round_up_64(static_cast<std::size_t>(count) * 4);
}
inline void prepare_quads(const float* query, int dim, int, std::byte* prepared) noexcept {
  auto* to = reinterpret_cast<float*>(prepared);
  const int padded = (dim + kTile - 1) / kTile * kTile;
  for (int c = 0; c < padded; ++c) {
    const int from = (c & ~3) + (c & 1) * 2 + (c >> 1 & 1);
    to[c] = from < dim ? query[from] : 0.0f;
  }
}
template <int R, int V>
struct QuadWeights {
  static constexpr int kDegree = 5;
  static constexpr bool kKeeps = false;
  const Logits& logits;
  int row;
  QUIRE_INLINE QuadWeights(const PageSide&, const Logits& l, int first_row)
      : logits(l), row(first_row) {}
  QUIRE_INLINE void take(int v, Floats (&weights)[R]) const {
    const int t = logits.first + v * kLanes;
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      store_bytes(logits.prepared_row(row + r) + t * 4, even_then_odd(weights[r]));
    }
  }
  QUIRE_INLINE void done() const {}
};

template <class Format>
constexpr Kernel fp8_kernel() {
  return {.takes_keys = takes_all_keys,
          .query_bytes = quad_bytes,
          .prepare = prepare_quads,
          .weight_bytes = quad_bytes,
          .weigh = weigh<QuadWeights>,
          .coded = products_of<Fp8Ops<Format>>(),
          .expanded_bytes = expanded_bytes<Fp8Unpack<Format>>,
          .expand = expand<Fp8Unpack<Format>>,
          .expanded = products_of<Fp8PairOps<Format>, Fp8Ops<Format>::kPack>()};
}

}  // namespace
}  // namespace quire
