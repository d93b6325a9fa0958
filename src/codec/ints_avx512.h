// Integers in the lanes of AVX-512, for kernels that multiply codes of 8 bits and less. Everything
// here has internal linkage on purpose, as in base/lanes_avx512.h.
#pragma once

#include "base/lanes_avx512.h"

namespace quire {
namespace {

using Ints = __m512i;

inline Ints zero_ints() { return _mm512_setzero_si512(); }
inline Ints load_ints(const std::byte* from) { return _mm512_loadu_si512(from); }
inline void store_ints(std::byte* to, Ints a) { _mm512_storeu_si512(to, a); }
inline Ints spread_ints(const std::byte* at) {
  return _mm512_set1_epi32(*reinterpret_cast<const int*>(at));
}
// Bytes 0 and 2, or 1 and 3, of each four, widened to 16 bits.
inline Ints even_bytes(Ints a) { return _mm512_srai_epi16(_mm512_slli_epi16(a, 8), 8); }
inline Ints odd_bytes(Ints a) { return _mm512_srai_epi16(a, 8); }
inline Ints even_unsigned(Ints a) { return _mm512_and_si512(a, _mm512_set1_epi16(0xff)); }
inline Ints odd_unsigned(Ints a) { return _mm512_srli_epi16(a, 8); }
// sum + the products of both 16-bit halves of each lane.
// Written out, since g++ 12 copies the sum before and after its own intrinsic.
inline Ints add_dots(Ints sum, Ints a, Ints b) {
  asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
}
inline Floats to_floats(Ints a) { return _mm512_cvtepi32_ps(a); }

// Magnitudes are compared as bits, in which NaN is the largest.
inline Floats larger_magnitude(Floats a, Floats b) {
  const __m512i bits = _mm512_and_si512(_mm512_castps_si512(b), _mm512_set1_epi32(0x7fffffff));
  return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(a), bits));
}
inline float largest_magnitude_of(Floats a) {
  return _mm_cvtss_f32(
      _mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(_mm512_castps_si512(a)))));
}

// The largest magnitudes of four rows.
struct LargerLanes {
  static __m512 of(__m512 a, __m512 b) {
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
  }
  static __m256 of(__m256 a, __m256 b) {
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
  }
  static __m128 of(__m128 a, __m128 b) {
    return _mm_castsi128_ps(_mm_max_epi32(_mm_castps_si128(a), _mm_castps_si128(b)));
  }
};
inline Quad largest_magnitudes_of_rows(const Floats (&rows)[4]) {
  return fold_rows<LargerLanes>(rows);
}

// The sums of four rows.
struct AddInts {
  static __m512 of(__m512 a, __m512 b) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
  }
  static __m256 of(__m256 a, __m256 b) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
  }
  static __m128 of(__m128 a, __m128 b) {
    return _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(a), _mm_castps_si128(b)));
  }
};
inline void sums_of_int_rows(const Ints (&rows)[4], std::int32_t* out) {
  const Floats bits[4] = {_mm512_castsi512_ps(rows[0]), _mm512_castsi512_ps(rows[1]),
                          _mm512_castsi512_ps(rows[2]), _mm512_castsi512_ps(rows[3])};
  _mm_storeu_ps(reinterpret_cast<float*>(out), fold_rows<AddInts>(bits));
}

// sum + the products of the four bytes of each lane, those of `a` unsigned, those of `b` signed.
// Written out for the same reason.
inline Ints add_byte_dots(Ints sum, Ints a, Ints b) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
}
constexpr bool kKeepsSpread = false;
constexpr bool kHasShortSums = false;
inline Ints sub_ints(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }

// Bits [shift, shift + width) of each byte.
template <int kWidth>
inline Ints byte_bits(Ints a, int shift) {
  return _mm512_and_si512(_mm512_srli_epi16(a, static_cast<unsigned>(shift)),
                          _mm512_set1_epi8((1 << kWidth) - 1));
}
// The same of 32 bytes that are there twice, the second time those from `shift` + width on.
template <int kWidth>
inline Ints byte_bits_twice(const std::byte* from, int shift) {
  const Ints twice =
      _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  const Ints shifts =
      _mm512_inserti64x4(_mm512_set1_epi64(shift), _mm256_set1_epi64x(shift + kWidth), 1);
  return _mm512_and_si512(_mm512_srlv_epi64(twice, shifts), _mm512_set1_epi8((1 << kWidth) - 1));
}
// Half a unit of a plane of 1 bit: 32 bytes, twice, the second time from bit 1 on.
[[gnu::always_inline]] inline Ints half_unit(const std::byte* from) {
  const Ints twice =
      _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  return _mm512_srlv_epi64(twice, _mm512_setr_epi64(0, 0, 0, 0, 1, 1, 1, 1));
}
// Bits [shift, ...) of each byte moved to [to, ...), with anything around them.
[[gnu::always_inline]] inline Ints moved_bits(Ints a, int shift, int to) {
  if (__builtin_constant_p(shift)) {
    if (shift == to) return a;
    return shift > to ? _mm512_srli_epi16(a, static_cast<unsigned>(shift - to))
                      : _mm512_slli_epi16(a, static_cast<unsigned>(to - shift));
  }
  return _mm512_rorv_epi64(a, _mm512_set1_epi64(shift - to));
}

// `low` of kLow bits, and above it bits [shift, shift + kHigh) of `high`, byte by byte.
template <int kLow, int kHigh>
[[gnu::always_inline]] inline Ints join_bits(Ints low, Ints high, int shift) {
  const Ints mask = _mm512_set1_epi8(((1 << kHigh) - 1) << kLow);
  return _mm512_ternarylogic_epi64(low, moved_bits(high, shift, kLow), mask, 0xf8);  // a | b & c
}

// Bytes by codes of kBits bits, from a table of 64 that repeats them: bits above those of a code
// may be anything.
template <int kBits>
struct ByteTable {
  static constexpr bool kTakesPlanes = true;
  Ints bytes;
  explicit ByteTable(const std::int8_t* from) : bytes(_mm512_loadu_si512(from)) {}
  Ints at(Ints codes) const { return _mm512_permutexvar_epi8(codes, bytes); }
  // By the bits of a plane from `shift` on.
  [[gnu::always_inline]] Ints at_plane(Ints plane, int shift) const {
    return at(moved_bits(plane, shift, 0));
  }
  // By kLow bits of `low`, from `shift` on, and bits of `high`, from `high_shift` on.
  template <int kLow>
  [[gnu::always_inline]] Ints at_planes(Ints low, int shift, Ints high, int high_shift) const {
    const Ints mask = _mm512_set1_epi8((1 << kLow) - 1);
    // Where the mask is set the first, elsewhere the second.
    return at(_mm512_ternarylogic_epi32(mask, moved_bits(low, shift, 0),
                                        moved_bits(high, high_shift, kLow), 0xca));
  }
};

// Floats rounded to bytes, ties to even, in their order.
inline Ints in_order(Ints quads) {  // of four vectors in turns
  return _mm512_permutexvar_epi32(
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), quads);
}
inline Ints rounded_words(Floats a, Floats b) {
  return _mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
}
inline Ints signed_bytes(const Floats (&a)[4]) {
  return in_order(_mm512_packs_epi16(rounded_words(a[0], a[1]), rounded_words(a[2], a[3])));
}
inline Ints unsigned_bytes(const Floats (&a)[4]) {
  return in_order(_mm512_packus_epi16(rounded_words(a[0], a[1]), rounded_words(a[2], a[3])));
}
// Floats rounded to 16-bit integers, in the order 0, 2, 1, 3 of each four.
inline Ints quad_words(Floats a, Floats b) {
  const Ints order = _mm512_set_epi64(0x001f001d001e001c, 0x0017001500160014, 0x000f000d000e000c,
                                      0x0007000500060004, 0x001b0019001a0018, 0x0013001100120010,
                                      0x000b0009000a0008, 0x0003000100020000);
  return _mm512_permutexvar_epi16(order, rounded_words(a, b));
}

}  // namespace
}  // namespace quire
