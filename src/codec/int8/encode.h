// Codes of int8 by lanes; see int8.cc for what they are. Included behind encode_avx2.h or
// encode_avx512.h.
//
// The quotient x / s is made from r = 1 / s without dividing: q = x r is off by less than 2^-22 of
// itself, e = x - q s is what is missing, and q + e r differs from x / s by less than 2^-44 of it
// before it is rounded. No f32 x has a quotient by an 11-bit s closer than 2^-37 of it to the
// middle between two f32 numbers, so the result is x / s rounded to nearest, as a division gives
// it. Where e underflows the code is 0 anyway.
#pragma once

#include "codec/encode.h"
#include "codec/encode_tiles.h"

namespace quire {
namespace {

// The largest magnitude of `count` elements, as a code of their type.
template <DType kRow>
inline std::uint32_t largest_of(const std::byte* at, int count) {
  constexpr int kStep = static_cast<int>(kVectorBytes / kBytesOf<kRow>);
  constexpr std::uint32_t kMask = kRow == DType::f32 ? kMagnitude : kHalfMagnitudes;
  const auto end = static_cast<std::ptrdiff_t>(kBytesOf<kRow>) * count;
  const auto more = [](Bits a, Bits b) {
    return kRow == DType::f32 ? larger(a, b) : larger_halves(a, b);
  };
  Bits top = {};
  if (count < kStep) {
    std::byte filled[kVectorBytes] = {};
    std::memcpy(filled, at, static_cast<std::size_t>(end));
    top = load_bits(filled) & kMask;
  } else {
    constexpr auto kBytes = static_cast<std::ptrdiff_t>(kVectorBytes);
    for (std::ptrdiff_t i = 0; i + kBytes <= end; i += kBytes) {
      top = more(top, load_bits(at + i) & kMask);
    }
    top = more(top, load_bits(at + end - kBytes) & kMask);  // the rest, and some again
  }
  return kRow == DType::f32 ? largest(top) : largest_half(top);
}

template <bool kSplit>
struct Int8Code {
  static constexpr int kPack = 4;
  static constexpr bool kSigned = true;
  template <DType kRow>
  static constexpr bool kSame = false;

  int split;          // channels of the first part
  std::byte* scales;  // [part][padded slots], f16
  std::ptrdiff_t padded_slots;
  float scale[2][kTile] = {};    // of the tile
  float inverse[2][kTile] = {};  // 1 / scale, or 0

  template <DType kRow>
  void begin(const TileRows& rows, int tile) {
    for (int part = 0; part < (kSplit ? 2 : 1); ++part) {
      const int from = part == 0 ? 0 : split;
      const int end = kSplit && part == 0 ? split : rows.dim;
      std::byte tops[kTile * kBytesOf<kRow>] = {};
      for (int t = 0; t < rows.tokens; ++t) {
        const std::uint32_t top = largest_of<kRow>(rows.at<kRow>(t, from), end - from);
        std::memcpy(tops + static_cast<std::size_t>(t) * kBytesOf<kRow>, &top, kBytesOf<kRow>);
      }
      std::byte* to = scales + (part * padded_slots + std::ptrdiff_t{tile} * kTile) * 2;
      for (int t = 0; t < kTile; t += kLanes) {
        store_f16(to + t * 2,
                  load<kRow>(tops + static_cast<std::size_t>(t) * kBytesOf<kRow>) / 127.0f);
        const Floats stored = load<DType::f16>(to + t * 2);
        store_bits(&scale[part][t], bits_of(stored));
        store_bits(&inverse[part][t], bits_of(where_positive(stored, 1.0f / stored)));
      }
    }
  }

  template <DType kRow>
  Bits codes(Floats x, int t, int ch) const {
    Floats s = spread(scale[0][t]);
    Floats r = spread(inverse[0][t]);
    if constexpr (kSplit) {
      const Bits channel = count_up() + static_cast<std::uint32_t>(ch);
      const Bits border = spread(static_cast<std::uint32_t>(split));
      s = floats_of(where_below(channel, border, bits_of(s), bits_of(spread(scale[1][t]))));
      r = floats_of(where_below(channel, border, bits_of(r), bits_of(spread(inverse[1][t]))));
    }
    const Floats q = x * r;
    return round_even(fma(fma_minus(q, s, x), r, q));
  }
};

inline void encode_int8(const TileShape& shape, DType row_type, const std::byte* rows, int count,
                        std::byte* data, std::byte* scales) {
  const std::ptrdiff_t padded = (shape.slots + kTile - 1) / kTile * kTile;
  const bool split = shape.split > 0 && shape.split < shape.dim;
  const std::ptrdiff_t used = (count + kTile - 1) / kTile * kTile;
  for (std::ptrdiff_t part = 0; part < (split ? 2 : 1); ++part) {
    std::memset(scales + (part * padded + used) * 2, 0,
                static_cast<std::size_t>(padded - used) * 2);
  }
  if (split) {
    encode_tiles(shape, row_type, rows, count, data, Int8Code<true>{shape.split, scales, padded});
  } else {
    encode_tiles(shape, row_type, rows, count, data, Int8Code<false>{0, scales, padded});
  }
}

}  // namespace
}  // namespace quire
