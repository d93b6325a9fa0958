#include "base/numbers.h"

#include <cstring>
#include <limits>

namespace quire {
namespace {

constexpr std::uint32_t kF32SignBit = 0x80000000u;
constexpr std::uint32_t kF32Infinity = 0x7f800000u;
constexpr int kF32Mantissa = 23;
constexpr int kF32Bias = 127;

// value / 2^shift, rounded to nearest, ties to even. Requires: 1 <= shift <= 31, value < 2^31.
constexpr std::uint32_t shift_to_even(std::uint32_t value, int shift) {
  const std::uint32_t odd = (value >> shift) & 1u;
  return (value + ((1u << (shift - 1)) - 1u) + odd) >> shift;
}

// The code of a finite f32 magnitude in a format of `mantissa` bits and `bias`, as if its
// exponents had no upper end: the caller compares the code with its largest. A carry out of the
// mantissa lands in the exponent, which is the next number up. Requires: bias < 127.
constexpr std::uint32_t narrow_magnitude(std::uint32_t magnitude, int mantissa, int bias) {
  const int shift = kF32Mantissa - mantissa;
  const int exponent = static_cast<int>(magnitude >> kF32Mantissa) - kF32Bias + bias;
  if (exponent >= 1) {
    const std::uint32_t rebias = static_cast<std::uint32_t>(kF32Bias - bias) << kF32Mantissa;
    return shift_to_even(magnitude - rebias, shift);
  }
  // Subnormal: one more bit is lost per exponent below the smallest. From 25 lost bits on the
  // 24-bit significand is below half a unit. F32 subnormals are far below it.
  const int lost = shift + 1 - exponent;
  if (lost >= kF32Mantissa + 2) return 0;
  const std::uint32_t implicit = 1u << kF32Mantissa;
  return shift_to_even((magnitude & (implicit - 1u)) | implicit, lost);
}

// The f32 of a finite code magnitude. Requires: bias < 127.
constexpr float widen_magnitude(std::uint32_t code, int mantissa, int bias) {
  const std::uint32_t exponent = code >> mantissa;
  const std::uint32_t fraction = code & ((1u << mantissa) - 1u);
  if (exponent == 0) {
    // fraction * 2^(1 - bias - mantissa): both factors and the product are f32 normals, or zero.
    const auto unit = static_cast<std::uint32_t>(kF32Bias + 1 - bias - mantissa) << kF32Mantissa;
    return static_cast<float>(fraction) * std::bit_cast<float>(unit);
  }
  const std::uint32_t rebias = static_cast<std::uint32_t>(kF32Bias - bias) << kF32Mantissa;
  return std::bit_cast<float>((code << (kF32Mantissa - mantissa)) + rebias);
}

constexpr float with_sign(float magnitude, std::uint32_t sign) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

// The two fp8 formats differ in their mantissa, bias and largest finite code only.
constexpr std::uint8_t narrow_fp8(float value, int mantissa, int bias, std::uint32_t largest) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits & kF32SignBit) >> 24;
  const std::uint32_t magnitude = bits & ~kF32SignBit;
  std::uint32_t code = 0x7fu;
  if (magnitude < kF32Infinity) code = narrow_magnitude(magnitude, mantissa, bias);
  if (magnitude <= kF32Infinity && (magnitude == kF32Infinity || code > largest)) code = largest;
  return static_cast<std::uint8_t>(sign | code);
}

constexpr std::uint32_t kE4m3Largest = 0x7eu;
constexpr std::uint32_t kE5m2Largest = 0x7bu;
constexpr std::uint32_t kF16Infinity = 0x7c00u;

}  // namespace

std::uint16_t f16_from_f32(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits & kF32SignBit) >> 16;
  const std::uint32_t magnitude = bits & ~kF32SignBit;
  std::uint32_t code = kF16Infinity;
  if (magnitude > kF32Infinity) {
    code |= 0x200u | ((magnitude >> 13) & 0x1ffu);
  } else if (magnitude < kF32Infinity) {
    const std::uint32_t rounded = narrow_magnitude(magnitude, 10, 15);
    if (rounded < kF16Infinity) code = rounded;
  }
  return static_cast<std::uint16_t>(sign | code);
}

float f32_from_f16(std::uint16_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t code = bits & 0x7fffu;
  if (code < kF16Infinity) return with_sign(widen_magnitude(code, 10, 15), sign);
  const std::uint32_t payload = (code & 0x3ffu) << 13;
  const std::uint32_t quiet = payload != 0 ? 0x400000u : 0u;
  return std::bit_cast<float>(sign | kF32Infinity | quiet | payload);
}

std::uint16_t bf16_from_f32(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits & kF32SignBit) >> 16;
  const std::uint32_t magnitude = bits & ~kF32SignBit;
  // The exponents are those of f32: subnormals and the carry to infinity need no case of their own.
  std::uint32_t code = shift_to_even(magnitude, 16);
  if (magnitude > kF32Infinity) code = (magnitude >> 16) | 0x40u;
  return static_cast<std::uint16_t>(sign | code);
}

float f32_from_bf16(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint8_t e4m3_from_f32(float value) noexcept { return narrow_fp8(value, 3, 7, kE4m3Largest); }

std::uint8_t e5m2_from_f32(float value) noexcept { return narrow_fp8(value, 2, 15, kE5m2Largest); }

float f32_from_e4m3(std::uint8_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x80u) << 24;
  const std::uint32_t code = bits & 0x7fu;
  if (code > kE4m3Largest) return std::bit_cast<float>(sign | 0x7fc00000u);
  return with_sign(widen_magnitude(code, 3, 7), sign);
}

float f32_from_e5m2(std::uint8_t bits) noexcept {
  // The upper half of an f16.
  return f32_from_f16(static_cast<std::uint16_t>(bits << 8));
}

std::size_t bytes_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
  }
  return 0;
}

const char* name_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
  }
  return "unknown";
}

float largest_finite(DType dtype) noexcept {
  switch (dtype) {
    case DType::f16:
      return kLargestF16;
    case DType::bf16:
      return kLargestBf16;
    default:
      return std::numeric_limits<float>::max();
  }
}

float load_element(DType dtype, const void* data, std::size_t index) noexcept {
  const auto* bytes = static_cast<const std::byte*>(data);
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, bytes + index * sizeof value, sizeof value);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, bytes + index * sizeof bits, sizeof bits);
  return dtype == DType::f16 ? f32_from_f16(bits) : f32_from_bf16(bits);
}

void store_element(DType dtype, void* data, std::size_t index, float value) noexcept {
  auto* bytes = static_cast<std::byte*>(data);
  if (dtype == DType::f32) {
    std::memcpy(bytes + index * sizeof value, &value, sizeof value);
    return;
  }
  const std::uint16_t bits = dtype == DType::f16 ? f16_from_f32(value) : bf16_from_f32(value);
  std::memcpy(bytes + index * sizeof bits, &bits, sizeof bits);
}

}  // namespace quire
