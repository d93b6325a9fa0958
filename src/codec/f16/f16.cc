#include "codec/f16/f16.h"

#include <cmath>

#include "base/numbers.h"
#include "codec/element_codec.h"

namespace quire {
namespace {

struct F16Element {
  using Code = std::uint16_t;
  static constexpr const char* kName = "f16";
  static constexpr std::optional<DType> kLossless = DType::f16;
  static constexpr int kPack = 1;
  static Code encode(float value) noexcept { return f16_from_f32(value); }
  static float decode(Code code) noexcept { return f32_from_f16(code); }
  static bool fits(float value) noexcept { return std::isfinite(decode(encode(value))); }
};

}  // namespace

constexpr Codec kF16Codec = element_codec<F16Element>();

}  // namespace quire
