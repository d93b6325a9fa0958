// Keys of f16, sixteen tokens by eight channels at a time. The instructions are those of AVX2,
// which every AVX-512 machine has. Everything here has internal linkage on purpose.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "codec/encode.h"
#include "codec/encode_plain.h"

namespace quire {
namespace {

constexpr int kTile = 16;
constexpr int kHalves = 8;

// Eight channels as f16.
template <DType kRow>
inline __m128i halves_at(const std::byte* at) {
  const auto* words = reinterpret_cast<const __m128i*>(at);
  if constexpr (kRow == DType::f16) return _mm_loadu_si128(words);
  __m256 x;
  if constexpr (kRow == DType::f32) {
    x = _mm256_loadu_ps(reinterpret_cast<const float*>(at));
  } else {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(words));
    x = _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// The same of rows that may end before: zeros behind them.
template <DType kRow>
inline __m128i halves_at(const std::byte* at, bool is_there, int channels) {
  if (!is_there) return _mm_setzero_si128();
  if (channels >= kHalves) return halves_at<kRow>(at);
  constexpr std::size_t kBytes = kRow == DType::f32 ? 4 : 2;
  std::byte filled[kHalves * kBytes] = {};
  std::memcpy(filled, at, static_cast<std::size_t>(channels) * kBytes);
  return halves_at<kRow>(filled);
}

// In each half of the vectors: number j of vector i becomes number i of vector j.
inline void transpose_halves(__m256i (&v)[8]) {
  __m256i a[8];
  __m256i b[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_epi16(v[i], v[i + 1]);
    a[i + 1] = _mm256_unpackhi_epi16(v[i], v[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm256_unpacklo_epi32(a[i], a[i + 2]);
    b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 2]);
    b[i + 2] = _mm256_unpacklo_epi32(a[i + 1], a[i + 3]);
    b[i + 3] = _mm256_unpackhi_epi32(a[i + 1], a[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = _mm256_unpacklo_epi64(b[i], b[i + 4]);
    v[2 * i + 1] = _mm256_unpackhi_epi64(b[i], b[i + 4]);
  }
}

// Channels [ch, ch + 8) of a tile. Tokens 0 to 7 in the lower half of a vector and 8 to 15 in the
// upper come out as the sixteen tokens of a channel, in order. Whole: all of them are there.
template <bool kWhole, DType kRow>
inline void encode_f16_key_block(const std::byte* rows, int tokens, int dim, int ch,
                                 std::byte* tile) {
  constexpr std::ptrdiff_t kBytes = kRow == DType::f32 ? 4 : 2;
  const std::ptrdiff_t row_bytes = kBytes * dim;
  const int left = dim - ch;
  const std::byte* at = rows + kBytes * ch;
  __m256i v[8];
  for (int t = 0; t < 8; ++t, at += row_bytes) {
    const std::byte* upper = at + 8 * row_bytes;
    v[t] = _mm256_inserti128_si256(
        _mm256_castsi128_si256(kWhole ? halves_at<kRow>(at)
                                      : halves_at<kRow>(at, t < tokens, left)),
        kWhole ? halves_at<kRow>(upper) : halves_at<kRow>(upper, t + 8 < tokens, left), 1);
  }
  transpose_halves(v);
  std::byte* to = tile + std::ptrdiff_t{ch} * kTile * 2;
  const int end = kWhole || left > kHalves ? kHalves : left;
  for (int c = 0; c < end; ++c) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + c * kTile * 2), v[c]);
  }
}

template <DType kRow>
void encode_f16_key_tile(const std::byte* rows, int tokens, int dim, std::byte* tile) {
  int ch = 0;
  if (tokens == kTile) {
    for (; ch + kHalves <= dim; ch += kHalves) {
      encode_f16_key_block<true, kRow>(rows, tokens, dim, ch, tile);
    }
  }
  for (; ch < dim; ch += kHalves) {
    encode_f16_key_block<false, kRow>(rows, tokens, dim, ch, tile);
  }
}

template <DType kRow>
void encode_f16_keys(const TileShape& shape, const std::byte* rows, int count, std::byte* data) {
  constexpr std::ptrdiff_t kBytes = kRow == DType::f32 ? 4 : 2;
  const std::ptrdiff_t tile_bytes = std::ptrdiff_t{kTile} * shape.dim * 2;
  const int tiles = (shape.slots + kTile - 1) / kTile;
  int tile = 0;
  for (; tile * kTile < count; ++tile) {
    const int left = count - tile * kTile;
    encode_f16_key_tile<kRow>(rows, left < kTile ? left : kTile, shape.dim, data);
    rows += kBytes * kTile * shape.dim;
    data += tile_bytes;
  }
  std::memset(data, 0, static_cast<std::size_t>((tiles - tile) * tile_bytes));
}

inline void encode_f16(const TileShape& shape, DType row_type, const std::byte* rows, int count,
                       std::byte* data, Isa isa) {
  if (shape.side == Side::value)
    return encode_plain_values(shape, row_type, rows, count, DType::f16, data, isa);
  switch (row_type) {
    case DType::f32:
      return encode_f16_keys<DType::f32>(shape, rows, count, data);
    case DType::f16:
      return encode_f16_keys<DType::f16>(shape, rows, count, data);
    case DType::bf16:
      return encode_f16_keys<DType::bf16>(shape, rows, count, data);
  }
}

}  // namespace
}  // namespace quire
