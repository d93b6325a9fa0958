#include "codec/f32/f32.h"

#include <cmath>

#include "codec/element_codec.h"

namespace quire {
namespace {

struct F32Element {
  using Code = float;
  static constexpr const char* kName = "f32";
  static constexpr std::optional<DType> kLossless = DType::f32;
  static constexpr int kPack = 1;
  static Code encode(float value) noexcept { return value; }
  static float decode(Code code) noexcept { return code; }
  static bool fits(float value) noexcept { return std::isfinite(value); }
};

}  // namespace

constexpr Codec kF32Codec = element_codec<F32Element>();

}  // namespace quire
