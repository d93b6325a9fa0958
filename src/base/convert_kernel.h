// The conversions of convert.h by lanes. Included behind elements_avx2.h or elements_avx512.h;
// everything here has internal linkage, as there.
#pragma once

#include "base/convert.h"
#include "base/elements.h"

namespace quire {
namespace {

// Writes kLanes elements of dtype kTo.
template <DType kTo>
inline void store(std::byte* at, Floats a) {
  if constexpr (kTo == DType::f32) {
    store_bits(at, bits_of(a));
  } else if constexpr (kTo == DType::f16) {
    store_f16(at, a);
  } else {
    store_halves(at, bf16_codes(a));
  }
}

// A pass over rows: how many elements it takes at once, and the largest magnitude so far, of what
// it read. Rounding keeps order, so the largest read becomes the largest written.
template <DType kFrom, DType kTo>
struct Pass {
  static constexpr std::size_t kStep = kLanes;
  Bits top = {};

  void step(const std::byte* in, std::byte* out) {
    const Floats read = load<kFrom>(in);
    store<kTo>(out, read);
    top = larger(top, bits_of(read) & kMagnitude);
  }
  float found() const {
    const std::uint32_t bits = largest(top);
    float read;
    std::memcpy(&read, &bits, sizeof read);
    if constexpr (kTo == DType::f16) return f32_from_f16(f16_from_f32(read));
    if constexpr (kTo == DType::bf16) return f32_from_bf16(bf16_from_f32(read));
    return read;
  }
};

// Nothing to convert: a copy that looks at what it moves.
template <DType kType>
struct Pass<kType, kType> {
  static constexpr std::size_t kStep = kVectorBytes / kBytesOf<kType>;
  Bits top = {};

  void step(const std::byte* in, std::byte* out) {
    const Bits bits = load_bits(in);
    store_bits(out, bits);
    if constexpr (kType == DType::f32) {
      top = larger(top, bits & kMagnitude);
    } else {
      top = larger_halves(top, bits & kHalfMagnitudes);
    }
  }
  float found() const {
    const std::uint32_t code = kType == DType::f32 ? largest(top) : largest_half(top);
    return load_element(kType, &code, 0);
  }
};

template <DType kFrom, DType kTo>
float convert(const std::byte* in, std::ptrdiff_t in_step, std::byte* out, std::ptrdiff_t out_step,
              std::size_t count, std::size_t dim) noexcept {
  using ThisPass = Pass<kFrom, kTo>;
  ThisPass pass;
  for (std::size_t row = 0; row < count; ++row) {
    std::size_t c = 0;
    for (; c + ThisPass::kStep <= dim; c += ThisPass::kStep) {
      pass.step(in + c * kBytesOf<kFrom>, out + c * kBytesOf<kTo>);
    }
    if (c < dim) {
      std::byte filled[2 * kVectorBytes] = {};
      std::byte converted[2 * kVectorBytes];
      std::memcpy(filled, in + c * kBytesOf<kFrom>, (dim - c) * kBytesOf<kFrom>);
      pass.step(filled, converted);
      std::memcpy(out + c * kBytesOf<kTo>, converted, (dim - c) * kBytesOf<kTo>);
    }
    in += in_step;
    out += out_step;
  }
  return pass.found();
}

}  // namespace
}  // namespace quire
