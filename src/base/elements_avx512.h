// Elements of any dtype as sixteen lanes of one AVX-512 register, and back. For files compiled for
// AVX-512 only: everything here has internal linkage on purpose.
#pragma once

#include <cstring>

#include "base/lanes_avx512.h"
#include "quire/spec.hpp"

namespace quire {
namespace {

constexpr std::size_t kVectorBytes = 64;
using Bits = std::uint32_t __attribute__((vector_size(64)));

inline Floats floats_of(Bits a) { return reinterpret_cast<__m512>(a); }
inline Bits bits_of(Floats a) { return reinterpret_cast<Bits>(a); }
inline Bits bits_of(__m512i a) { return reinterpret_cast<Bits>(a); }
inline __m512i whole(Bits a) { return reinterpret_cast<__m512i>(a); }

inline Bits spread(std::uint32_t a) {
  return bits_of(_mm512_set1_epi32(static_cast<std::int32_t>(a)));
}
inline Bits count_up() {
  return bits_of(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

inline Bits load_bits(const void* at) { return bits_of(_mm512_loadu_si512(at)); }
inline void store_bits(void* at, Bits a) { _mm512_storeu_si512(at, whole(a)); }

inline __mmask16 first_lanes(int count) { return static_cast<__mmask16>((1u << count) - 1u); }

// The first `count` lanes, 0 <= count <= kLanes.
inline void store_bits(void* at, Bits a, int count) {
  _mm512_mask_storeu_epi32(at, first_lanes(count), whole(a));
}

inline Floats widen_f16(__m256i halves) { return _mm512_cvtph_ps(halves); }
inline Floats widen_bf16(__m256i halves) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

template <DType kFrom>
inline Floats load(const std::byte* at) {
  if constexpr (kFrom == DType::f32) return _mm512_loadu_ps(at);
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  return kFrom == DType::f16 ? widen_f16(halves) : widen_bf16(halves);
}

// `count` elements and zeros behind them, 0 <= count <= kLanes.
template <DType kFrom>
inline Floats load(const std::byte* at, int count) {
  if constexpr (kFrom == DType::f32) return _mm512_maskz_loadu_ps(first_lanes(count), at);
  const __m256i halves = _mm256_maskz_loadu_epi16(first_lanes(count), at);
  return kFrom == DType::f16 ? widen_f16(halves) : widen_bf16(halves);
}

// Writes kLanes f16 numbers, rounded to nearest even.
inline void store_f16(void* at, Floats a) {
  const __m256i halves = _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm256_storeu_si256(static_cast<__m256i*>(at), halves);
}

// Writes the lower halves of the lanes.
inline void store_halves(void* at, Bits a) {
  _mm256_storeu_si256(static_cast<__m256i*>(at), _mm512_cvtepi32_epi16(whole(a)));
}

inline Bits larger(Bits a, Bits b) { return bits_of(_mm512_max_epu32(whole(a), whole(b))); }
inline Bits larger_halves(Bits a, Bits b) { return bits_of(_mm512_max_epu16(whole(a), whole(b))); }
inline Bits smaller(Bits a, Bits b) { return bits_of(_mm512_min_epu32(whole(a), whole(b))); }

inline std::uint32_t largest(Bits a) { return _mm512_reduce_max_epu32(whole(a)); }
inline std::uint32_t largest_half(Bits a) {
  const __m256i upper = _mm512_extracti64x4_epi64(whole(a), 1);
  const __m256i folded = _mm256_max_epu16(_mm512_castsi512_si256(whole(a)), upper);
  const __m128i eight =
      _mm_max_epu16(_mm256_castsi256_si128(folded), _mm256_extracti128_si256(folded, 1));
  // The processor finds the smallest of eight: of the complements.
  const __m128i least = _mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi32(-1)));
  return 0xffffu - (static_cast<std::uint32_t>(_mm_cvtsi128_si32(least)) & 0xffffu);
}

// yes where a < b, no elsewhere. Requires: both are below 2^31.
inline Bits where_below(Bits a, Bits b, Bits yes, Bits no) {
  return bits_of(
      _mm512_mask_mov_epi32(whole(no), _mm512_cmplt_epi32_mask(whole(a), whole(b)), whole(yes)));
}

}  // namespace
}  // namespace quire
