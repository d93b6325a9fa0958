// The encoders of rows that each instruction set has, for Codec::encode_rows.
#pragma once

#include <array>

#include "codec/codec.h"

namespace quire {

using Encoders = std::array<Codec::EncodeRows, kIsas>;

#if defined(__x86_64__)

#define QUIRE_ENCODER(name)                                                           \
  void name(const TileShape& shape, DType row_type, const std::byte* rows, int count, \
            std::byte* data, std::byte* scales) noexcept
QUIRE_ENCODER(encode_f32_avx2);
QUIRE_ENCODER(encode_f32_avx512);
QUIRE_ENCODER(encode_f16_avx2);
QUIRE_ENCODER(encode_f16_avx512);
QUIRE_ENCODER(encode_bf16_avx2);
QUIRE_ENCODER(encode_bf16_avx512);
QUIRE_ENCODER(encode_e4m3_avx2);
QUIRE_ENCODER(encode_e4m3_avx512);
QUIRE_ENCODER(encode_e5m2_avx2);
QUIRE_ENCODER(encode_e5m2_avx512);
QUIRE_ENCODER(encode_int8_avx2);
QUIRE_ENCODER(encode_int8_avx512);
#undef QUIRE_ENCODER

inline constexpr Encoders kF32Encoders = {nullptr, encode_f32_avx2, encode_f32_avx512};
inline constexpr Encoders kF16Encoders = {nullptr, encode_f16_avx2, encode_f16_avx512};
inline constexpr Encoders kBf16Encoders = {nullptr, encode_bf16_avx2, encode_bf16_avx512};
inline constexpr Encoders kE4m3Encoders = {nullptr, encode_e4m3_avx2, encode_e4m3_avx512};
inline constexpr Encoders kE5m2Encoders = {nullptr, encode_e5m2_avx2, encode_e5m2_avx512};
inline constexpr Encoders kInt8Encoders = {nullptr, encode_int8_avx2, encode_int8_avx512};

#else

inline constexpr Encoders kF32Encoders = {};
inline constexpr Encoders kF16Encoders = {};
inline constexpr Encoders kBf16Encoders = {};
inline constexpr Encoders kE4m3Encoders = {};
inline constexpr Encoders kE5m2Encoders = {};
inline constexpr Encoders kInt8Encoders = {};

#endif

}  // namespace quire
