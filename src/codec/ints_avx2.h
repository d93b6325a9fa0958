// Integers in the lanes of AVX2, for kernels that multiply codes of 8 bits and less. Everything
// here has internal linkage on purpose, as in base/lanes_avx2.h.
#pragma once

#include "base/lanes_avx2.h"

namespace quire {
namespace {

using Ints = __m256i;

inline Ints zero_ints() { return _mm256_setzero_si256(); }
inline Ints load_ints(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
inline void store_ints(std::byte* to, Ints a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), a);
}
inline Ints spread_ints(const std::byte* at) {
  return _mm256_set1_epi32(*reinterpret_cast<const int*>(at));
}
// A multiplication takes an operand from memory, but not one lane of it in all: what is multiplied
// often is kept as vectors, of each lane one.
constexpr bool kKeepsSpread = true;
// Bytes 0 and 2, or 1 and 3, of each four, widened to 16 bits.
inline Ints even_bytes(Ints a) { return _mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8); }
inline Ints odd_bytes(Ints a) { return _mm256_srai_epi16(a, 8); }
inline Ints even_unsigned(Ints a) { return _mm256_and_si256(a, _mm256_set1_epi16(0xff)); }
inline Ints odd_unsigned(Ints a) { return _mm256_srli_epi16(a, 8); }
// The same, in its register: sums of sums are not added up in another order, for which g++ 12 has
// too few registers and puts some of them into memory.
inline Ints in_place(Ints sum) {
  asm("" : "+x"(sum));
  return sum;
}
// sum + the products of both 16-bit halves of each lane.
inline Ints add_dots(Ints sum, Ints a, Ints b) {
  return in_place(_mm256_add_epi32(sum, _mm256_madd_epi16(a, b)));
}
inline Floats to_floats(Ints a) { return _mm256_cvtepi32_ps(a); }

// Magnitudes are compared as bits, in which NaN is the largest.
inline Floats larger_magnitude(Floats a, Floats b) {
  const __m256i bits = _mm256_and_si256(_mm256_castps_si256(b), _mm256_set1_epi32(0x7fffffff));
  return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(a), bits));
}
inline float largest_magnitude_of(Floats a) {
  const __m256i bits = _mm256_castps_si256(a);
  __m128i half = _mm_max_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, _MM_SHUFFLE(1, 0, 3, 2)));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, _MM_SHUFFLE(2, 3, 0, 1)));
  return _mm_cvtss_f32(_mm_castsi128_ps(half));
}

inline Floats magnitudes(Floats a) {
  return _mm256_and_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
}
// Lanes 0 and 1, 2 and 3, ... added, in both.
inline Floats pair_sums(Floats a) { return add(a, _mm256_permute_ps(a, 0xb1)); }
// Lanes 0, 1, 4 and 5, and 2, 3, 6 and 7 added, in each of the four.
inline Floats quad_sums(Floats a) {
  const Floats pairs = pair_sums(a);
  return add(pairs, _mm256_permute2f128_ps(pairs, pairs, 1));
}

// The largest magnitudes of four rows.
struct LargerLanes {
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
  static __m256 of(__m256 a, __m256 b) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
  }
  static __m128 of(__m128 a, __m128 b) {
    return _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(a), _mm_castps_si128(b)));
  }
};
inline void sums_of_int_rows(const Ints (&rows)[4], std::int32_t* out) {
  const Floats bits[4] = {_mm256_castsi256_ps(rows[0]), _mm256_castsi256_ps(rows[1]),
                          _mm256_castsi256_ps(rows[2]), _mm256_castsi256_ps(rows[3])};
  _mm_storeu_ps(reinterpret_cast<float*>(out), fold_rows<AddInts>(bits));
}

// sum + the products of the four bytes of each lane, those of `a` unsigned, those of `b` signed.
// Requires: pairs of products fit 16 bits.
inline Ints add_byte_dots(Ints sum, Ints a, Ints b) {
  return in_place(
      _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1))));
}
// The same for two such vectors. Requires: pairs of products of both fit 16 bits together.
inline Ints add_byte_dots(Ints sum, Ints a, Ints b, Ints c, Ints d) {
  const Ints pairs = _mm256_add_epi16(_mm256_maddubs_epi16(a, b), _mm256_maddubs_epi16(c, d));
  return in_place(_mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))));
}
// Sums of pairs of such products in 16 bits, and the pairs of those sums in 32.
constexpr bool kHasShortSums = true;
inline Ints add_short(Ints sum, Ints a, Ints b) {
  return in_place(_mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b)));
}
inline Ints add_shorts(Ints sum, Ints shorts) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(shorts, _mm256_set1_epi16(1)));
}
inline Ints sub_ints(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }

// Bits [shift, shift + width) of each byte.
template <int kWidth>
inline Ints byte_bits(Ints a, int shift) {
  return _mm256_and_si256(_mm256_srli_epi16(a, shift), _mm256_set1_epi8((1 << kWidth) - 1));
}
// Half a unit of a plane of 1 bit.
[[gnu::always_inline]] inline Ints half_unit(const std::byte* from) { return load_ints(from); }
// `low` of kLow bits, and above it bits [shift, shift + kHigh) of `high`, byte by byte.
template <int kLow, int kHigh>
[[gnu::always_inline]] inline Ints join_bits(Ints low, Ints high, int shift) {
  const Ints moved =
      shift > kLow ? _mm256_srli_epi16(high, shift - kLow) : _mm256_slli_epi16(high, kLow - shift);
  return _mm256_or_si256(low,
                         _mm256_and_si256(moved, _mm256_set1_epi8(((1 << kHigh) - 1) << kLow)));
}

// Bytes by codes of kBits bits, from a table of 64 that repeats them; 16 to a register.
template <int kBits>
struct ByteTable {
  static constexpr bool kTakesPlanes = false;
  Ints bytes;
  explicit ByteTable(const std::int8_t* from)
      : bytes(
            _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))) {}
  Ints at(Ints codes) const { return _mm256_shuffle_epi8(bytes, codes); }
};
template <>
struct ByteTable<5> {
  static constexpr bool kTakesPlanes = true;
  ByteTable<4> lower, upper;
  explicit ByteTable(const std::int8_t* from) : lower(from), upper(from + 16) {}
  Ints at(Ints codes) const { return at_planes<4>(codes, 0, codes, 4); }
  // By four bits of `plane`, from `shift` on, and bits of `high`, from `high_shift` on.
  template <int kLow>
  Ints at_planes(Ints plane, int shift, Ints high, int high_shift) const {
    const Ints low = byte_bits<kLow>(plane, shift);
    return _mm256_blendv_epi8(lower.at(low), upper.at(low),
                              _mm256_slli_epi16(high, 7 - high_shift));
  }
};
// The first 48 bytes must count up: a table tells by how much the others differ from what is
// counted on.
template <>
struct ByteTable<6> {
  static constexpr bool kTakesPlanes = true;
  Ints first;  // where counting begins, of the byte behind the 48
  Ints others;
  explicit ByteTable(const std::int8_t* from)
      : first(_mm256_set1_epi8(static_cast<char>(from[0] + 48))) {
    const Ints counted =
        _mm256_add_epi8(first, _mm256_broadcastsi128_si256(_mm_setr_epi8(
                                   0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)));
    others = _mm256_sub_epi8(
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 48))),
        counted);
  }
  Ints at(Ints codes) const { return at_planes<4>(codes, 0, codes, 4); }
  template <int kLow>
  Ints at_planes(Ints plane, int shift, Ints high, int high_shift) const {
    const Ints moved = high_shift > 4 ? _mm256_srli_epi16(high, high_shift - 4)
                                      : _mm256_slli_epi16(high, 4 - high_shift);
    // The code less 48: negative, and nothing in the table, where it is one of the first.
    const Ints code = _mm256_sub_epi8(byte_bits<kLow>(plane, shift),
                                      _mm256_andnot_si256(moved, _mm256_set1_epi8(0x30)));
    return _mm256_add_epi8(_mm256_add_epi8(code, first), _mm256_shuffle_epi8(others, code));
  }
};

// Floats rounded to bytes, ties to even, in their order.
inline Ints in_order(Ints quads) {  // of four vectors in turns
  return _mm256_permutevar8x32_epi32(quads, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
inline Ints rounded_words(Floats a, Floats b) {
  return _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
}
inline Ints signed_bytes(const Floats (&a)[4]) {
  return in_order(_mm256_packs_epi16(rounded_words(a[0], a[1]), rounded_words(a[2], a[3])));
}
inline Ints unsigned_bytes(const Floats (&a)[4]) {
  return in_order(_mm256_packus_epi16(rounded_words(a[0], a[1]), rounded_words(a[2], a[3])));
}
// Floats rounded to 16-bit integers, in the order 0, 2, 1, 3 of each four.
inline Ints quad_words(Floats a, Floats b) {
  const Ints quads = _mm256_permute4x64_epi64(rounded_words(a, b), _MM_SHUFFLE(3, 1, 2, 0));
  return _mm256_shuffle_epi8(quads, _mm256_broadcastsi128_si256(_mm_setr_epi8(
                                        0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15)));
}

}  // namespace
}  // namespace quire
