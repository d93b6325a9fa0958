#if defined(__x86_64__)
#include "base/lanes_avx512.h"
#include "codec/fp8/kernels.h"

namespace quire {
namespace {

// Floats 0, 1 in all pairs of lanes.
inline Floats spread_pair(const std::byte* at) {
  return _mm512_castpd_ps(_mm512_set1_pd(*reinterpret_cast<const double*>(at)));
}

// Sums of neighbouring lanes: those of `low`, then those of `high`.
inline Floats add_pairs(Floats low, Floats high) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  return add(_mm512_permutex2var_ps(low, even, high), _mm512_permutex2var_ps(low, odd, high));
}

// Lanes 0, 2, 1, 3 of each four.
inline Floats even_then_odd(Floats a) { return _mm512_permute_ps(a, _MM_SHUFFLE(3, 1, 2, 0)); }

// Sixteen-bit lanes to floats, the lower and the upper half.
inline Floats low_floats(__m512i f16) { return _mm512_cvtph_ps(_mm512_castsi512_si256(f16)); }
inline Floats high_floats(__m512i f16) {
  return _mm512_cvtph_ps(_mm512_extracti64x4_epi64(f16, 1));
}

}  // namespace
}  // namespace quire

#include "codec/fp8/attend.h"

namespace quire {
namespace {

// s eeee mmm is s 0eeee mmm0000000 with a bias that is smaller by 8.
struct E4m3 {
  static constexpr float kScale = 256.0f;
  QUIRE_INLINE static Quads unpack(const std::byte* data) {
    const __m512i x = _mm512_loadu_si512(data);
    const __m512i kept = _mm512_set1_epi16(static_cast<short>(0xbf80));
    const __m512i odd = _mm512_and_si512(_mm512_srai_epi16(x, 1), kept);
    const __m512i even = _mm512_and_si512(_mm512_srai_epi16(_mm512_slli_epi16(x, 8), 1), kept);
    return {low_floats(even), high_floats(even), low_floats(odd), high_floats(odd)};
  }
};

// s eeeee mm is the upper byte of an f16.
struct E5m2 {
  static constexpr float kScale = 1.0f;
  QUIRE_INLINE static Quads unpack(const std::byte* data) {
    const __m512i x = _mm512_loadu_si512(data);
    const __m512i odd = _mm512_and_si512(x, _mm512_set1_epi16(static_cast<short>(0xff00)));
    const __m512i even = _mm512_slli_epi16(x, 8);
    return {low_floats(even), high_floats(even), low_floats(odd), high_floats(odd)};
  }
};

}  // namespace

const Kernel kFp8E4m3KernelAvx512 = fp8_kernel<E4m3>();
const Kernel kFp8E5m2KernelAvx512 = fp8_kernel<E5m2>();

}  // namespace quire
#endif
