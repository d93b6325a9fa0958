#if defined(__x86_64__)
#include <immintrin.h>

#include "model/panel_loops.h"

namespace quire::model {
namespace {

struct Avx512Set {
  static constexpr int kLanes = 16;
  static constexpr int kRows = 8;
  using Ints = __m512i;
  using Floats = __m512;

  static Ints load(const std::byte* at) { return _mm512_loadu_si512(at); }
  static Ints keep(Ints a, int mask) {
    return _mm512_and_si512(a, _mm512_set1_epi8(static_cast<char>(mask)));
  }
  template <int N>
  static Ints up(Ints a) {
    return _mm512_slli_epi16(a, N);
  }
  template <int N>
  static Ints down(Ints a) {
    return _mm512_srli_epi16(a, N);
  }
  static Ints either(Ints a, Ints b) { return _mm512_or_si512(a, b); }
  template <int Bits, int Zero, int Count>
  static Ints dots(const Ints* w, const std::int8_t* x, int sum) {
    Ints total = Zero == 0 ? _mm512_setzero_si512() : _mm512_set1_epi32(-Zero * sum);
    for (int k = 0; k < Count; ++k) {
      // Written out: four bytes of x are spread by the load, and g++ 12 copies the sum before and
      // after its own intrinsic.
      using Four = const std::int8_t(*)[4];
      asm("vpdpbusd %2%{1to16%}, %1, %0"
          : "+v"(total)
          : "v"(w[k]), "m"(*reinterpret_cast<Four>(x + 4 * k)));
    }
    return total;
  }
  static Floats zero() { return _mm512_setzero_ps(); }
  static Floats to_floats(Ints a) { return _mm512_cvtepi32_ps(a); }
  static Floats load_f32(const std::byte* at) { return _mm512_loadu_ps(at); }
  static Floats load_f16(const std::byte* at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
  static Floats load_bf16(const std::byte* at) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static Floats times(Floats a, float b) { return _mm512_mul_ps(a, _mm512_set1_ps(b)); }
  static Floats add_product(Floats sum, Floats a, Floats b) { return _mm512_fmadd_ps(a, b, sum); }
  static Floats add_product(Floats sum, Floats a, float b) {
    return _mm512_fmadd_ps(a, _mm512_set1_ps(b), sum);
  }
  static void store(float* at, Floats a) { _mm512_storeu_ps(at, a); }
};

void encode(const float* x, std::int64_t groups, std::int8_t* codes, float* scales, float* sums,
            std::int32_t* halves) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  for (std::int64_t g = 0; g < groups; ++g, x += kGroupCodes, codes += kGroupCodes) {
    const __m512 parts[2] = {_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)};
    const __m512i largest =
        _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(parts[0]), magnitude),
                         _mm512_and_si512(_mm512_castps_si512(parts[1]), magnitude));
    const GroupScale scale =
        group_scale(static_cast<std::uint32_t>(_mm512_reduce_max_epi32(largest)));
    int total = 0;
    for (int h = 0; h < 2; ++h) {
      __m512i rounded = _mm512_setzero_si512();
      if (scale.inverse != 0) {
        rounded = _mm512_cvtps_epi32(_mm512_mul_ps(parts[h], _mm512_set1_ps(scale.inverse)));
      }
      _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + 16 * h), _mm512_cvtepi32_epi8(rounded));
      halves[2 * g + h] = _mm512_reduce_add_epi32(rounded);
      total += halves[2 * g + h];
    }
    scales[g] = scale.scale;
    sums[g] = scale.scale * static_cast<float>(total);
  }
}

}  // namespace

extern const PanelKernels kPanelKernelsAvx512;
const PanelKernels kPanelKernelsAvx512 = {encode, multiply_codes<Avx512Set>,
                                          multiply_floats<Avx512Set>};

}  // namespace quire::model

#endif  // __x86_64__
