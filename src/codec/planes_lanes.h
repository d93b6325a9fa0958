// Codes of 16 tokens into the planes of planes.h, by lanes. Included behind encode_avx2.h or
// encode_avx512.h; everything here has internal linkage, as there.
#pragma once

#include "codec/rotation/rotation.h"

namespace quire {
namespace {

template <int kBits>
class PlaneWriter {
 public:
  // Codes of one token of the 16, one byte each, with room for whole vectors.
  std::uint8_t* codes(int token) { return rows_[token]; }

  // Writes 16 tokens of `dim` channels: one token tile of keys or four of values. Answers the end.
  // Bytes of channels from `dim` on must be zeros up to a multiple of 4.
  std::byte* write(Side side, int dim, std::byte* data) {
    if (side == Side::key) {
      order_keys(dim);
      return write_tile(ordered_, 16 * ((dim + 3) / 4 * 4), data);
    }
    for (int first = 0; first < 16; first += 4) {
      order_values(first, dim);
      data = write_tile(ordered_, 4 * dim, data);
    }
    return data;
  }

 private:
  static constexpr int kLow = kBits >= 4 ? 4 : 2;

  // [ch / 4][token][ch % 4]
  void order_keys(int dim) {
    const int columns = (dim + 3) / 4;
    for (int column = 0; column < columns; column += kLanes) {
      const int end = columns - column < kLanes ? columns - column : kLanes;
      for (int first = 0; first < 16; first += kLanes) {
        Bits v[kLanes];
        for (int i = 0; i < kLanes; ++i) v[i] = load_bits(rows_[first + i] + column * 4);
        transpose(v);
        for (int j = 0; j < end; ++j) store_bits(ordered_ + (column + j) * 64 + first * 4, v[j]);
      }
    }
  }

  // [ch][token % 4]
  void order_values(int first, int dim) {
    for (int ch = 0; ch < dim; ch += kLanes) {
      store_bits(ordered_ + ch * 4, load_bytes(rows_[first] + ch) |
                                        (load_bytes(rows_[first + 1] + ch) << 8) |
                                        (load_bytes(rows_[first + 2] + ch) << 16) |
                                        (load_bytes(rows_[first + 3] + ch) << 24));
    }
  }

  static std::byte* write_tile(const std::uint8_t* codes, int count, std::byte* data) {
    data = write_plane<kLow, 0>(codes, count, data);
    if constexpr (kBits > kLow) data = write_plane<kBits - kLow, kLow>(codes, count, data);
    return data;
  }

  // Bits [kFirst, kFirst + kWidth) of the codes.
  template <int kWidth, int kFirst>
  static std::byte* write_plane(const std::uint8_t* codes, int count, std::byte* data) {
    constexpr int kUnitCodes = 512 / kWidth;
    constexpr int kVector = static_cast<int>(kVectorBytes);
    constexpr std::uint32_t kMask = ((1u << kWidth) - 1u) * 0x01010101u;
    for (; count > 0; codes += kUnitCodes, count -= kUnitCodes) {
      const int bytes = count < kUnitCodes ? count * kWidth / 8 : 64;
      int j = 0;
      for (; j + kVector <= bytes; j += kVector) {
        Bits joined = {};
        for (int i = 0; i < 8 / kWidth; ++i) {
          const Bits part = (load_bits(codes + i * bytes + j) >> kFirst) & kMask;
          joined |= part << (i * kWidth);
        }
        store_bits(data + j, joined);
      }
      for (; j < bytes; ++j) {
        unsigned joined = 0;
        for (int i = 0; i < 8 / kWidth; ++i) {
          joined |= (codes[i * bytes + j] >> kFirst & (kMask & 0xffu)) << (i * kWidth);
        }
        data[j] = static_cast<std::byte>(joined);
      }
      data += bytes;
    }
    return data;
  }

  // A row may be read, and an order written, up to a vector past its end.
  static constexpr int kRowBytes = kMaxRotatedDim + 64;
  alignas(64) std::uint8_t rows_[16][kRowBytes];
  alignas(64) std::uint8_t ordered_[16 * kMaxRotatedDim + 64];
};

}  // namespace
}  // namespace quire
