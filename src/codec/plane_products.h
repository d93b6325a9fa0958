// Products straight on planes of codes (planes.h), without writing the unpacked codes anywhere:
// include after codec/ints_<set>.h.
//
// The loops are those of products.h. A vector of codes is found by its number in the token tile,
// shifted and masked out of the planes, and made an operand by `Map` (a member `at`). Only for
// tiles in which every unit of every plane is whole; others are unpacked first.
#pragma once

#include "codec/products.h"

namespace quire {
namespace {

template <int kBits>
struct PlaneCodes {
  static constexpr int kLow = kBits >= 4 ? 4 : 2;
  static constexpr int kHigh = kBits - kLow;
  // Vectors of 64 codes in whole units of both planes.
  static constexpr int kSpan = 8 / (kHigh == 0 ? kLow : kHigh < kLow ? kHigh : kLow);

  // Half `half` (of the lanes) of vector `vector` of 64 codes.
  QUIRE_INLINE static Ints at(const std::byte* low, const std::byte* high, int vector, int half) {
    const int at = half * (4 * kLanes);
    const Ints codes =
        byte_bits<kLow>(load_ints(low + vector / (8 / kLow) * 64 + at), vector % (8 / kLow) * kLow);
    if constexpr (kHigh == 0) {
      return codes;
    } else {
      return join_bits<kLow>(codes,
                             byte_bits<kHigh>(load_ints(high + vector / (8 / kHigh) * 64 + at),
                                              vector % (8 / kHigh) * kHigh));
    }
  }
};

// Keys: tiles of 16 tokens follow each other, the vectors of a tile are the steps.
template <int kBits, class Map>
struct KeyPlanes {
  const std::byte* data;
  std::ptrdiff_t tile_bytes;
  std::ptrdiff_t high_at;  // of the high plane, in a tile
  int steps;
  const Map& map;

  QUIRE_INLINE void advance(int tiles) { data += tiles * tile_bytes; }
};

template <class Ops, int R, int N, int kBits, class Map>
QUIRE_INLINE void add_products(const KeyPlanes<kBits, Map>& lines, const std::byte* weights,
                               std::ptrdiff_t row_bytes, Prefetcher& ahead,
                               typename Ops::Sum (&sums)[R][N]) {
  using Codes = PlaneCodes<kBits>;
  const std::byte* low = lines.data;
  const std::byte* high = lines.data + lines.high_at;
  for (int step = 0; step < lines.steps; step += Codes::kSpan) {
#pragma GCC unroll 8
    for (int i = 0; i < Codes::kSpan; ++i) {
      typename Ops::Operand x[N];
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) {
        const std::ptrdiff_t tile = n / kVectorsPerTile * lines.tile_bytes;
        x[n] =
            Ops::operand(lines.map.at(Codes::at(low + tile, high + tile, i, n % kVectorsPerTile)));
      }
      add_step<Ops>(x, weights, row_bytes, sums);
      weights += Ops::kStepBytes;
      ahead.step();
    }
    low += Codes::kSpan * 8 * Codes::kLow;
    high += Codes::kSpan * 8 * Codes::kHigh;
  }
}

// Values: tiles of 4 tokens are the steps, the vectors of a tile hold 16 channels each.
template <int kBits, class Map>
struct ValuePlanes {
  const std::byte* data;
  std::ptrdiff_t step_bytes;
  std::ptrdiff_t high_at;
  int steps;
  int first;  // vector
  const Map& map;

  QUIRE_INLINE void advance(int tiles) { first += tiles; }
};

template <class Ops, int R, int N, int kBits, class Map>
QUIRE_INLINE void add_products(const ValuePlanes<kBits, Map>& lines, const std::byte* weights,
                               std::ptrdiff_t row_bytes, Prefetcher& ahead,
                               typename Ops::Sum (&sums)[R][N]) {
  using Codes = PlaneCodes<kBits>;
  const std::byte* low = lines.data;
  // Blocks begin at a multiple of their vectors: where that is whole units the shifts are constant.
  const int first = N / kVectorsPerTile % (8 / Codes::kLow) == 0 ? 0 : lines.first;
  if (N / kVectorsPerTile % (8 / Codes::kLow) == 0) low += lines.first * 8 * Codes::kLow;
  const std::byte* high = lines.data + lines.high_at;
  for (int step = 0; step < lines.steps; ++step) {
    typename Ops::Operand x[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      const int vector = n / kVectorsPerTile;
      Ints codes = PlaneCodes<Codes::kLow>::at(low, low, first + vector, n % kVectorsPerTile);
      if constexpr (Codes::kHigh > 0) {
        const int at = lines.first + vector;
        codes = join_bits<Codes::kLow>(
            codes, byte_bits<Codes::kHigh>(load_ints(high + at / (8 / Codes::kHigh) * 64 +
                                                     n % kVectorsPerTile * (4 * kLanes)),
                                           at % (8 / Codes::kHigh) * Codes::kHigh));
      }
      x[n] = Ops::operand(lines.map.at(codes));
    }
    add_step<Ops>(x, weights, row_bytes, sums);
    low += lines.step_bytes;
    high += lines.step_bytes;
    weights += Ops::kStepBytes;
    ahead.step();
  }
}

// In plain C++ unpacking first is as fast, and less code.
constexpr bool kFuses = kRegisters > 4;

// Unpacking is done again for every block of rows, so many rows go another way: few at once will
// do.
template <class Ops>
struct FewRows : Ops {
  static constexpr int kMaxRows = rows_for(4, 4);
};

// Whether all units of a tile are whole.
template <int kBits>
inline bool whole_units(Side side, int dim) noexcept {
  const int vectors = side == Side::key ? (dim + 3) / 4 : dim / kTile;
  return vectors % PlaneCodes<kBits>::kSpan == 0;
}

template <class Ops, int kBits, class Map>
QUIRE_INLINE void plane_scores(const PageSide& keys, int first, int end, const Operands& queries,
                               float* out, std::ptrdiff_t out_stride, const Ahead& ahead,
                               const Map& map) {
  const int vectors = (keys.dim + 3) / 4;
  const std::ptrdiff_t tile_bytes = vectors * 8 * kBits;
  const KeyPlanes<kBits, Map> lines{keys.data + first / kTile * tile_bytes, tile_bytes,
                                    vectors * 8 * PlaneCodes<kBits>::kLow, vectors, map};
  out += first;
  const std::byte* scales = keys.scales + first * 2;
  run_all<Ops>(lines, (end - first) / kTile, queries, Ops::kQueryHeaderBytes, ahead,
               [&](int row, int lane, const typename Ops::Sum& sum) {
                 const std::byte* header = queries.rows + row * queries.stride;
                 store_floats(out + row * out_stride + lane,
                              Ops::score(sum, header, 0, scales + lane * 2));
               });
}

template <class Ops, int kBits, class Map>
QUIRE_INLINE void plane_mix(const PageSide& values, int first, int end, const Operands& weights,
                            const float* keep, float* o, std::ptrdiff_t o_stride,
                            const Ahead& ahead, const Map& map) {
  const int vectors = values.dim / kTile;
  const std::ptrdiff_t step_bytes = vectors * 8 * kBits;
  const int first_step = first / Ops::kPack;
  const int steps = (end + Ops::kPack - 1) / Ops::kPack - first_step;
  const ValuePlanes<kBits, Map> lines{values.data + first_step * step_bytes,
                                      step_bytes,
                                      vectors * 8 * PlaneCodes<kBits>::kLow,
                                      steps,
                                      0,
                                      map};
  mix_lines<Ops>(lines, values.dim, first_step, weights, keep, o, o_stride, ahead);
}

}  // namespace
}  // namespace quire
