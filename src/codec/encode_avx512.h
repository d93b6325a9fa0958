// Arithmetic and permutations of encoders, by AVX-512. For files compiled for AVX-512 only:
// everything here has internal linkage on purpose.
#pragma once

#include "base/elements_avx512.h"

namespace quire {
namespace {

// c - a b, rounded once.
inline Floats fma_minus(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }

// To the nearest whole numbers, ties to even. What is too large becomes -2^31.
inline Bits round_even(Floats a) {
  return bits_of(_mm512_cvt_roundps_epi32(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

inline Floats where_positive(Floats a, Floats yes) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_GT_OQ), yes);
}

// Four vectors of codes in one, byte by byte: in each quarter four codes of a, of b, of c, of d.
// Codes are unsigned, or signed and then limited to -127.
template <bool kSigned>
inline __m512i narrow(Bits a, Bits b, Bits c, Bits d) {
  const __m512i ab = _mm512_packs_epi32(whole(a), whole(b));
  const __m512i cd = _mm512_packs_epi32(whole(c), whole(d));
  if constexpr (!kSigned) return _mm512_packus_epi16(ab, cd);
  return _mm512_max_epi8(_mm512_packs_epi16(ab, cd), _mm512_set1_epi8(-127));
}

// The lower parts of consecutive lanes of a, then of b, ...
inline Bits join_channels(Bits a, Bits b) {
  return bits_of(_mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7),
                                          _mm512_packus_epi32(whole(a), whole(b))));
}
template <bool kSigned>
inline Bits join_channels(Bits a, Bits b, Bits c, Bits d) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return bits_of(_mm512_permutexvar_epi32(order, narrow<kSigned>(a, b, c, d)));
}

// In each lane the lower parts of that lane of a, b, ...
template <bool kSigned>
inline Bits join_tokens(Bits a, Bits b, Bits c, Bits d) {
  const __m512i order =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  return bits_of(_mm512_shuffle_epi8(narrow<kSigned>(a, b, c, d), order));
}

// Lane j of vector i becomes lane i of vector j.
inline void transpose(Bits (&v)[kLanes]) {
  __m512i a[16];
  __m512i b[16];
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_epi32(whole(v[i]), whole(v[i + 1]));
    a[i + 1] = _mm512_unpackhi_epi32(whole(v[i]), whole(v[i + 1]));
  }
  // b[4 r + c]: column c of each quarter, rows 4 r to 4 r + 3.
  for (int i = 0; i < 16; i += 4) {
    b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
    b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
    b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
    b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
  for (int c = 0; c < 4; ++c) {
    const __m512i low01 = _mm512_shuffle_i32x4(b[c], b[c + 4], 0x88);
    const __m512i low23 = _mm512_shuffle_i32x4(b[c + 8], b[c + 12], 0x88);
    const __m512i high01 = _mm512_shuffle_i32x4(b[c], b[c + 4], 0xdd);
    const __m512i high23 = _mm512_shuffle_i32x4(b[c + 8], b[c + 12], 0xdd);
    v[c] = bits_of(_mm512_shuffle_i32x4(low01, low23, 0x88));
    v[c + 8] = bits_of(_mm512_shuffle_i32x4(low01, low23, 0xdd));
    v[c + 4] = bits_of(_mm512_shuffle_i32x4(high01, high23, 0x88));
    v[c + 12] = bits_of(_mm512_shuffle_i32x4(high01, high23, 0xdd));
  }
}

// a < b ? a : b, and a > b ? a : b.
inline Floats smaller_of(Floats a, Floats b) { return _mm512_min_ps(a, b); }
inline Floats larger_of(Floats a, Floats b) { return _mm512_max_ps(a, b); }

// sum + more where a < b, sum elsewhere.
inline Bits add_where_less(Bits sum, Floats a, Floats b, std::uint32_t more) {
  const __mmask16 less = _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
  return bits_of(_mm512_mask_add_epi32(whole(sum), less, whole(sum), whole(spread(more))));
}

// All bits of lanes whose highest is set, none of the others.
inline Bits spread_highest(Bits a) { return bits_of(_mm512_srai_epi32(whole(a), 31)); }

// Towards 0.
inline Bits cut_off(Floats a) { return bits_of(_mm512_cvttps_epi32(a)); }

// table[index], for tables of 8, 16 or 32.
template <int kEntries>
inline Floats look_up(const float (&table)[kEntries], Bits index) {
  if constexpr (kEntries == 8) {
    const __m256 eight = _mm256_loadu_ps(table);
    return _mm512_permutexvar_ps(whole(index), _mm512_castps256_ps512(eight));
  } else if constexpr (kEntries == 16) {
    return _mm512_permutexvar_ps(whole(index), load_floats(table));
  } else {
    return _mm512_permutex2var_ps(load_floats(table), whole(index), load_floats(table + 16));
  }
}

// Lanes at a distance of kHalf, u and v, become u + v and u - v. A product with 1 or -1 is exact,
// so that both are rounded once.
template <int kHalf>
inline Floats butterfly(Floats a) {
  const Bits upper = (count_up() & static_cast<std::uint32_t>(kHalf))
                     << (31 - __builtin_ctz(kHalf));
  Floats other;
  if constexpr (kHalf == 1) other = _mm512_permute_ps(a, 0xb1);
  if constexpr (kHalf == 2) other = _mm512_permute_ps(a, 0x4e);
  if constexpr (kHalf == 4) other = _mm512_shuffle_f32x4(a, a, 0xb1);
  if constexpr (kHalf == 8) other = _mm512_shuffle_f32x4(a, a, 0x4e);
  return fma(a, floats_of(bits_of(spread(1.0f)) | upper), other);
}

// The lowest bytes of lanes, and lanes of bytes.
inline void store_bytes(void* at, Bits a) {
  _mm_storeu_si128(static_cast<__m128i*>(at), _mm512_cvtepi32_epi8(whole(a)));
}
inline Bits load_bytes(const void* at) {
  return bits_of(_mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(at))));
}

// The tree of codec/lane_sums.h. Written out: how the compilers fold a vector is their own affair.
inline float fold(const Floats (&sums)[1]) {
  const __m256 upper = _mm512_extractf32x8_ps(sums[0], 1);
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(sums[0]), upper);
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

}  // namespace
}  // namespace quire
