// Sixteen floats in one AVX-512 register. For files compiled for AVX-512 only: everything here has
// internal linkage on purpose.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace quire {
namespace {

using Floats = __m512;
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

// 2^a for a <= 0, with an error below 2e-7 of it; 0 below 2^-125; NaN stays NaN.
inline Floats exp2(Floats a) {
  const Floats whole = _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const Floats part = _mm512_sub_ps(a, whole);
  Floats sum = spread(1.535336188319500e-4f);
  sum = fma(sum, part, spread(1.339887440266574e-3f));
  sum = fma(sum, part, spread(9.618437357674640e-3f));
  sum = fma(sum, part, spread(5.550332471162809e-2f));
  sum = fma(sum, part, spread(2.402264791363012e-1f));
  sum = fma(sum, part, spread(6.931472028550421e-1f));
  sum = fma(sum, part, spread(1.0f));
  const __mmask16 tiny = _mm512_cmp_ps_mask(a, spread(-125.0f), _CMP_LT_OQ);
  return _mm512_mask_mov_ps(_mm512_scalef_ps(sum, whole), tiny, zeros());
}

// Folds the lanes as a tree.
inline float sum_of(Floats a) { return _mm512_reduce_add_ps(a); }
// The largest lane; NaN where one is.
inline float largest_of(Floats a) {
  if (_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0) return __builtin_nanf("");
  return _mm512_reduce_max_ps(a);
}

// Inlined always: g++ takes a function of nothing but a prefetch as one without effect.
[[gnu::always_inline]] inline void prefetch(const std::byte* at) {
  _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T1);
}

}  // namespace
}  // namespace quire
