#if defined(__x86_64__)
#include "base/lanes_avx2.h"
#include "codec/int8/kernels.h"

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
// Bytes 0 and 2, or 1 and 3, of each four, widened to 16 bits.
inline Ints even_bytes(Ints a) { return _mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8); }
inline Ints odd_bytes(Ints a) { return _mm256_srai_epi16(a, 8); }
// sum + the products of both 16-bit halves of each lane.
inline Ints add_dots(Ints sum, Ints a, Ints b) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
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

// Rounds to 16-bit integers, in the order 0, 2, 1, 3 of each four.
inline void store_quads_i16(std::byte* to, Floats a) {
  const __m256i rounded = _mm256_shuffle_epi32(_mm256_cvtps_epi32(a), _MM_SHUFFLE(3, 1, 2, 0));
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(to),
      _mm_packs_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1)));
}

}  // namespace
}  // namespace quire

#include "codec/int8/attend.h"

namespace quire {

const Kernel kInt8KernelAvx2 = kInt8Kernel;

}  // namespace quire
#endif
