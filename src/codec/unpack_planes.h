// Codes of planes (planes.h) as bytes in tiles of 8-bit codes: include after codec/ints_<set>.h.
#pragma once

#include "codec/products.h"

namespace quire {
namespace {

// Codes [first, first + 4 kLanes) of a plane of kWidth bits that has `count` codes, both multiples
// of 64 or of a vector.
template <int kWidth>
inline Ints plane_codes(const std::byte* plane, int count, int first) {
  constexpr int kUnitCodes = 512 / kWidth;
  constexpr int kVector = 4 * kLanes;
  const std::byte* unit = plane + first / kUnitCodes * 64;
  const int rest = first % kUnitCodes;
  const int left = count - (first - rest);
  const int stride = left < kUnitCodes ? left * kWidth / 8 : 64;
  if (stride % kVector == 0) {
    return byte_bits<kWidth>(load_ints(unit + rest % stride), rest / stride * kWidth);
  }
#if defined(__AVX512F__)
  if (stride == 32) return byte_bits_twice<kWidth>(unit, rest / stride * kWidth);
#endif
  std::byte bytes[kVector];
  for (int i = 0; i < kVector; ++i) {
    const int code = rest + i;
    bytes[i] = static_cast<std::byte>(static_cast<unsigned>(unit[code % stride]) >>
                                          (code / stride * kWidth) &
                                      ((1u << kWidth) - 1u));
  }
  return load_ints(bytes);
}

// The codes of a token tile, each as map.at makes it; `count` of them, a multiple of 64.
template <int kBits, class Map>
inline void unpack_tile(const std::byte* tile, int count, std::byte* to, const Map& map) {
  constexpr int kLow = kBits >= 4 ? 4 : 2;
  constexpr int kHigh = kBits - kLow;
  constexpr int kVector = 4 * kLanes;
  // Codes of whole units of both planes, which need no arithmetic to be found.
  constexpr int kSpan = 512 / (kHigh == 0 ? kLow : kHigh < kLow ? kHigh : kLow);
  const std::byte* high = tile + count * kLow / 8;
  int at = 0;
  for (; at + kSpan <= count; at += kSpan) {
    const std::byte* lows = tile + at * kLow / 8;
    const std::byte* highs = high + at * kHigh / 8;
#pragma GCC unroll 16
    for (int i = 0; i < kSpan; i += kVector) {
      const Ints low = byte_bits<kLow>(load_ints(lows + i * kLow / 512 * 64 + i % 64),
                                       i % (512 / kLow) / 64 * kLow);
      if constexpr (kHigh > 0) {
        const Ints upper = load_ints(highs + i * kHigh / 512 * 64 + i % 64);
        const int shift = i % (512 / kHigh) / 64 * kHigh;
        store_ints(to + at + i, map.at(join_bits<kLow, kHigh>(low, upper, shift)));
      } else {
        store_ints(to + at + i, map.at(low));
      }
    }
  }
  for (; at < count; at += kVector) {
    const Ints low = plane_codes<kLow>(tile, count, at);
    if constexpr (kHigh > 0) {
      const Ints upper = plane_codes<kHigh>(high, count, at);
      store_ints(to + at, map.at(join_bits<kLow, kHigh>(low, upper, 0)));
    } else {
      store_ints(to + at, map.at(low));
    }
  }
}

inline std::size_t expanded_tile_bytes(Side side, int slots, int dim) noexcept {
  const int channels = side == Side::key ? (dim + 3) / 4 * 4 : dim;
  return static_cast<std::size_t>(slots) * static_cast<std::size_t>(channels);
}

// All tiles of one side of a page.
template <int kBits, class Map>
inline void unpack_page(Side side, const PageSide& page, std::byte* to, const Map& map) {
  const bool keys = side == Side::key;
  const int count = keys ? kTile * ((page.dim + 3) / 4 * 4) : 4 * page.dim;
  const int tiles = page.slots / (keys ? kTile : 4);
  const std::byte* tile = page.data;
  for (int i = 0; i < tiles; ++i) {
    unpack_tile<kBits>(tile, count, to, map);
    tile += count * kBits / 8;
    to += count;
  }
}

}  // namespace
}  // namespace quire
