// What kernels that multiply integers share: include after codec/ints_<set>.h.
//
// Queries, and weights times the scales of their values, become integers with one scale per row:
// the largest magnitude over the largest integer. A prepared row is a header of 16 bytes, then the
// integers. Codes may count from a middle and be multiplied as if they did not: the sum of the
// row's integers times the middle is then taken off their sum, modulo 2^32 like all of it.
#pragma once

#include "codec/products.h"

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
  QUIRE_INLINE static Floats score(const Sum& sum, const std::byte* at, int,
                                   const std::byte* scales) {
    const auto& header = *reinterpret_cast<const IntHeader*>(at);
    const Floats dots = mul(to_floats(sub_ints(sum, header.offset)), spread(header.scale));
    return mul(quire::add(dots, spread(header.base)), load_f16(scales));
  }
  QUIRE_INLINE static Floats mixed(const Sum& sum, const std::byte* at) {
    const auto& header = *reinterpret_cast<const IntHeader*>(at);
    return mul(to_floats(sub_ints(sum, header.offset)), spread(header.scale));
  }
  static_assert(kHeaderBytes == sizeof(IntHeader));
};

// The sum of all lanes.
QUIRE_INLINE int sum_of_ints(const Ints& a) {
  std::int32_t lanes[kLanes];
  store_ints(reinterpret_cast<std::byte*>(lanes), a);
  int sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += lanes[i];
  return sum;
}

// `sum` times `middle`, modulo 2^32.
QUIRE_INLINE int offset_of(int sum, int middle) {
  return static_cast<int>(static_cast<unsigned>(sum) * static_cast<unsigned>(middle));
}

// What floats are multiplied by to become integers up to `most`, and integers to become floats.
struct IntScale {
  float to_ints;
  float to_floats;
};

// For `count` floats, a multiple of 16. A NaN or an infinity makes to_floats NaN or infinite, and
// with it all that is multiplied.
QUIRE_INLINE IntScale int_scale(const float* from, int count, float most) {
  Floats magnitudes = zeros();
  for (int i = 0; i < count; i += kLanes) {
    magnitudes = larger_magnitude(magnitudes, load_floats(from + i));
  }
  const float largest = largest_magnitude_of(magnitudes);
  // Too small to have a reciprocal, and to be seen beside anything else.
  if (largest < 1e-33f) return {0.0f, 0.0f};
  return {most / largest, largest / most};
}

// The weights [first, end) times the scales of their values.
QUIRE_INLINE void scale_weights(const PageSide& values, const float* weights, int first, int end,
                                float (&scaled)[256]) {
  for (int t = first; t < end; t += kLanes) {
    store_floats(scaled + t - first,
                 mul(load_floats(weights + t), load_f16(values.scales + t * 2)));
  }
}

}  // namespace
}  // namespace quire
