// What kernels that multiply integers share: include after codec/ints_<set>.h.
//
// Queries, and weights times the scales of their values, become integers with one scale per row:
// the largest magnitude, or what stands for it, over the largest integer. A prepared row is a
// header, then the integers, aligned so that no vector of them crosses a line. 8-bit ones of
// queries that are prepared once for many pages are there kCopies times: as vectors, of each lane
// one, where a multiplication takes these from memory. (Of 15 bits, those of many queries would
// not fit the nearest cache.) Codes may count from a middle and be multiplied as if they did not:
// the sum of the row's integers times the middle is then taken off their sum; what is whole of it
// modulo 2^32, like all of it, a half in floats.
#pragma once

#include "codec/products.h"
#include "codec/weights.h"

namespace quire {
namespace {

struct alignas(64) IntHeader {
  float scale;  // what sums are multiplied by
  int offset;   // what is taken off sums first, for codes that count from a middle
  float base;   // what is added then: to a score before the token's scale
};

constexpr int kCopies = kKeepsSpread ? kLanes : 1;
QUIRE_INLINE Ints spread_copies(const std::byte* at) {
  return kKeepsSpread ? load_ints(at) : spread_ints(at);
}
QUIRE_INLINE void store_copies(std::byte* to, const Ints& a) {
  std::byte lanes[sizeof a];
  store_ints(lanes, a);
  for (std::size_t i = 0; i < kLanes; ++i) {
    store_ints(to + i * sizeof a, spread_ints(lanes + i * 4));
  }
}

struct IntOps {
  static constexpr int kHeaderBytes = 64;
  static constexpr int kQueryHeaderBytes = 64;
  static constexpr bool kQueryRest = false;
  static constexpr int kStepBytes = 4;
  static constexpr int kMaxRows = rows_for(6, 4);
  static constexpr bool kInTwos = false;
  static constexpr int vectors(int rows) { return vectors_for(rows); }
  using Sum = Ints;
  using Operand = Ints;
  using Weight = Ints;
  QUIRE_INLINE static Sum zero() { return zero_ints(); }
  QUIRE_INLINE static Operand load(const std::byte* data) { return load_ints(data); }
  QUIRE_INLINE static Weight weight(const std::byte* at) { return spread_ints(at); }
  struct Header {
    Ints offset;
    Floats scale, base;
  };
  QUIRE_INLINE static Header header(const std::byte* row, int) {
    const auto& numbers = *reinterpret_cast<const IntHeader*>(row);
    return {spread_ints(reinterpret_cast<const std::byte*>(&numbers.offset)), spread(numbers.scale),
            spread(numbers.base)};
  }
  QUIRE_INLINE static Floats score(const Sum& sum, const Header& header, const std::byte* scales) {
    const Floats dots = to_floats(sub_ints(sum, header.offset));
    return mul(fma(dots, header.scale, header.base), load_f16(scales));
  }
  QUIRE_INLINE static Floats mixed(const Sum& sum, const Header& header) {
    return fma(to_floats(sum), header.scale, header.base);
  }
  static_assert(kHeaderBytes == sizeof(IntHeader));
};

// `sum` times `middle`, modulo 2^32.
QUIRE_INLINE int offset_of(int sum, int middle) {
  return static_cast<int>(static_cast<unsigned>(sum) * static_cast<unsigned>(middle));
}

// What the floats of four rows are multiplied by to become integers up to `most`, and integers to
// become floats.
struct IntScales {
  Quad to_ints;
  Quad to_floats;
};

// For rows of which `largest` are the largest magnitudes. A NaN or an infinity makes to_floats NaN,
// and with it all that is multiplied: codes of such a row may be anything, and too large.
QUIRE_INLINE IntScales int_scales_of(const Quad& largest, float most) {
  const Quad none = {};
  // Too small to have a reciprocal, and to be seen beside anything else.
  const auto tiny = largest < 1e-33f;
  return {tiny ? none : most / largest, tiny ? none : largest / most + (largest - largest)};
}

// The largest magnitude of `count` floats, a multiple of 16, or of what `of` makes of them.
struct AsTheyAre {
  QUIRE_INLINE static Floats of(Floats a) { return a; }
};
template <class Of = AsTheyAre>
QUIRE_INLINE float largest_magnitude(const float* from, int count) {
  Floats magnitudes = zeros();
  for (int i = 0; i < count; i += kLanes) {
    magnitudes = larger_magnitude(magnitudes, Of::of(load_floats(from + i)));
  }
  return largest_magnitude_of(magnitudes);
}

// What is added to floats before they are rounded, between -1/2 and 1/2, and different in each of
// 64 places: numbers that are small beside the largest then add up to what they are, where rounding
// to the nearest makes zeros of them all. 0 stays 0.
struct Dither {
  static constexpr int kCount = 64;
  static constexpr int kAtOnce = 4 * kTile;  // floats that become one vector, at most
  // Of places of a row in the order of their bits read backwards, and those of the first again.
  alignas(64) float shifts[kCount + kAtOnce];
  constexpr Dither() : shifts() {
    for (int i = 0; i < kCount + kAtOnce; ++i) {
      int backwards = 0;
      for (int bit = 1; bit < kCount; bit *= 2) backwards = 2 * backwards + (i & bit ? 1 : 0);
      shifts[i] = (static_cast<float>(backwards) + 0.5f) / kCount - 0.5f;
    }
  }
  // Of place `i` and the next kAtOnce - 1.
  QUIRE_INLINE const float* at(int i) const {
    return shifts + static_cast<unsigned>(i) % unsigned{kCount};
  }
};
constexpr Dither kDither;

// Writes the integers of `count` floats, a multiple of 16, in whole vectors: those behind become 0.
// load(i): kLanes of them; `first`: the place of the first in its row, a multiple of 16 too. Lanes
// of the result add up to their sum, or are 0 without kSums. `Kind` says how floats become
// integers:
//
//     kMost          the largest magnitude
//     kDithers       whether they are dithered
//     kTimes         how often they are there: 1 or kCopies
//     kFloats        vectors of floats that become one vector
//     of(floats)     that vector
//     kSums          whether they are summed
//     add(sums, of)  its sums added to those of others
template <class Kind, class Load>
QUIRE_INLINE Ints store_ints_of(const Load& load, int count, float to_ints, std::byte* to,
                                int first = 0) {
  constexpr int kVector = Kind::kFloats * kLanes;
  const Floats factor = spread(to_ints);
  Ints sums = zero_ints();
  static_assert(kVector <= Dither::kAtOnce);
  const auto store = [&](int i, int left) QUIRE_INLINED {
    const float* shifts = kDither.at(first + i);
    const auto scaled = [&](int j) QUIRE_INLINED {
      if constexpr (Kind::kDithers) return fma(load(i + j), factor, load_floats(shifts + j));
      return mul(load(i + j), factor);
    };
    Floats floats[Kind::kFloats];
#pragma GCC unroll 4
    for (int j = 0; j < Kind::kFloats; ++j) {
      floats[j] = j * kLanes < left ? scaled(j * kLanes) : zeros();
    }
    const Ints ints = Kind::of(floats);
    std::byte* at = to + i * Kind::kTimes * static_cast<int>(sizeof(Ints)) / kVector;
    if constexpr (Kind::kTimes > 1) {
      store_copies(at, ints);
    } else {
      store_ints(at, ints);
    }
    if constexpr (Kind::kSums) sums = Kind::add(sums, ints);
  };
  int i = 0;
  for (; i + kVector <= count; i += kVector) store(i, kVector);
  if (i < count) store(i, count - i);
  return sums;
}

// Writes R rows of integers, of `Kind`, from place `first` on behind their headers: scales times
// `level`, and offsets for codes that count from `middle`, which is not negative (for values: below
// 1; 0 without kSums). load(row, i): kLanes floats of a row's `count`, a multiple of 16, whose
// largest magnitudes (or what stands for them) are given; rows: of the headers, `stride` bytes
// apart.
template <class Kind, int R, class Load>
QUIRE_INLINE void store_rows(const Load& load, int count, const Quad& largest, float level,
                             float middle, std::byte* rows, std::ptrdiff_t stride, int first = 0) {
  constexpr int kVector = Kind::kFloats * kLanes;
  const int behind = static_cast<int>(sizeof(IntHeader)) +
                     first * Kind::kTimes * static_cast<int>(sizeof(Ints)) / kVector;
  Ints sums[4] = {zero_ints(), zero_ints(), zero_ints(), zero_ints()};
  const IntScales scales = int_scales_of(largest, Kind::kMost);
  const Quad levels = scales.to_floats * level;
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    std::byte* row = rows + r * stride;
    sums[r] = store_ints_of<Kind>([&](int i) QUIRE_INLINED { return load(r, i); }, count,
                                  scales.to_ints[r], row + behind, first);
    reinterpret_cast<IntHeader*>(row)->scale = levels[r];
  }
  std::int32_t totals[4] = {};
  if constexpr (Kind::kSums) sums_of_int_rows(sums, totals);
  const int whole = static_cast<int>(middle);
  const float rest = middle - static_cast<float>(whole);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    auto& header = *reinterpret_cast<IntHeader*>(rows + r * stride);
    header.offset = offset_of(totals[r], whole);
    header.base = rest == 0.0f ? 0.0f : -rest * static_cast<float>(totals[r]) * levels[r];
  }
}

// Weights times the scales of their values, and the largest of each row: in place of the dot
// products, or for V > 0 in variables, most of which are registers.
template <int R, int V, class Of = AsTheyAre>
struct ScaledWeights {
  static constexpr bool kKeeps = true;
  const Logits& logits;
  int row;
  const std::byte* scales;
  float* rows[R];
  Floats kept[R][V > 0 ? V : 1];
  Floats largest[4] = {zeros(), zeros(), zeros(), zeros()};
  Quad largest_of_row;

  QUIRE_INLINE ScaledWeights(const PageSide& values, const Logits& l, int first_row)
      : logits(l), row(first_row), scales(values.scales + l.first * 2) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) rows[r] = l.row(first_row + r) + l.first;
  }
  QUIRE_INLINE void take(int v, Floats (&weights)[R]) {
    const Floats scale = load_f16(scales + v * kLanes * 2);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const Floats scaled = mul(weights[r], scale);
      if constexpr (V > 0) {
        kept[r][v] = scaled;
      } else {
        store_floats(rows[r] + v * kLanes, scaled);
      }
      largest[r] = larger_magnitude(largest[r], Of::of(scaled));
    }
  }
  QUIRE_INLINE void done() { largest_of_row = largest_magnitudes_of_rows(largest); }

  // Those of slots [first + i, first + i + kLanes).
  QUIRE_INLINE Floats at(int r, int i) const {
    if constexpr (V > 0) return kept[r][i / kLanes];
    return load_floats(rows[r] + i);
  }
  QUIRE_INLINE int count() const { return V > 0 ? V * kLanes : logits.end - logits.first; }
};

}  // namespace
}  // namespace quire
