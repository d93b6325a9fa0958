// Numbers narrower than f32, as bits: f16 (IEEE binary16), bf16, fp8 E4M3 and E5M2 (OCP).
//
//   format   sign exponent mantissa  bias  largest finite   above it           NaN
//   f16         1        5       10    15           65504   infinity           any payload
//   bf16        1        8        7   127        3.39e38    infinity           any payload
//   e4m3        1        4        3     7             448   stays 448          0x7f, 0xff
//   e5m2        1        5        2    15           57344   stays 57344        0x7f, 0xff
//
// Every conversion from f32 rounds to nearest, ties to even, keeps the sign of zero and makes
// subnormals; every conversion to f32 is exact. They are integer arithmetic on the bits, so the
// rounding and flushing modes of the processor do not matter. Instruction-set units must give the
// same bits.
//
// Thread-safety: functions of their arguments.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "quire/spec.hpp"

namespace quire {

// Pages travel as little-endian bytes and kernels read them in place.
static_assert(std::endian::native == std::endian::little);

// Infinite from 65520 up. NaN stays NaN (quiet, with the upper bits of its payload).
std::uint16_t f16_from_f32(float value) noexcept;
float f32_from_f16(std::uint16_t bits) noexcept;

// Infinite from the midpoint above the largest bf16. NaN stays NaN, as above.
std::uint16_t bf16_from_f32(float value) noexcept;
float f32_from_bf16(std::uint16_t bits) noexcept;

// Saturating: whatever is larger than the largest finite value, infinity too, becomes it. NaN
// becomes 0x7f with the sign kept.
std::uint8_t e4m3_from_f32(float value) noexcept;
std::uint8_t e5m2_from_f32(float value) noexcept;
float f32_from_e4m3(std::uint8_t bits) noexcept;
float f32_from_e5m2(std::uint8_t bits) noexcept;  // 0x7c is infinity; nothing is encoded to it

// The largest finite numbers.
inline constexpr float kLargestF16 = 0x1.ffcp15f;
inline constexpr float kLargestBf16 = 0x1.fep127f;
float largest_finite(DType dtype) noexcept;

// Whether a number handed in is one of DType's.
constexpr bool is_known(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

// Element `index` of an array of `dtype`, which need not be aligned.
float load_element(DType dtype, const void* data, std::size_t index) noexcept;
// Rounds `value` to `dtype` and writes it.
void store_element(DType dtype, void* data, std::size_t index, float value) noexcept;

}  // namespace quire
