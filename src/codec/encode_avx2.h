// Arithmetic and permutations of encoders, by AVX2. For files compiled for AVX2 only: everything
// here has internal linkage on purpose.
#pragma once

#include "base/elements_avx2.h"

namespace quire {
namespace {

// c - a b, rounded once.
inline Floats fma_minus(Floats a, Floats b, Floats c) { return _mm256_fnmadd_ps(a, b, c); }

// To the nearest whole numbers, ties to even. What is too large becomes -2^31.
inline Bits round_even(Floats a) {
  const __m256 rounded = _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return bits_of(_mm256_cvttps_epi32(rounded));
}

inline Floats where_positive(Floats a, Floats yes) {
  return _mm256_and_ps(_mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_GT_OQ), yes);
}

// Four vectors of codes in one, byte by byte: in each half four codes of a, of b, of c, of d.
// Codes are unsigned, or signed and then limited to -127.
template <bool kSigned>
inline __m256i narrow(Bits a, Bits b, Bits c, Bits d) {
  const __m256i ab = _mm256_packs_epi32(whole(a), whole(b));
  const __m256i cd = _mm256_packs_epi32(whole(c), whole(d));
  if constexpr (!kSigned) return _mm256_packus_epi16(ab, cd);
  return _mm256_max_epi8(_mm256_packs_epi16(ab, cd), _mm256_set1_epi8(-127));
}

// The lower parts of consecutive lanes of a, then of b, ...
inline Bits join_channels(Bits a, Bits b) {
  return bits_of(_mm256_permute4x64_epi64(_mm256_packus_epi32(whole(a), whole(b)), 0xd8));
}
template <bool kSigned>
inline Bits join_channels(Bits a, Bits b, Bits c, Bits d) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return bits_of(_mm256_permutevar8x32_epi32(narrow<kSigned>(a, b, c, d), order));
}

// In each lane the lower parts of that lane of a, b, ...
template <bool kSigned>
inline Bits join_tokens(Bits a, Bits b, Bits c, Bits d) {
  const __m256i order = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  return bits_of(_mm256_shuffle_epi8(narrow<kSigned>(a, b, c, d), order));
}

// Lane j of vector i becomes lane i of vector j.
inline void transpose(Bits (&v)[kLanes]) {
  __m256i a[8];
  __m256i b[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_epi32(whole(v[i]), whole(v[i + 1]));
    a[i + 1] = _mm256_unpackhi_epi32(whole(v[i]), whole(v[i + 1]));
  }
  // b[4 r + c]: column c of each half, rows 4 r to 4 r + 3.
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm256_unpacklo_epi64(a[i], a[i + 2]);
    b[i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 2]);
    b[i + 2] = _mm256_unpacklo_epi64(a[i + 1], a[i + 3]);
    b[i + 3] = _mm256_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
  for (int c = 0; c < 4; ++c) {
    v[c] = bits_of(_mm256_permute2x128_si256(b[c], b[c + 4], 0x20));
    v[c + 4] = bits_of(_mm256_permute2x128_si256(b[c], b[c + 4], 0x31));
  }
}

// a < b ? a : b, and a > b ? a : b.
inline Floats smaller_of(Floats a, Floats b) { return _mm256_min_ps(a, b); }
inline Floats larger_of(Floats a, Floats b) { return _mm256_max_ps(a, b); }

// sum + more where a < b, sum elsewhere.
inline Bits add_where_less(Bits sum, Floats a, Floats b, std::uint32_t more) {
  const __m256i less = _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LT_OQ));
  return sum + bits_of(_mm256_and_si256(less, whole(spread(more))));
}

// All bits of lanes whose highest is set, none of the others.
inline Bits spread_highest(Bits a) { return bits_of(_mm256_srai_epi32(whole(a), 31)); }

// Towards 0.
inline Bits cut_off(Floats a) { return bits_of(_mm256_cvttps_epi32(a)); }

// table[index], for tables of 8, 16 or 32.
template <int kEntries>
inline Floats look_up(const float (&table)[kEntries], Bits index) {
  const auto eight = [&](int from) {
    return _mm256_permutevar8x32_ps(load_floats(table + from), whole(index));
  };
  const auto where = [&](std::uint32_t bit, Floats yes, Floats no) {
    const Bits upper = index << (31 - __builtin_ctz(bit));
    return _mm256_blendv_ps(no, yes, floats_of(upper));
  };
  Floats found = eight(0);
  if constexpr (kEntries >= 16) found = where(8, eight(8), found);
  if constexpr (kEntries >= 32) found = where(16, where(8, eight(24), eight(16)), found);
  return found;
}

// Lanes at a distance of kHalf, u and v, become u + v and u - v. A product with 1 or -1 is exact,
// so that both are rounded once.
template <int kHalf>
inline Floats butterfly(Floats a) {
  const Bits upper = (count_up() & static_cast<std::uint32_t>(kHalf))
                     << (31 - __builtin_ctz(kHalf));
  Floats other;
  if constexpr (kHalf == 1) other = _mm256_permute_ps(a, 0xb1);
  if constexpr (kHalf == 2) other = _mm256_permute_ps(a, 0x4e);
  if constexpr (kHalf == 4) other = _mm256_permute2f128_ps(a, a, 0x01);
  return fma(a, floats_of(bits_of(spread(1.0f)) | upper), other);
}

// The lowest bytes of lanes, and lanes of bytes.
inline void store_bytes(void* at, Bits a) {
  const __m128i pairs =
      _mm_packus_epi32(_mm256_castsi256_si128(whole(a)), _mm256_extracti128_si256(whole(a), 1));
  _mm_storel_epi64(static_cast<__m128i*>(at), _mm_packus_epi16(pairs, pairs));
}
inline Bits load_bytes(const void* at) {
  return bits_of(_mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(at))));
}

// The tree of codec/lane_sums.h.
inline float fold(const Floats (&sums)[2]) { return sum_of(add(sums[0], sums[1])); }

}  // namespace
}  // namespace quire
