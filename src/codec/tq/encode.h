// Codes of tq by lanes; see tq.cc for what they are. Included behind encode_avx2.h or
// encode_avx512.h; everything here has internal linkage, as there.
#pragma once

#include "codec/encode.h"
// After the lanes they are written with.
#include "base/elements.h"
#include "codec/planes_lanes.h"
#include "codec/rotation/rotate_lanes.h"
#include "codec/tq/codebooks.h"

namespace quire {
namespace {

// The levels and borders of one sign, as tables that can be looked up.
template <int kBits>
struct LevelTables {
  static constexpr int kLevels = 1 << (kBits - 1);
  static constexpr int kEntries = kLevels < 8 ? 8 : kLevels;
  float levels[kEntries] = {};
  // Of each step of the search by halves: the border in the middle of what is left.
  float borders[kBits - 1][kEntries] = {};

  constexpr LevelTables() {
    for (int i = 0; i < kLevels; ++i) levels[i] = Codebook<kBits>::kLevels[i];
    for (int step = 0; step < kBits - 1; ++step) {
      const int half = kLevels / 2 >> step;
      for (int i = 0; i < kLevels; i += 2 * half) {
        borders[step][i] = Codebook<kBits>::kBorders[i + half - 1];
      }
    }
  }

  // How many borders lie below each magnitude.
  Bits level_of(Floats magnitude) const {
    Bits below = add_where_less(Bits{}, spread(borders[0][0]), magnitude, kLevels / 2);
    for (int step = 1; step < kBits - 1; ++step) {
      below = add_where_less(below, look_up(borders[step], below), magnitude,
                             static_cast<std::uint32_t>(kLevels / 2 >> step));
    }
    return below;
  }
};

template <int kBits, Side kSide>
class TqEncoder {
 public:
  explicit TqEncoder(const TileShape& shape) : shape_(shape), rotation_(shape) {}

  template <DType kRow>
  void encode(const std::byte* rows, int count, std::byte* data, std::byte* scales) {
    const int slots = (shape_.slots + 15) / 16 * 16;
    for (int first = 0; first < slots; first += 16) {
      if (first >= count) {
        const int bytes_left = (slots - first) *
                               (kSide == Side::key ? (shape_.dim + 3) / 4 * 4 : shape_.dim) / 8 *
                               kBits;
        std::memset(data, 0, static_cast<std::size_t>(bytes_left));
        std::memset(scales, 0, static_cast<std::size_t>(slots - first) * 2);
        return;
      }
      float tile_scales[16] = {};
      for (int t = 0; t < 16; t += kGroup) {
        const int left = count - first - t;
        encode_group<kRow>(rows, left < kGroup ? left : kGroup, t, tile_scales + t);
        rows += kGroup * shape_.dim * static_cast<int>(kBytesOf<kRow>);
      }
      data = writer_.write(kSide, shape_.dim, data);
      for (int t = 0; t < 16; t += kLanes) store_f16(scales + t * 2, load_floats(tile_scales + t));
      scales += 32;
    }
  }

 private:
  // Rows that are rotated before their codes are made, so that one does not wait for the other.
  static constexpr int kGroup = 4;

  template <DType kRow>
  void encode_group(const std::byte* rows, int count, int token, float* scales) {
    float squares[kGroup];
    for (int i = 0; i < count; ++i) {
      squares[i] = rotation_.template rotate_row<kRow>(
          rows + i * shape_.dim * static_cast<int>(kBytesOf<kRow>), y_[i]);
    }
    for (int i = 0; i < count; ++i) {
      scales[i] = encode_row(y_[i], squares[i], writer_.codes(token + i));
    }
    for (int i = count < 0 ? 0 : count; i < kGroup; ++i) clear(writer_.codes(token + i));
  }

  void clear(std::uint8_t* codes) const {
    std::memset(codes, 0, static_cast<std::size_t>(shape_.dim + 3));
  }

  // Writes codes [dim] of a rotated row, and zeros up to a multiple of 4. Answers the scale.
  float encode_row(const float* row, float square, std::uint8_t* codes) const {
    const int dim = shape_.dim;
    if (!(square > 0.0f)) {
      clear(codes);
      return 0.0f;
    }
    const Floats to_z = spread(root(static_cast<float>(dim)) / root(square));
    LaneSums yc;
    LaneSums cc;
    for (int ch = 0; ch < dim; ch += 16) {
      for (int i = 0; i < kSums; ++i) {
        const int at = ch + i * kLanes;
        const Floats y = load_floats(row + at);
        const Bits z = bits_of(mul(y, to_z));
        const Bits level = kTables.level_of(floats_of(z & kMagnitude));
        // kHalf + level, or kHalf - 1 - level: all bits turned.
        const Bits rank = (level ^ kHalf) ^ (spread_highest(z) & (2 * kHalf - 1));
        store_bytes(codes + at, (rank - Codebook<kBits>::kFirst) & (2 * kHalf - 1));
        Floats c = floats_of(bits_of(look_up(kTables.levels, level)) | (z & ~kMagnitude));
        if (dim - at < kLanes) c = only(c, 0, dim - at, zeros());
        yc.sums[i] = add(yc.sums[i], mul(y, c));
        if constexpr (kSide == Side::value) cc.sums[i] = add(cc.sums[i], mul(c, c));
      }
    }
    const float scale = kSide == Side::key ? square / yc.total() : yc.total() / cc.total();
    if (!(scale > 0x1p-25f)) {  // 0 in f16
      clear(codes);
      return 0.0f;
    }
    for (int ch = dim; ch % 4 != 0; ++ch) codes[ch] = 0;
    return scale < 65504.0f ? scale : 65504.0f;
  }

  static constexpr LevelTables<kBits> kTables = {};
  static constexpr std::uint32_t kHalf = LevelTables<kBits>::kLevels;

  TileShape shape_;
  LaneRotation rotation_;
  PlaneWriter<kBits> writer_;
  alignas(64) float y_[kGroup][kMaxRotatedDim + 16];
};

template <int kBits, Side kSide>
inline void encode_tq_side(const TileShape& shape, DType row_type, const std::byte* rows, int count,
                           std::byte* data, std::byte* scales) {
  TqEncoder<kBits, kSide> encoder(shape);
  switch (row_type) {
    case DType::f32:
      return encoder.template encode<DType::f32>(rows, count, data, scales);
    case DType::f16:
      return encoder.template encode<DType::f16>(rows, count, data, scales);
    case DType::bf16:
      return encoder.template encode<DType::bf16>(rows, count, data, scales);
  }
}

template <int kBits>
inline void encode_tq(const TileShape& shape, DType row_type, const std::byte* rows, int count,
                      std::byte* data, std::byte* scales) {
  if (shape.side == Side::key) {
    encode_tq_side<kBits, Side::key>(shape, row_type, rows, count, data, scales);
  } else {
    encode_tq_side<kBits, Side::value>(shape, row_type, rows, count, data, scales);
  }
}

}  // namespace
}  // namespace quire
