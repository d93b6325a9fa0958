#if defined(__x86_64__)
#include "base/lanes_avx512.h"
#include "codec/int8/kernels.h"

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

// Rounds to 16-bit integers, in the order 0, 2, 1, 3 of each four.
inline void store_quads_i16(std::byte* to, Floats a) {
  const __m512i rounded = _mm512_shuffle_epi32(_mm512_cvtps_epi32(a), _MM_PERM_DBCA);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(rounded));
}

}  // namespace
}  // namespace quire

#include "codec/int8/attend.h"

namespace quire {

const Kernel kInt8KernelAvx512 = kInt8Kernel;

}  // namespace quire
#endif
