#include "model/panel_kernels.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "model/panel_loops.h"
#include "quire/cache.hpp"

namespace quire::model {
namespace {

// One output: a vector of codes is the four bytes of a word.
struct ScalarSet {
  static constexpr int kLanes = 1;
  static constexpr int kRows = 4;
  using Ints = std::uint32_t;
  using Floats = float;

  static Ints load(const std::byte* at) {
    Ints word;
    std::memcpy(&word, at, sizeof word);
    return word;
  }
  static Ints keep(Ints a, int mask) { return a & static_cast<Ints>(mask) * 0x01010101u; }
  // Bits that a shift brings from one byte into the next are never kept.
  template <int N>
  static Ints up(Ints a) {
    return a << N;
  }
  template <int N>
  static Ints down(Ints a) {
    return a >> N;
  }
  static Ints either(Ints a, Ints b) { return a | b; }
  template <int Bits, int Zero, int Count>
  static int dots(const Ints* w, const std::int8_t* x, int /*sum*/) {
    int total = 0;
    for (int i = 0; i < 4 * Count; ++i) {
      const int code = static_cast<int>(w[i / 4] >> (i % 4 * 8) & 255u);
      total += (code - Zero) * x[i];
    }
    return total;
  }
  static Floats zero() { return 0; }
  static Floats to_floats(int a) { return static_cast<float>(a); }
  static Floats load_f32(const std::byte* at) { return std::bit_cast<float>(load(at)); }
  static Floats load_f16(const std::byte* at) { return f16_to_f32(load_half(at)); }
  static Floats load_bf16(const std::byte* at) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(load_half(at)) << 16);
  }
  static Floats times(Floats a, float b) { return a * b; }
  static Floats add_product(Floats sum, Floats a, float b) { return std::fma(a, b, sum); }
  static void store(float* at, Floats a) { *at = a; }

 private:
  static std::uint16_t load_half(const std::byte* at) {
    std::uint16_t bits;
    std::memcpy(&bits, at, sizeof bits);
    return bits;
  }
};

void encode(const float* x, std::int64_t groups, std::int8_t* codes, float* scales, float* sums,
            std::int32_t* halves) {
  for (std::int64_t g = 0; g < groups; ++g, x += kGroupCodes, codes += kGroupCodes) {
    std::uint32_t largest = 0;  // magnitudes compare as their bits, NaN above all
    for (int i = 0; i < kGroupCodes; ++i) {
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffu;
      largest = bits > largest ? bits : largest;
    }
    const GroupScale scale = group_scale(largest);
    int totals[2] = {};
    for (int i = 0; i < kGroupCodes; ++i) {
      const int code = scale.inverse == 0 ? 0 : static_cast<int>(std::lrint(x[i] * scale.inverse));
      codes[i] = static_cast<std::int8_t>(code);
      totals[i / 16] += code;
    }
    scales[g] = scale.scale;
    sums[g] = scale.scale * static_cast<float>(totals[0] + totals[1]);
    halves[2 * g] = totals[0];
    halves[2 * g + 1] = totals[1];
  }
}

}  // namespace

const PanelKernels kPanelKernelsScalar = {encode, multiply_codes<ScalarSet>,
                                          multiply_floats<ScalarSet>};

const PanelKernels& panel_kernels() {
  static const PanelKernels* const chosen = [] {
#if defined(__x86_64__)
    const std::string isa = build_info().isa_chosen;
    if (isa == "avx512") return &kPanelKernelsAvx512;
    if (isa == "avx2") return &kPanelKernelsAvx2;
#endif
    return &kPanelKernelsScalar;
  }();
  return *chosen;
}

}  // namespace quire::model
