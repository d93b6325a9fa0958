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
QUIRE_ENCODER(encode_tq2_avx2);
QUIRE_ENCODER(encode_tq2_avx512);
QUIRE_ENCODER(encode_tq3_avx2);
QUIRE_ENCODER(encode_tq3_avx512);
QUIRE_ENCODER(encode_tq4_avx2);
QUIRE_ENCODER(encode_tq4_avx512);
QUIRE_ENCODER(encode_tq5_avx2);
QUIRE_ENCODER(encode_tq5_avx512);
QUIRE_ENCODER(encode_tq6_avx2);
QUIRE_ENCODER(encode_tq6_avx512);
QUIRE_ENCODER(encode_dual3_avx2);
QUIRE_ENCODER(encode_dual3_avx512);
QUIRE_ENCODER(encode_dual4_avx2);
QUIRE_ENCODER(encode_dual4_avx512);
QUIRE_ENCODER(encode_dual5_avx2);
QUIRE_ENCODER(encode_dual5_avx512);
QUIRE_ENCODER(encode_dual6_avx2);
QUIRE_ENCODER(encode_dual6_avx512);
#undef QUIRE_ENCODER

inline constexpr Encoders kF32Encoders = {nullptr, encode_f32_avx2, encode_f32_avx512};
inline constexpr Encoders kF16Encoders = {nullptr, encode_f16_avx2, encode_f16_avx512};
inline constexpr Encoders kBf16Encoders = {nullptr, encode_bf16_avx2, encode_bf16_avx512};
inline constexpr Encoders kE4m3Encoders = {nullptr, encode_e4m3_avx2, encode_e4m3_avx512};
inline constexpr Encoders kE5m2Encoders = {nullptr, encode_e5m2_avx2, encode_e5m2_avx512};
inline constexpr Encoders kInt8Encoders = {nullptr, encode_int8_avx2, encode_int8_avx512};
inline constexpr Encoders kTq2Encoders = {nullptr, encode_tq2_avx2, encode_tq2_avx512};
inline constexpr Encoders kTq3Encoders = {nullptr, encode_tq3_avx2, encode_tq3_avx512};
inline constexpr Encoders kTq4Encoders = {nullptr, encode_tq4_avx2, encode_tq4_avx512};
inline constexpr Encoders kTq5Encoders = {nullptr, encode_tq5_avx2, encode_tq5_avx512};
inline constexpr Encoders kTq6Encoders = {nullptr, encode_tq6_avx2, encode_tq6_avx512};
inline constexpr Encoders kDual3Encoders = {nullptr, encode_dual3_avx2, encode_dual3_avx512};
inline constexpr Encoders kDual4Encoders = {nullptr, encode_dual4_avx2, encode_dual4_avx512};
inline constexpr Encoders kDual5Encoders = {nullptr, encode_dual5_avx2, encode_dual5_avx512};
inline constexpr Encoders kDual6Encoders = {nullptr, encode_dual6_avx2, encode_dual6_avx512};

#else

inline constexpr Encoders kF32Encoders = {};
inline constexpr Encoders kF16Encoders = {};
inline constexpr Encoders kBf16Encoders = {};
inline constexpr Encoders kE4m3Encoders = {};
inline constexpr Encoders kE5m2Encoders = {};
inline constexpr Encoders kInt8Encoders = {};
inline constexpr Encoders kTq2Encoders = {};
inline constexpr Encoders kTq3Encoders = {};
inline constexpr Encoders kTq4Encoders = {};
inline constexpr Encoders kTq5Encoders = {};
inline constexpr Encoders kTq6Encoders = {};
inline constexpr Encoders kDual3Encoders = {};
inline constexpr Encoders kDual4Encoders = {};
inline constexpr Encoders kDual5Encoders = {};
inline constexpr Encoders kDual6Encoders = {};

#endif

}  // namespace quire
