// Codes of fp8 by lanes, of finite numbers. Included behind encode_avx2.h or encode_avx512.h.
#pragma once

#include "codec/encode.h"
#include "codec/encode_tiles.h"

namespace quire {
namespace {

// The formats of base/numbers.h. Rounding is of integers above the smallest normal number; below
// it a code counts units of 2^(1 - kBias - kMantissa), and so does a whole number.
template <int kMantissa, int kBias, std::uint32_t kLargest>
struct Fp8Code {
  static constexpr int kPack = 4;
  static constexpr bool kSigned = false;
  template <DType kRow>
  static constexpr bool kSame = false;

  template <DType kRow>
  void begin(const TileRows&, int) {}

  template <DType kRow>
  Bits codes(Floats x, int, int) const {
    constexpr int kShift = 23 - kMantissa;
    constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << 23;
    constexpr std::uint32_t kSmallestNormal = static_cast<std::uint32_t>(128 - kBias) << 23;
    constexpr float kUnits = static_cast<float>(1 << (kBias + kMantissa - 1));
    const Bits bits = bits_of(x);
    const Bits magnitude = bits & kMagnitude;
    const Bits odd = (magnitude >> kShift) & 1u;
    const Bits normal = (magnitude + (((1u << (kShift - 1)) - 1u) - kRebias) + odd) >> kShift;
    const Bits subnormal = round_even(floats_of(magnitude) * spread(kUnits));
    const Bits code = where_below(magnitude, spread(kSmallestNormal), subnormal, normal);
    return smaller(code, spread(kLargest)) | ((bits >> 24) & 0x80u);
  }
};

using E4m3Code = Fp8Code<3, 7, 0x7eu>;
using E5m2Code = Fp8Code<2, 15, 0x7bu>;

}  // namespace
}  // namespace quire
