#include "codec/f16/f16.h"

#include "base/numbers.h"
#include "codec/element_codec.h"
#include "codec/f16/kernels.h"

namespace quire {
namespace {

struct F16Element {
  using Code = std::uint16_t;
  static constexpr const char* kName = "f16";
  static constexpr std::optional<DType> kLossless = DType::f16;
  static constexpr int kPack = 1;
  static constexpr std::array<const Kernel*, kIsas> kKernels = QUIRE_KERNELS(kF16Kernel);
  static constexpr Encoders kEncoders = kF16Encoders;
  // Below 65520, the middle between the last number and the next, which would be 65536.
  static constexpr float kLargest = 0x1.ffdffep15f;
  static Code encode(float value) noexcept { return f16_from_f32(value); }
  static float decode(Code code) noexcept { return f32_from_f16(code); }
};

}  // namespace

constexpr Codec kF16Codec = element_codec<F16Element>();

}  // namespace quire
