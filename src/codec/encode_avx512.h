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

}  // namespace
}  // namespace quire
