// The order of codes in a tile: which element of `data` holds channel `ch` of slot `t`.
//
// The vector unit multiplies small groups of neighbours at once: `pack` of them, 4 at 8 bits, 2 for
// bf16, 1 for f16 and f32. For keys, where lanes are tokens, the neighbours are channels of one
// token; for values, where lanes are channels, they are tokens of one channel:
//
//   keys    tile of 16 tokens after tile; in a tile [ch / pack][t % 16][ch % pack],
//           with the channels padded to a multiple of pack
//   values  pack of tokens after pack; in it [ch][t % pack]
//
// Both are one formula with two numbers per slot: at(ch) = first + (ch / run) step + ch % run,
// where run is pack for keys and 1 for values.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>

#include "codec/codec.h"

namespace quire {

inline constexpr std::size_t kTileTokens = 16;

// Channels a slot holds, padding included.
inline std::size_t stored_channels(const TileShape& shape, int pack) noexcept {
  const auto dim = static_cast<std::size_t>(shape.dim);
  const auto group = static_cast<std::size_t>(pack);
  return shape.side == Side::key ? (dim + group - 1) / group * group : dim;
}

// Codes of one side of one head of one page, padding included.
inline std::size_t stored_codes(const TileShape& shape, int pack) noexcept {
  return static_cast<std::size_t>(shape.padded_slots()) * stored_channels(shape, pack);
}

// Where the channels of one slot lie, in codes.
struct SlotPlace {
  std::size_t first = 0;
  std::size_t step = 0;
  std::size_t run_mask = 0;  // run - 1; a run is a power of two, so that at() needs no division
  int run_shift = 0;

  std::size_t at(std::size_t channel) const noexcept {
    return first + (channel >> run_shift) * step + (channel & run_mask);
  }
};

// Requires: 0 <= slot < shape.padded_slots(); pack is a power of two up to 16.
inline SlotPlace slot_place(const TileShape& shape, int pack, int slot) noexcept {
  const auto t = static_cast<std::size_t>(slot);
  const auto group = static_cast<std::size_t>(pack);
  const std::size_t channels = stored_channels(shape, pack);
  if (shape.side == Side::key) {
    const std::size_t tile = t / kTileTokens * kTileTokens * channels;
    return {tile + t % kTileTokens * group, kTileTokens * group, group - 1,
            std::countr_zero(group)};
  }
  return {t / group * group * channels + t % group, group, 0, 0};
}

// Codes lie in bytes of any alignment.
template <typename Code>
Code load_code(const std::byte* data, std::size_t index) noexcept {
  Code code;
  std::memcpy(&code, data + index * sizeof(Code), sizeof(Code));
  return code;
}

template <typename Code>
void store_code(std::byte* data, std::size_t index, Code code) noexcept {
  std::memcpy(data + index * sizeof(Code), &code, sizeof(Code));
}

// Makes the padding channels of a slot zero, so that writing a slot defines all its bytes.
template <typename Code>
void clear_padding(const TileShape& shape, int pack, const SlotPlace& place,
                   std::byte* data) noexcept {
  const std::size_t channels = stored_channels(shape, pack);
  for (auto ch = static_cast<std::size_t>(shape.dim); ch < channels; ++ch) {
    store_code(data, place.at(ch), Code{});
  }
}

// Moves the codes of one slot, padding channels too, to a slot of another page of the same shape.
template <typename Code>
void copy_slot_codes(const TileShape& shape, int pack, const std::byte* data, int slot,
                     std::byte* to_data, int to_slot) noexcept {
  const SlotPlace from = slot_place(shape, pack, slot);
  const SlotPlace to = slot_place(shape, pack, to_slot);
  const std::size_t channels = stored_channels(shape, pack);
  for (std::size_t ch = 0; ch < channels; ++ch) {
    store_code(to_data, to.at(ch), load_code<Code>(data, from.at(ch)));
  }
}

}  // namespace quire
