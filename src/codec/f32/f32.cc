#include "codec/f32/f32.h"

#include <cfloat>

#include "codec/element_codec.h"
#include "codec/f32/kernels.h"

namespace quire {
namespace {

struct F32Element {
  using Code = float;
  static constexpr const char* kName = "f32";
  static constexpr std::optional<DType> kLossless = DType::f32;
  static constexpr int kPack = 1;
  static constexpr std::array<const Kernel*, kIsas> kKernels = QUIRE_KERNELS(kF32Kernel);
  static constexpr Encoders kEncoders = kF32Encoders;
  static constexpr float kLargest = FLT_MAX;
  static Code encode(float value) noexcept { return value; }
  static float decode(Code code) noexcept { return code; }
};

}  // namespace

constexpr Codec kF32Codec = element_codec<F32Element>();

}  // namespace quire
