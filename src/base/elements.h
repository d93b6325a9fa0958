// What both instruction sets make of elements in lanes. Included behind elements_avx2.h or
// elements_avx512.h; everything here has internal linkage, as there.
#pragma once

namespace quire {
namespace {

template <DType kType>
constexpr std::size_t kBytesOf = kType == DType::f32 ? 4 : 2;

constexpr std::uint32_t kMagnitude = 0x7fffffffu;       // of an f32
constexpr std::uint32_t kHalfMagnitudes = 0x7fff7fffu;  // of two 16-bit floats

// The bf16 code of each lane that is not NaN, in its lower half. By integers: the processor's own
// instruction makes zeros of subnormals.
inline Bits bf16_codes(Floats a) {
  const Bits bits = bits_of(a);
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

}  // namespace
}  // namespace quire
