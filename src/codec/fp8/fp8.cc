#include "codec/fp8/fp8.h"

#include <cfloat>

#include "base/numbers.h"
#include "codec/element_codec.h"
#include "codec/fp8/kernels.h"

namespace quire {
namespace {

struct Fp8Element {
  using Code = std::uint8_t;
  static constexpr std::optional<DType> kLossless = std::nullopt;
  static constexpr int kPack = 4;
  static constexpr float kLargest = FLT_MAX;  // saturates
};

struct E4m3Element : Fp8Element {
  static constexpr const char* kName = "fp8_e4m3";
  static constexpr std::array<const Kernel*, kIsas> kKernels = QUIRE_KERNELS(kFp8E4m3Kernel);
  static constexpr Encoders kEncoders = kE4m3Encoders;
  static Code encode(float value) noexcept { return e4m3_from_f32(value); }
  static float decode(Code code) noexcept { return f32_from_e4m3(code); }
};

struct E5m2Element : Fp8Element {
  static constexpr const char* kName = "fp8_e5m2";
  static constexpr std::array<const Kernel*, kIsas> kKernels = QUIRE_KERNELS(kFp8E5m2Kernel);
  static constexpr Encoders kEncoders = kE5m2Encoders;
  static Code encode(float value) noexcept { return e5m2_from_f32(value); }
  static float decode(Code code) noexcept { return f32_from_e5m2(code); }
};

}  // namespace

constexpr Codec kFp8E4m3Codec = element_codec<E4m3Element>();
constexpr Codec kFp8E5m2Codec = element_codec<E5m2Element>();

}  // namespace quire
