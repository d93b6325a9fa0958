// Products straight on planes of codes (planes.h), without writing the unpacked codes anywhere:
// include after codec/ints_<set>.h.
//
// The loops are those of products.h. A vector of codes is found by its number in the token tile,
// shifted and masked out of the planes, and made an operand by `Map`: by its member `at`, or where
// it kTakesPlanes by `at_plane` or `at_planes`, from the planes as they lie. Only for tiles in
// which every unit of every plane is whole, or of values the last one of a plane of 1 bit half so;
// others are unpacked first.
#pragma once

#include <utility>

#include "codec/products.h"

namespace quire {
namespace {

template <int kBits>
struct PlaneCodes {
  static constexpr int kLow = kBits >= 4 ? 4 : 2;
  static constexpr int kHigh = kBits - kLow;
  // Vectors of 64 codes in whole units of both planes.
  static constexpr int kSpan = 8 / (kHigh == 0 ? kLow : kHigh < kLow ? kHigh : kLow);

  // Half `half` (of the lanes) of vector `vector` of 64 codes, mapped; the high plane has a number
  // of its own for it. kHalf: of the high plane there is half a unit.
  template <bool kHalf, class Map>
  QUIRE_INLINE static Ints at(const Map& map, const std::byte* low, int vector,
                              const std::byte* high, int high_vector, int half) {
    const int at = half * (4 * kLanes);
    const Ints lower = load_ints(low + vector / (8 / kLow) * 64 + at);
    const int shift = vector % (8 / kLow) * kLow;
    if constexpr (kHigh == 0) {
      if constexpr (Map::kTakesPlanes) {
        return map.at_plane(lower, shift);
      } else {
        return map.at(byte_bits<kLow>(lower, shift));
      }
    } else {
      const Ints upper =
          kHalf ? half_unit(high) : load_ints(high + high_vector / (8 / kHigh) * 64 + at);
      const int high_shift = kHalf ? 2 * high_vector + half : high_vector % (8 / kHigh) * kHigh;
      if constexpr (Map::kTakesPlanes) {
        return map.template at_planes<kLow>(lower, shift, upper, high_shift);
      } else {
        return map.at(join_bits<kLow, kHigh>(byte_bits<kLow>(lower, shift), upper, high_shift));
      }
    }
  }
};

// Bytes that a step reads for N vectors, and how often so many steps ask for what comes next: each
// for all its lines, or for one as seldom as they begin with another.
template <int kBits, int N>
constexpr int kPlaneStepBytes = N / kVectorsPerTile * 8 * kBits;
template <int kBits, int N>
constexpr int plane_asks(int steps) {
  constexpr int kBytes = kPlaneStepBytes<kBits, N>;
  return kBytes >= 64 ? steps : (steps * kBytes + 63) / 64;
}

// Whether what comes is fetched into the nearest cache, if it can. With AVX-512 planes are
// multiplied in less time than that takes: tq4 from memory is a quarter slower. With AVX2 tq4 is a
// tenth faster, tq6 and tq5 2 to 5 % slower.
template <int kBits>
constexpr bool kPlanesNearest = kRegisters == 16 && kBits <= 4;

// Keys: tiles of 16 tokens follow each other, the vectors of a tile are the steps.
template <int kBits, class Map>
struct KeyPlanes {
  static constexpr bool kNearest = kPlanesNearest<kBits>;
  template <class Ops, int N>
  static constexpr int kReadBytes = kPlaneStepBytes<kBits, N>;
  template <class Ops, int N>
  QUIRE_INLINE int asks() const {
    constexpr int kSpan = PlaneCodes<kBits>::kSpan;
    return steps / kSpan * plane_asks<kBits, N>(kSpan);
  }

  const std::byte* data;
  std::ptrdiff_t tile_bytes;
  std::ptrdiff_t high_at;  // of the high plane, in a tile
  int steps;
  const Map& map;

  QUIRE_INLINE void advance(int tiles) { data += tiles * tile_bytes; }
};

// Ops whose sums have 16 bits.
template <class Ops>
struct ShortSums : Ops {
  QUIRE_INLINE static void add(typename Ops::Sum& sum, const typename Ops::Operand& x,
                               const typename Ops::Weight& w) {
    sum = add_short(sum, x, w);
  }
};

// One step, or two at once.
template <class Ops, int R, int N>
QUIRE_INLINE void add_steps(const typename Ops::Operand (&x)[1][N], const std::byte* weights,
                            std::ptrdiff_t row_bytes, typename Ops::Sum (&sums)[R][N]) {
  add_step<Ops>([&](int n) QUIRE_INLINED { return x[0][n]; }, weights, row_bytes, sums);
}
template <class Ops, int R, int N>
QUIRE_INLINE void add_steps(const typename Ops::Operand (&x)[2][N], const std::byte* weights,
                            std::ptrdiff_t row_bytes, typename Ops::Sum (&sums)[R][N]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const typename Ops::Weight w = Ops::weight(weights + r * row_bytes);
    const typename Ops::Weight next_w = Ops::weight(weights + r * row_bytes + Ops::kStepBytes);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) Ops::add(sums[r][n], x[0][n], w, x[1][n], next_w);
  }
}

// Steps [from, from + count), in whole spans.
template <class Ops, int R, int N, int kBits, class Map, class Fetch>
QUIRE_INLINE void add_spans(const KeyPlanes<kBits, Map>& lines, int from, int count,
                            const std::byte* weights, std::ptrdiff_t row_bytes, Fetch& ahead,
                            typename Ops::Sum (&sums)[R][N]) {
  using Codes = PlaneCodes<kBits>;
  const std::byte* low = lines.data + from * 8 * Codes::kLow;
  const std::byte* high = lines.data + lines.high_at + from * 8 * Codes::kHigh;
  weights += from * Ops::kStepBytes;
  constexpr int kSteps = Ops::kTwoSteps ? 2 : 1;
  for (int step = 0; step < count; step += Codes::kSpan) {
#pragma GCC unroll 8
    for (int i = 0; i < Codes::kSpan; i += kSteps) {
      typename Ops::Operand x[kSteps][N];
#pragma GCC unroll 8
      for (int n = 0; n < kSteps * N; ++n) {
        const std::ptrdiff_t tile = n % N / kVectorsPerTile * lines.tile_bytes;
        const int at = i + n / N;
        x[n / N][n % N] = Ops::operand(Codes::template at<false>(
            lines.map, low + tile, at, high + tile, at, n % N % kVectorsPerTile));
      }
      add_steps<Ops>(x, weights, row_bytes, sums);
      weights += kSteps * Ops::kStepBytes;
      const int asks = plane_asks<kBits, N>(i + kSteps) - plane_asks<kBits, N>(i);
      if (asks > 0) ahead.step();
      if (asks > 1) ahead.step();
    }
    low += Codes::kSpan * 8 * Codes::kLow;
    high += Codes::kSpan * 8 * Codes::kHigh;
  }
}

template <class Ops, int R, int N, int kFirst, int kBits, class Map, class Fetch>
QUIRE_INLINE void add_products(const KeyPlanes<kBits, Map>& lines, const std::byte* weights,
                               std::ptrdiff_t row_bytes, Fetch& ahead,
                               typename Ops::Sum (&sums)[R][N]) {
  static_assert(kFirst == 0 && N % kVectorsPerTile == 0);
  constexpr int kRun = Ops::kShortSteps / PlaneCodes<kBits>::kSpan * PlaneCodes<kBits>::kSpan;
  if constexpr (kRun == 0) {
    add_spans<Ops>(lines, 0, lines.steps, weights, row_bytes, ahead, sums);
  } else {
    for (int step = 0; step < lines.steps; step += kRun) {
      typename Ops::Sum shorts[R][N];
#pragma GCC unroll 8
      for (int i = 0; i < R * N; ++i) shorts[i / N][i % N] = Ops::zero();
      const int count = lines.steps - step < kRun ? lines.steps - step : kRun;
      add_spans<ShortSums<Ops>>(lines, step, count, weights, row_bytes, ahead, shorts);
#pragma GCC unroll 8
      for (int i = 0; i < R * N; ++i) {
        sums[i / N][i % N] = add_shorts(sums[i / N][i % N], shorts[i / N][i % N]);
      }
    }
  }
}

// Values: tiles of 4 tokens are the steps, the vectors of a tile hold 16 channels each. kHalf: they
// are 4, which fill half a unit of a plane of 1 bit.
constexpr int kHalfVectors = 4;
template <int kBits, class Map, bool kHalf = false>
struct ValuePlanes {
  static constexpr bool kNearest = kPlanesNearest<kBits>;
  template <class Ops, int N>
  static constexpr int kReadBytes = kPlaneStepBytes<kBits, N>;
  template <class Ops, int N>
  QUIRE_INLINE int asks() const {
    constexpr int kSteps = Ops::kTwoSteps ? 2 : 1;
    return steps / kSteps * plane_asks<kBits, N>(kSteps);
  }

  const std::byte* data;
  std::ptrdiff_t step_bytes;
  std::ptrdiff_t high_at;
  int steps;
  int first;  // vector
  const Map& map;

  QUIRE_INLINE void advance(int tiles) { first += tiles; }
};

// Which vector of a unit a block begins with, and with it all shifts: kLowFirst and kHighFirst,
// where they are not kSomeVector.
constexpr int kSomeVector = -1;
template <class Ops, int kLowFirst, int kHighFirst, int R, int N, int kBits, class Map, bool kHalf,
          class Fetch>
QUIRE_INLINE void add_block(const ValuePlanes<kBits, Map, kHalf>& lines, const std::byte* weights,
                            std::ptrdiff_t row_bytes, Fetch& ahead,
                            typename Ops::Sum (&sums)[R][N]) {
  using Codes = PlaneCodes<kBits>;
  const std::byte* low = lines.data;
  const std::byte* high = lines.data + lines.high_at;
  int first = lines.first;
  int high_first = lines.first;
  if constexpr (kLowFirst != kSomeVector) {
    low += (lines.first - kLowFirst) * 8 * Codes::kLow;
    first = kLowFirst;
  }
  if constexpr (kHighFirst != kSomeVector) {
    high += (lines.first - kHighFirst) * 8 * Codes::kHigh;
    high_first = kHighFirst;
  }
  constexpr int kSteps = Ops::kTwoSteps ? 2 : 1;  // slots come in tiles of 16, so steps in fours
  for (int step = 0; step < lines.steps; step += kSteps) {
    typename Ops::Operand x[kSteps][N];
#pragma GCC unroll 8
    for (int n = 0; n < kSteps * N; ++n) {
      const int vector = n % N / kVectorsPerTile;
      const std::ptrdiff_t next = n / N * lines.step_bytes;
      x[n / N][n % N] =
          Ops::operand(Codes::template at<kHalf>(lines.map, low + next, first + vector, high + next,
                                                 high_first + vector, n % N % kVectorsPerTile));
    }
    add_steps<Ops>(x, weights, row_bytes, sums);
    low += kSteps * lines.step_bytes;
    high += kSteps * lines.step_bytes;
    weights += kSteps * Ops::kStepBytes;
    ahead.step();
    if (plane_asks<kBits, N>(kSteps) > 1) ahead.step();
  }
}

// Blocks begin at a multiple of their vectors, so at few places of a unit; there is a loop for
// each.
template <class Ops, int R, int N, int kFirst, int kBits, class Map, bool kHalf, class Fetch>
QUIRE_INLINE void add_products(const ValuePlanes<kBits, Map, kHalf>& lines,
                               const std::byte* weights, std::ptrdiff_t row_bytes, Fetch& ahead,
                               typename Ops::Sum (&sums)[R][N]) {
  static_assert(kFirst == 0 && N % kVectorsPerTile == 0);
  using Codes = PlaneCodes<kBits>;
  constexpr int kVectors = N / kVectorsPerTile;
  constexpr int kLowUnit = 8 / Codes::kLow;
  constexpr int kHighUnit = Codes::kHigh == 0 ? 1 : 8 / Codes::kHigh;
  constexpr int kSpan = kHalf ? kHalfVectors : Codes::kSpan;
  constexpr int kBegins = kSpan > kVectors ? kSpan / kVectors : 1;
  if constexpr (kVectors == 1 && kRegisters == 32) {  // only of sizes that are no multiple of 64
    add_block<Ops, kSomeVector, kSomeVector>(lines, weights, row_bytes, ahead, sums);
  } else {
    const int begin = lines.first / kVectors % kBegins;
    const auto add = [&]<int... kBegin>(std::integer_sequence<int, kBegin...>) QUIRE_INLINED {
      ((begin == kBegin
            ? add_block<Ops, kBegin * kVectors % kLowUnit, kBegin * kVectors % kHighUnit>(
                  lines, weights, row_bytes, ahead, sums)
            : void()),
       ...);
    };
    add(std::make_integer_sequence<int, kBegins>());
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

// Whether a tile of values ends with half a unit of a plane of 1 bit, all other units being whole.
template <int kBits>
constexpr bool ends_in_half(int vectors) noexcept {
  return PlaneCodes<kBits>::kHigh == 1 && vectors % PlaneCodes<kBits>::kSpan == kHalfVectors;
}

// Whether the units of a tile are such as can be multiplied where they lie.
template <int kBits>
inline bool fits_units(Side side, int dim) noexcept {
  const int vectors = side == Side::key ? (dim + 3) / 4 : dim / kTile;
  return vectors % PlaneCodes<kBits>::kSpan == 0 ||
         (side == Side::value && ends_in_half<kBits>(vectors));
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
               [&](int row, int lane, const auto& sums) QUIRE_INLINED {
                 const auto header = Ops::header(queries.rows + row * queries.stride, 0);
                 store_scores<Ops>(sums, header, scales + lane * 2, out + row * out_stride + lane);
               });
}

template <class Ops, int kBits, class Map>
QUIRE_INLINE void plane_mix(const PageSide& values, int first, int end, const Operands& weights,
                            const float* keep, float* o, std::ptrdiff_t o_stride,
                            const Ahead& ahead, const Map& map) {
  using Codes = PlaneCodes<kBits>;
  const int vectors = values.dim / kTile;
  const std::ptrdiff_t step_bytes = vectors * 8 * kBits;
  const std::ptrdiff_t high_at = vectors * 8 * Codes::kLow;
  const int first_step = first / Ops::kPack;
  const int steps = (end + Ops::kPack - 1) / Ops::kPack - first_step;
  const std::byte* data = values.data + first_step * step_bytes;
  const int whole = vectors - (ends_in_half<kBits>(vectors) ? kHalfVectors : 0);
  if (whole > 0) {
    const ValuePlanes<kBits, Map> lines{data, step_bytes, high_at, steps, 0, map};
    mix_lines<Ops>(lines, whole * kTile, first_step, weights, keep, o, o_stride, ahead);
  }
  if constexpr (Codes::kHigh == 1) {
    if (whole == vectors) return;
    const ValuePlanes<kBits, Map, true> lines{data + whole * 8 * Codes::kLow,
                                              step_bytes,
                                              high_at + whole * 8 * (1 - Codes::kLow),
                                              steps,
                                              0,
                                              map};
    mix_lines<Ops>(lines, kHalfVectors * kTile, first_step, weights, keep, o + whole * kTile,
                   o_stride, whole > 0 ? Ahead{} : ahead);
  }
}

}  // namespace
}  // namespace quire
