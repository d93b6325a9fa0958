#include "codec/bf16/bf16.h"

#include <bit>

#include "base/numbers.h"
#include "codec/bf16/kernels.h"
#include "codec/element_codec.h"

namespace quire {
namespace {

struct Bf16Element {
  using Code = std::uint16_t;
  static constexpr const char* kName = "bf16";
  static constexpr std::optional<DType> kLossless = DType::bf16;
  static constexpr int kPack = 2;
  static constexpr std::array<const Kernel*, kIsas> kKernels = QUIRE_KERNELS(kBf16Kernel);
  static constexpr Encoders kEncoders = kBf16Encoders;
  // Below the middle between the last number and the next, which would be 2^128.
  static constexpr float kLargest = std::bit_cast<float>(0x7f7f7fffu);
  static Code encode(float value) noexcept { return bf16_from_f32(value); }
  static float decode(Code code) noexcept { return f32_from_bf16(code); }
};

}  // namespace

constexpr Codec kBf16Codec = element_codec<Bf16Element>();

}  // namespace quire
