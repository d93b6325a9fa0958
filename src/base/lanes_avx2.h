// Eight floats in one AVX2 register. For files compiled for AVX2 only: everything here has internal
// linkage on purpose.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "base/exp2_terms.h"

namespace quire {
namespace {

using Floats = __m256;
using Quad = __m128;
constexpr int kLanes = 8;
constexpr int kRegisters = 16;

inline Floats load_floats(const void* from) {
  return _mm256_loadu_ps(static_cast<const float*>(from));
}
inline void store_floats(float* to, Floats a) { _mm256_storeu_ps(to, a); }
inline Floats spread(float value) { return _mm256_set1_ps(value); }
inline Floats zeros() { return _mm256_setzero_ps(); }
inline Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
inline Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
inline Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
// a b + c, rounded once.
inline Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
// The larger; NaN where one is.
inline Floats larger(Floats a, Floats b) {
  return _mm256_blendv_ps(_mm256_max_ps(b, a), b, _mm256_cmp_ps(b, b, _CMP_UNORD_Q));
}
// The larger; b where one is NaN.
inline Floats larger_number(Floats a, Floats b) { return _mm256_max_ps(a, b); }
inline Floats load_f16(const void* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(from)));
}

// The first and the second of each pair of bf16.
inline Floats load_even_bf16(const void* from) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(from)), 16));
}
inline Floats load_odd_bf16(const void* from) {
  return _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(static_cast<const __m256i*>(from)),
                                              _mm256_set1_epi32(-65536)));
}

// Lanes [begin, end) of a, `other` elsewhere.
inline Floats only(Floats a, int begin, int end, Floats other) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i inside = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(begin), lane),
                                             _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane));
  return _mm256_blendv_ps(other, a, _mm256_castsi256_ps(inside));
}

// 2^a for a <= 0, as exact as Exp2Terms<kDegree> says where that is a normal number; 0 from
// 2^-126.5 down; NaN stays NaN.
template <int kDegree = 5>
inline Floats exp2(Floats a) {
  const Floats bounded = _mm256_max_ps(spread(-127.0f), a);  // NaN stays
  // Beside so large a number there is no room for less than 1: the sum is rounded, and its lowest
  // bits are the exponent of the result.
  const Floats large = spread(12582912.0f + 127.0f);
  const Floats rounded = add(bounded, large);
  const Floats part = sub(bounded, sub(rounded, large));
  Floats sum = spread(Exp2Terms<kDegree>::kTerms[0]);
#pragma GCC unroll 4
  for (int i = 1; i < kDegree; ++i) sum = fma(sum, part, spread(Exp2Terms<kDegree>::kTerms[i]));
  sum = fma(sum, part, spread(1.0f));
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(rounded), 23);
  return mul(sum, _mm256_castsi256_ps(exponent));
}
inline Quad exp2(Quad a) { return _mm256_castps256_ps128(exp2(_mm256_castps128_ps256(a))); }

// Folds the lanes as a tree.
inline float sum_of(Floats a) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
// The largest lane; NaN where one is.
inline float largest_of(Floats a) {
  if (_mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)) != 0) return __builtin_nanf("");
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

// Folds the lanes of four rows at once: those of row i become lane i.
struct AddLanes {
  static __m256 of(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
  static __m128 of(__m128 a, __m128 b) { return _mm_add_ps(a, b); }
};
struct LargerNumbers {
  static __m256 of(__m256 a, __m256 b) { return _mm256_max_ps(a, b); }
  static __m128 of(__m128 a, __m128 b) { return _mm_max_ps(a, b); }
};
template <class Fold>
inline Quad fold_rows(const Floats (&rows)[4]) {
  const __m256 ab =
      Fold::of(_mm256_unpacklo_ps(rows[0], rows[1]), _mm256_unpackhi_ps(rows[0], rows[1]));
  const __m256 cd =
      Fold::of(_mm256_unpacklo_ps(rows[2], rows[3]), _mm256_unpackhi_ps(rows[2], rows[3]));
  const __m256 all = Fold::of(_mm256_shuffle_ps(ab, cd, _MM_SHUFFLE(1, 0, 1, 0)),
                              _mm256_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 2, 3, 2)));
  return Fold::of(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
}
inline Quad sums_of_rows(const Floats (&rows)[4]) { return fold_rows<AddLanes>(rows); }
// Requires: no lane is NaN.
inline Quad largest_of_rows(const Floats (&rows)[4]) { return fold_rows<LargerNumbers>(rows); }

// Inlined always: g++ takes a function of nothing but a prefetch as one without effect.
[[gnu::always_inline]] inline void prefetch(const std::byte* at) {
  _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T1);
}
[[gnu::always_inline]] inline void prefetch_nearest(const std::byte* at) {
  _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
}

}  // namespace
}  // namespace quire
