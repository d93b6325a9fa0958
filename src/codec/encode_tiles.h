// Rows into tiles, by lanes. Included behind encode_avx2.h or encode_avx512.h; everything here has
// internal linkage, as there.
//
// A group of codes that lies together (tile.h: `pack` of them) is four bytes for every codec but
// f16, so one lane holds one group. Keys of kLanes tokens are kLanes vectors of groups, transposed;
// values need no transposing, since their lanes are channels in memory too. What differs between
// codecs is how lanes of f32 become lanes of codes:
//
//     struct Code {
//       static constexpr int kPack = 4;
//       static constexpr bool kSigned = false;  // of codes of one byte
//       // Whether rows of that type hold the codes already.
//       template <DType kRow> static constexpr bool kSame = false;
//       // Looks at the rows of a tile before they are encoded.
//       template <DType kRow> void begin(const TileRows& rows, int tile);
//       // Codes of channels [ch, ch + kLanes) of token t of the tile, in the low bits of lanes.
//       template <DType kRow> Bits codes(Floats x, int t, int ch) const;
//     };
#pragma once

#include "base/elements.h"
#include "codec/codec.h"

namespace quire {
namespace {

constexpr int kTile = 16;

// Where the rows of a tile lie, [tokens][dim].
struct TileRows {
  const std::byte* data;
  int tokens;  // 1 to kTile; those behind them are zeros
  int dim;

  template <DType kRow>
  const std::byte* at(int t, int ch) const {
    return data + (static_cast<std::ptrdiff_t>(t) * dim + ch) *
                      static_cast<std::ptrdiff_t>(kBytesOf<kRow>);
  }
};

// Codes of up to kLanes channels of one token; zeros beyond the rows.
template <bool kWhole, DType kRow, typename Code>
inline Bits codes_at(const Code& code, const TileRows& rows, int t, int ch) {
  if constexpr (kWhole) return code.template codes<kRow>(load<kRow>(rows.at<kRow>(t, ch)), t, ch);
  const int left = rows.dim - ch;
  if (t >= rows.tokens || left <= 0) return Bits{};
  return code.template codes<kRow>(load<kRow>(rows.at<kRow>(t, ch), left < kLanes ? left : kLanes),
                                   t, ch);
}

// kLanes groups of channels of one token, from channel ch on.
template <bool kWhole, DType kRow, typename Code>
inline Bits key_groups(const Code& code, const TileRows& rows, int t, int ch) {
  if constexpr (kWhole && Code::template kSame<kRow>) return load_bits(rows.at<kRow>(t, ch));
  const Bits a = codes_at<kWhole, kRow>(code, rows, t, ch);
  if constexpr (Code::kPack == 1) return a;
  const Bits b = codes_at<kWhole, kRow>(code, rows, t, ch + kLanes);
  if constexpr (Code::kPack == 2) {
    return join_channels(a, b);
  } else {
    const Bits c = codes_at<kWhole, kRow>(code, rows, t, ch + 2 * kLanes);
    const Bits d = codes_at<kWhole, kRow>(code, rows, t, ch + 3 * kLanes);
    return join_channels<Code::kSigned>(a, b, c, d);
  }
}

// Groups [column, column + kLanes) of tokens [first, first + kLanes) of a tile.
template <bool kWhole, DType kRow, typename Code>
inline void encode_key_block(const Code& code, const TileRows& rows, int columns, int column,
                             int first, std::byte* tile) {
  Bits v[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    v[i] = key_groups<kWhole, kRow>(code, rows, first + i, column * Code::kPack);
  }
  transpose(v);
  const int end = kWhole || columns - column > kLanes ? kLanes : columns - column;
  std::byte* to = tile + static_cast<std::ptrdiff_t>(column) * kTile * 4 + first * 4;
  for (int j = 0; j < end; ++j) store_bits(to + j * kTile * 4, v[j]);
}

template <DType kRow, typename Code>
inline void encode_key_tile(const Code& code, const TileRows& rows, std::byte* tile) {
  const int columns = (rows.dim + Code::kPack - 1) / Code::kPack;
  for (int column = 0; column < columns; column += kLanes) {
    const bool whole = (column + kLanes) * Code::kPack <= rows.dim;
    for (int first = 0; first < kTile; first += kLanes) {
      if (whole && first + kLanes <= rows.tokens) {
        encode_key_block<true, kRow>(code, rows, columns, column, first, tile);
      } else {
        encode_key_block<false, kRow>(code, rows, columns, column, first, tile);
      }
    }
  }
}

// Groups of tokens of up to kLanes channels, from token t and channel ch on.
template <bool kWhole, DType kRow, typename Code>
inline Bits value_groups(const Code& code, const TileRows& rows, int t, int ch) {
  const Bits a = codes_at<kWhole, kRow>(code, rows, t, ch);
  if constexpr (Code::kPack == 1) return a;
  const Bits b = codes_at<kWhole, kRow>(code, rows, t + 1, ch);
  if constexpr (Code::kPack == 2) {
    return a | (b << 16);
  } else {
    const Bits c = codes_at<kWhole, kRow>(code, rows, t + 2, ch);
    const Bits d = codes_at<kWhole, kRow>(code, rows, t + 3, ch);
    return join_tokens<Code::kSigned>(a, b, c, d);
  }
}

template <DType kRow, typename Code>
inline void encode_value_tile(const Code& code, const TileRows& rows, std::byte* tile) {
  for (int t = 0; t < kTile; t += Code::kPack) {
    std::byte* to = tile + static_cast<std::ptrdiff_t>(t / Code::kPack) * rows.dim * 4;
    int ch = 0;
    if (t + Code::kPack <= rows.tokens) {
      for (; ch + kLanes <= rows.dim; ch += kLanes) {
        store_bits(to + ch * 4, value_groups<true, kRow>(code, rows, t, ch));
      }
    }
    for (; ch < rows.dim; ch += kLanes) {
      const int left = rows.dim - ch < kLanes ? rows.dim - ch : kLanes;
      store_bits(to + ch * 4, value_groups<false, kRow>(code, rows, t, ch), left);
    }
  }
}

template <DType kRow, typename Code>
void encode_tiles(const TileShape& shape, const std::byte* rows, int count, std::byte* data,
                  Code code) {
  const bool keys = shape.side == Side::key;
  const int stored = keys ? (shape.dim + Code::kPack - 1) / Code::kPack * Code::kPack : shape.dim;
  const std::ptrdiff_t tile_bytes = std::ptrdiff_t{kTile} * stored * (4 / Code::kPack);
  const int tiles = (shape.slots + kTile - 1) / kTile;
  int tile = 0;
  for (; tile * kTile < count; ++tile) {
    const int tokens = count - tile * kTile < kTile ? count - tile * kTile : kTile;
    const TileRows at{rows, tokens, shape.dim};
    code.template begin<kRow>(at, tile);
    if (keys) {
      encode_key_tile<kRow>(code, at, data);
    } else {
      encode_value_tile<kRow>(code, at, data);
    }
    rows += std::ptrdiff_t{kTile} * shape.dim * static_cast<std::ptrdiff_t>(kBytesOf<kRow>);
    data += tile_bytes;
  }
  std::memset(data, 0, static_cast<std::size_t>((tiles - tile) * tile_bytes));
}

template <typename Code>
void encode_tiles(const TileShape& shape, DType row_type, const std::byte* rows, int count,
                  std::byte* data, const Code& code) {
  switch (row_type) {
    case DType::f32:
      return encode_tiles<DType::f32>(shape, rows, count, data, code);
    case DType::f16:
      return encode_tiles<DType::f16>(shape, rows, count, data, code);
    case DType::bf16:
      return encode_tiles<DType::bf16>(shape, rows, count, data, code);
  }
}

}  // namespace
}  // namespace quire
