// Sixteen floats in one AVX-512 register. For files compiled for AVX-512 only: everything here has
// internal linkage on purpose.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "base/exp2_terms.h"

namespace quire {
namespace {

using Floats = __m512;
using Quad = __m128;
constexpr int kLanes = 16;
constexpr int kRegisters = 32;

inline Floats load_floats(const void* from) { return _mm512_loadu_ps(from); }
inline void store_floats(float* to, Floats a) { _mm512_storeu_ps(to, a); }
inline Floats spread(float value) { return _mm512_set1_ps(value); }
inline Floats zeros() { return _mm512_setzero_ps(); }
inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
inline Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
// a b + c, rounded once.
inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
// The larger; NaN where one is.
inline Floats larger(Floats a, Floats b) {
  return _mm512_mask_mov_ps(_mm512_max_ps(b, a), _mm512_cmp_ps_mask(b, b, _CMP_UNORD_Q), b);
}
// The larger; b where one is NaN.
inline Floats larger_number(Floats a, Floats b) { return _mm512_max_ps(a, b); }
inline Floats load_f16(const void* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(from)));
}

// Lanes [begin, end) of a, `other` elsewhere.
inline Floats only(Floats a, int begin, int end, Floats other) {
  const std::uint32_t below = (1u << end) - 1u;
  const std::uint32_t before = (1u << begin) - 1u;
  return _mm512_mask_mov_ps(other, static_cast<__mmask16>(below & ~before), a);
}

// Nearest bf16 values.
inline Floats round_to_bf16(Floats a) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(
      _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(a))), 16));
}

// 2^a for a <= 0, as exact as Exp2Terms<kDegree> says down to 2^-126; NaN stays NaN.
template <int kDegree = 5>
inline Floats exp2(Floats a) {
  const Floats whole = _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const Floats part = sub(a, whole);  // NaN for -inf, of which the last step makes 0
  Floats sum = spread(Exp2Terms<kDegree>::kTerms[0]);
#pragma GCC unroll 4
  for (int i = 1; i < kDegree; ++i) sum = fma(sum, part, spread(Exp2Terms<kDegree>::kTerms[i]));
  sum = fma(sum, part, spread(1.0f));
  return _mm512_scalef_ps(sum, whole);
}
inline Quad exp2(Quad a) { return _mm512_castps512_ps128(exp2(_mm512_castps128_ps512(a))); }

// Folds the lanes as a tree.
inline float sum_of(Floats a) { return _mm512_reduce_add_ps(a); }
// The largest lane; NaN where one is.
inline float largest_of(Floats a) {
  if (_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0) return __builtin_nanf("");
  return _mm512_reduce_max_ps(a);
}

// Folds the lanes of four rows at once: those of row i become lane i.
struct AddLanes {
  static __m512 of(__m512 a, __m512 b) { return _mm512_add_ps(a, b); }
  static __m256 of(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
  static __m128 of(__m128 a, __m128 b) { return _mm_add_ps(a, b); }
};
struct LargerNumbers {
  static __m512 of(__m512 a, __m512 b) { return _mm512_max_ps(a, b); }
  static __m256 of(__m256 a, __m256 b) { return _mm256_max_ps(a, b); }
  static __m128 of(__m128 a, __m128 b) { return _mm_max_ps(a, b); }
};
template <class Fold>
inline Quad fold_rows(const Floats (&rows)[4]) {
  const __m512 ab =
      Fold::of(_mm512_unpacklo_ps(rows[0], rows[1]), _mm512_unpackhi_ps(rows[0], rows[1]));
  const __m512 cd =
      Fold::of(_mm512_unpacklo_ps(rows[2], rows[3]), _mm512_unpackhi_ps(rows[2], rows[3]));
  const __m512 all = Fold::of(_mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(1, 0, 1, 0)),
                              _mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 2, 3, 2)));
  const __m256 half = Fold::of(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
  return Fold::of(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
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
