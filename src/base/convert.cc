#include "base/convert.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace quire {
namespace {

template <DType kFrom, DType kTo>
float convert(const std::byte* in, std::ptrdiff_t in_step, std::byte* out, std::ptrdiff_t out_step,
              std::size_t count, std::size_t dim) noexcept {
  std::uint32_t largest = 0;  // as bits, where a NaN is larger than infinity
  for (std::size_t row = 0; row < count; ++row) {
    for (std::size_t c = 0; c < dim; ++c) {
      store_element(kTo, out, c, load_element(kFrom, in, c));
      const auto bits = std::bit_cast<std::uint32_t>(load_element(kTo, out, c));
      largest = std::max(largest, bits & 0x7fffffffu);
    }
    in += in_step;
    out += out_step;
  }
  return std::bit_cast<float>(largest);
}

constexpr DType kF32 = DType::f32;
constexpr DType kF16 = DType::f16;
constexpr DType kBf16 = DType::bf16;

constexpr ConvertRows kConvertScalar[kDTypes][kDTypes] = {
    {convert<kF32, kF32>, convert<kF32, kF16>, convert<kF32, kBf16>},
    {convert<kF16, kF32>, convert<kF16, kF16>, convert<kF16, kBf16>},
    {convert<kBf16, kF32>, convert<kBf16, kF16>, convert<kBf16, kBf16>},
};

}  // namespace

ConvertRows convert_rows(DType from, DType to, [[maybe_unused]] Isa isa) noexcept {
  const auto f = static_cast<std::size_t>(from);
  const auto t = static_cast<std::size_t>(to);
#if defined(__x86_64__)
  if (isa == Isa::avx512) return kConvertAvx512[f][t];
  if (isa == Isa::avx2) return kConvertAvx2[f][t];
#endif
  return kConvertScalar[f][t];
}

}  // namespace quire
