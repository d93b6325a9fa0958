#if defined(__x86_64__)
#include <immintrin.h>

#include "model/panel_loops.h"

namespace quire::model {
namespace {

inline __m256i spread(const std::int8_t* at) {
  int four;
  __builtin_memcpy(&four, at, sizeof four);
  return _mm256_set1_epi32(four);
}

struct Avx2Set {
  static constexpr int kLanes = 8;
  static constexpr int kRows = 4;
  using Ints = __m256i;
  using Floats = __m256;

  static Ints load(const std::byte* at) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  }
  static Ints keep(Ints a, int mask) {
    return _mm256_and_si256(a, _mm256_set1_epi8(static_cast<char>(mask)));
  }
  template <int N>
  static Ints up(Ints a) {
    return _mm256_slli_epi16(a, N);
  }
  template <int N>
  static Ints down(Ints a) {
    return _mm256_srli_epi16(a, N);
  }
  static Ints either(Ints a, Ints b) { return _mm256_or_si256(a, b); }

  // Products of bytes are added in 16 bits as often as these hold them: 8 fours of 4 bits, 4 of 5
  // bits, 2 of 6 bits. Codes of 8 bits are made signed, and their signs move to the other factor.
  template <int Bits, int Zero, int Count>
  static Ints dots(const Ints* w, const std::int8_t* x, int sum) {
    constexpr int kRun = Bits == 4 ? 8 : Bits == 5 ? 4 : Bits == 6 ? 2 : 1;
    constexpr int kStep = kRun < Count ? kRun : Count;
    const __m256i ones = _mm256_set1_epi16(1);
    Ints total = _mm256_set1_epi32(Bits == 8 || Zero == 0 ? 0 : -Zero * sum);
    for (int k = 0; k < Count; k += kStep) {
      Ints pairs = products<Bits>(w[k], x + 4 * k);
      for (int i = 1; i < kStep; ++i) {
        pairs = _mm256_add_epi16(pairs, products<Bits>(w[k + i], x + 4 * (k + i)));
      }
      total = _mm256_add_epi32(total, _mm256_madd_epi16(pairs, ones));
    }
    return total;
  }
  static Floats zero() { return _mm256_setzero_ps(); }
  static Floats to_floats(Ints a) { return _mm256_cvtepi32_ps(a); }
  static Floats load_f32(const std::byte* at) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(at));
  }
  static Floats load_f16(const std::byte* at) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  static Floats load_bf16(const std::byte* at) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static Floats times(Floats a, float b) { return _mm256_mul_ps(a, _mm256_set1_ps(b)); }
  static Floats add_product(Floats sum, Floats a, Floats b) { return _mm256_fmadd_ps(a, b, sum); }
  static Floats add_product(Floats sum, Floats a, float b) {
    return _mm256_fmadd_ps(a, _mm256_set1_ps(b), sum);
  }
  static void store(float* at, Floats a) { _mm256_storeu_ps(at, a); }

 private:
  template <int Bits>
  static Ints products(Ints w, const std::int8_t* x) {
    if constexpr (Bits == 8) {
      const Ints from_128 = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
      return _mm256_maddubs_epi16(_mm256_abs_epi8(from_128), _mm256_sign_epi8(spread(x), from_128));
    }
    return _mm256_maddubs_epi16(w, spread(x));
  }
};

inline int sum_of(__m256i a) {
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}

inline std::uint32_t largest_of(__m256i a) {
  __m128i half = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(half));
}

void encode(const float* x, std::int64_t groups, std::int8_t* codes, float* scales, float* sums,
            std::int32_t* halves) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  for (std::int64_t g = 0; g < groups; ++g, x += kGroupCodes, codes += kGroupCodes) {
    __m256i largest = _mm256_setzero_si256();
    for (int i = 0; i < kGroupCodes; i += 8) {
      const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + i));
      largest = _mm256_max_epi32(largest, _mm256_and_si256(bits, magnitude));
    }
    const GroupScale scale = group_scale(largest_of(largest));
    int total = 0;
    for (int h = 0; h < 2; ++h) {
      __m256i rounded[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
      for (int i = 0; i < 2 && scale.inverse != 0; ++i) {
        const __m256 part = _mm256_loadu_ps(x + 16 * h + 8 * i);
        rounded[i] = _mm256_cvtps_epi32(_mm256_mul_ps(part, _mm256_set1_ps(scale.inverse)));
      }
      const __m256i words =
          _mm256_permute4x64_epi64(_mm256_packs_epi32(rounded[0], rounded[1]), 0xd8);
      _mm_storeu_si128(
          reinterpret_cast<__m128i*>(codes + 16 * h),
          _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
      halves[2 * g + h] = sum_of(_mm256_add_epi32(rounded[0], rounded[1]));
      total += halves[2 * g + h];
    }
    scales[g] = scale.scale;
    sums[g] = scale.scale * static_cast<float>(total);
  }
}

}  // namespace

extern const PanelKernels kPanelKernelsAvx2;
const PanelKernels kPanelKernelsAvx2 = {encode, multiply_codes<Avx2Set>, multiply_floats<Avx2Set>};

}  // namespace quire::model

#endif  // __x86_64__
