#if defined(__x86_64__)
#include "base/lanes_avx2.h"
#include "codec/fp8/kernels.h"

namespace quire {
namespace {

// Floats 0, 1 in all pairs of lanes.
inline Floats spread_pair(const std::byte* at) {
  return _mm256_castpd_ps(_mm256_set1_pd(*reinterpret_cast<const double*>(at)));
}

// Sums of neighbouring lanes: those of `low`, then those of `high`.
inline Floats add_pairs(Floats low, Floats high) {
  const __m256d mixed = _mm256_castps_pd(_mm256_hadd_ps(low, high));
  return _mm256_castpd_ps(_mm256_permute4x64_pd(mixed, _MM_SHUFFLE(3, 1, 2, 0)));
}

// Lanes 0, 2, 1, 3 of each four.
inline Floats even_then_odd(Floats a) { return _mm256_permute_ps(a, _MM_SHUFFLE(3, 1, 2, 0)); }

// Sixteen-bit lanes to floats, the lower and the upper half.
inline Floats low_floats(__m256i f16) { return _mm256_cvtph_ps(_mm256_castsi256_si128(f16)); }
inline Floats high_floats(__m256i f16) { return _mm256_cvtph_ps(_mm256_extracti128_si256(f16, 1)); }

}  // namespace
}  // namespace quire

#include "codec/fp8/attend.h"

namespace quire {
namespace {

// s eeee mmm is s 0eeee mmm0000000 with a bias that is smaller by 8.
struct E4m3 {
  static constexpr float kScale = 256.0f;
  QUIRE_INLINE static Quads unpack(const std::byte* data) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data));
    const __m256i kept = _mm256_set1_epi16(static_cast<short>(0xbf80));
    const __m256i odd = _mm256_and_si256(_mm256_srai_epi16(x, 1), kept);
    const __m256i even = _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(x, 8), 1), kept);
    return {low_floats(even), high_floats(even), low_floats(odd), high_floats(odd)};
  }
};

// s eeeee mm is the upper byte of an f16.
struct E5m2 {
  static constexpr float kScale = 1.0f;
  QUIRE_INLINE static Quads unpack(const std::byte* data) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data));
    const __m256i odd = _mm256_and_si256(x, _mm256_set1_epi16(static_cast<short>(0xff00)));
    const __m256i even = _mm256_slli_epi16(x, 8);
    return {low_floats(even), high_floats(even), low_floats(odd), high_floats(odd)};
  }
};

}  // namespace

const Kernel kFp8E4m3KernelAvx2 = fp8_kernel<E4m3>();
const Kernel kFp8E5m2KernelAvx2 = fp8_kernel<E5m2>();

}  // namespace quire
#endif
