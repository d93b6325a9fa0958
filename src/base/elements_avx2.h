// Elements of any dtype as eight lanes of one AVX2 register, and back. For files compiled for AVX2
// only: everything here has internal linkage on purpose.
#pragma once

#include <cstring>

#include "base/lanes_avx2.h"
#include "quire/spec.hpp"

namespace quire {
namespace {

constexpr std::size_t kVectorBytes = 32;
using Bits = std::uint32_t __attribute__((vector_size(32)));

inline Floats floats_of(Bits a) { return reinterpret_cast<__m256>(a); }
inline Bits bits_of(Floats a) { return reinterpret_cast<Bits>(a); }
inline Bits bits_of(__m256i a) { return reinterpret_cast<Bits>(a); }
inline __m256i whole(Bits a) { return reinterpret_cast<__m256i>(a); }

inline Bits spread(std::uint32_t a) {
  return bits_of(_mm256_set1_epi32(static_cast<std::int32_t>(a)));
}
inline Bits count_up() { return bits_of(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)); }

inline Bits load_bits(const void* at) {
  return bits_of(_mm256_loadu_si256(static_cast<const __m256i*>(at)));
}
inline void store_bits(void* at, Bits a) {
  _mm256_storeu_si256(static_cast<__m256i*>(at), whole(a));
}

// The first `count` lanes, 0 <= count <= kLanes.
inline void store_bits(void* at, Bits a, int count) {
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(count), whole(count_up()));
  _mm256_maskstore_epi32(static_cast<int*>(at), mask, whole(a));
}

inline Floats widen_f16(__m128i halves) { return _mm256_cvtph_ps(halves); }
inline Floats widen_bf16(__m128i halves) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

template <DType kFrom>
inline Floats load(const std::byte* at) {
  if constexpr (kFrom == DType::f32) return _mm256_loadu_ps(reinterpret_cast<const float*>(at));
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  return kFrom == DType::f16 ? widen_f16(halves) : widen_bf16(halves);
}

// `count` elements and zeros behind them, 0 <= count <= kLanes.
template <DType kFrom>
inline Floats load(const std::byte* at, int count) {
  if (count == kLanes) return load<kFrom>(at);
  constexpr std::size_t kBytes = kFrom == DType::f32 ? 4 : 2;
  std::byte filled[kVectorBytes] = {};
  if (count > 0) std::memcpy(filled, at, static_cast<std::size_t>(count) * kBytes);
  return load<kFrom>(filled);
}

// Writes kLanes f16 numbers, rounded to nearest even.
inline void store_f16(void* at, Floats a) {
  const __m128i halves = _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm_storeu_si128(static_cast<__m128i*>(at), halves);
}

// Writes the lower halves of the lanes. Requires: the upper halves are zero.
inline void store_halves(void* at, Bits a) {
  const __m128i upper = _mm256_extracti128_si256(whole(a), 1);
  _mm_storeu_si128(static_cast<__m128i*>(at),
                   _mm_packus_epi32(_mm256_castsi256_si128(whole(a)), upper));
}

inline Bits larger(Bits a, Bits b) { return bits_of(_mm256_max_epu32(whole(a), whole(b))); }
inline Bits larger_halves(Bits a, Bits b) { return bits_of(_mm256_max_epu16(whole(a), whole(b))); }
inline Bits smaller(Bits a, Bits b) { return bits_of(_mm256_min_epu32(whole(a), whole(b))); }

inline std::uint32_t largest(Bits a) {
  const __m256i wide = whole(a);
  __m128i four = _mm_max_epu32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(four));
}
inline std::uint32_t largest_half(Bits a) {
  const __m128i upper = _mm256_extracti128_si256(whole(a), 1);
  const __m128i eight = _mm_max_epu16(_mm256_castsi256_si128(whole(a)), upper);
  // The processor finds the smallest of eight: of the complements.
  const __m128i least = _mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi32(-1)));
  return 0xffffu - (static_cast<std::uint32_t>(_mm_cvtsi128_si32(least)) & 0xffffu);
}

// yes where a < b, no elsewhere. Requires: both are below 2^31.
inline Bits where_below(Bits a, Bits b, Bits yes, Bits no) {
  return bits_of(_mm256_blendv_epi8(whole(no), whole(yes), _mm256_cmpgt_epi32(whole(b), whole(a))));
}

}  // namespace
}  // namespace quire
