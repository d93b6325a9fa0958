// What kernels that multiply integers share: include after codec/ints_<set>.h.
//
// Queries, and weights times the scales of their values, become integers with one scale per row:
// the largest magnitude over the largest integer. A prepared row is a header of 16 bytes, then the
// integers. Codes may count from a middle and be multiplied as if they did not: the sum of the
// row's integers times the middle is then taken off their sum, modulo 2^32 like all of it.
#pragma once

#include "codec/products.h"
#include "codec/weights.h"

namespace quire {
namespace {

struct IntHeader {
  float scale;  // what sums are multiplied by
  int offset;   // what is taken off sums first, for codes that count from a middle
  float base;   // keys: what is added to a score before the token's scale
  int unused;
};

struct IntOps {
  static constexpr int kHeaderBytes = 16;
  static constexpr int kQueryHeaderBytes = 16;
  static constexpr bool kQueryRest = false;
  static constexpr int kStepBytes = 4;
  static constexpr int kMaxRows = rows_for(6, 4);
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
    return mul(to_floats(sub_ints(sum, header.offset)), header.scale);
  }
  static_assert(kHeaderBytes == sizeof(IntHeader));
};

// `sum` times `middle`, modulo 2^32.
QUIRE_INLINE int offset_of(int sum, int middle) {
  return static_cast<int>(static_cast<unsigned>(sum) * static_cast<unsigned>(middle));
}

// What floats are multiplied by to become integers up to `most`, and integers to become floats.
struct IntScale {
  float to_ints;
  float to_floats;
};

// For floats of which `largest` is the largest magnitude. A NaN or an infinity makes to_floats NaN
// or infinite, and with it all that is multiplied.
QUIRE_INLINE IntScale int_scale_of(float largest, float most) {
  // Too small to have a reciprocal, and to be seen beside anything else.
  if (largest < 1e-33f) return {0.0f, 0.0f};
  return {most / largest, largest / most};
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

// Writes R rows of integers, made by `Store`, `behind` bytes after their headers: scales times
// `level`, and offsets for codes that count from `middle`. from: [row][count], a multiple of 16,
// rows `from_stride` floats apart, whose largest magnitudes (or what stands for them) are given;
// rows: of the headers, `stride` bytes apart.
template <class Store, int R>
QUIRE_INLINE void store_rows(const float* from, std::ptrdiff_t from_stride, int count,
                             const float* largest, float level, int middle, std::byte* rows,
                             std::ptrdiff_t stride, std::ptrdiff_t behind = 0) {
  Ints sums[4] = {zero_ints(), zero_ints(), zero_ints(), zero_ints()};
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const IntScale scale = int_scale_of(largest[r], Store::kMost);
    std::byte* row = rows + r * stride;
    sums[r] = Store::store(from + r * from_stride, count, scale.to_ints,
                           row + sizeof(IntHeader) + behind);
    reinterpret_cast<IntHeader*>(row)->scale = scale.to_floats * level;
  }
  std::int32_t totals[4];
  sums_of_int_rows(sums, totals);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    auto& header = *reinterpret_cast<IntHeader*>(rows + r * stride);
    header.offset = offset_of(totals[r], middle);
    header.base = 0.0f;
    header.unused = 0;
  }
}

// Weights times the scales of their values, in place of the logits, and the largest of each row.
template <int R, class Of = AsTheyAre>
struct ScaledWeights {
  const PageSide& values;
  const Logits& logits;
  int row;
  Floats largest[4] = {zeros(), zeros(), zeros(), zeros()};
  float largest_of_row[4];

  QUIRE_INLINE ScaledWeights(const PageSide& v, const Logits& l, int first_row)
      : values(v), logits(l), row(first_row) {}
  QUIRE_INLINE void take(int t, Floats (&weights)[R]) {
    const Floats scales = load_f16(values.scales + t * 2);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const Floats scaled = mul(weights[r], scales);
      store_floats(logits.row(row + r) + t, scaled);
      largest[r] = larger_magnitude(largest[r], Of::of(scaled));
    }
  }
  QUIRE_INLINE void done() { largest_magnitudes_of_rows(largest, largest_of_row); }
};

}  // namespace
}  // namespace quire
