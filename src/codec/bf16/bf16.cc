#include "codec/bf16/bf16.h"

#include <cmath>

#include "base/numbers.h"
#include "codec/element_codec.h"

namespace quire {
namespace {

struct Bf16Element {
  using Code = std::uint16_t;
  static constexpr const char* kName = "bf16";
  static constexpr std::optional<DType> kLossless = DType::bf16;
  static constexpr int kPack = 2;
  static Code encode(float value) noexcept { return bf16_from_f32(value); }
  static float decode(Code code) noexcept { return f32_from_bf16(code); }
  static bool fits(float value) noexcept { return std::isfinite(decode(encode(value))); }
};

}  // namespace

constexpr Codec kBf16Codec = element_codec<Bf16Element>();

}  // namespace quire
