// Codes of fewer than 8 bits, as planes of 4, 2 and 1 bits.
//
// The codes of a token tile (keys: 16 tokens, values: 4) are taken in the order in which codes of 8
// bits would lie (tile.h, pack 4): N of them, a multiple of 8. 3, 5 and 6 bits are cut into 2 + 1,
// 4 + 1 and 4 + 2: the lower bits of all N codes come first, then the upper bits of all of them.
//
// A plane of b bits takes the codes in units of 64 bytes, so that a vector of codes is a shift and
// a mask away: byte j of a unit holds the codes j, j + 64, j + 128 ... of the unit, the first in
// its lowest b bits. The last unit may have fewer codes, R: it takes L = R b / 8 bytes, and byte j
// holds the codes j, j + L, j + 2 L ... L is whole, since N is a multiple of 8 and 8 / b codes fill
// a byte.
//
//     N = 320 codes of 4 bits:   |  unit of 128 codes  |  128 codes  |  64 codes: L = 32  |
//                                 byte 0: codes 0, 64                  byte 0: codes 256, 288
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/tile.h"

namespace quire {

constexpr int low_plane_bits(int bits) noexcept { return bits >= 4 ? 4 : 2; }
constexpr int high_plane_bits(int bits) noexcept { return bits - low_plane_bits(bits); }

// One plane of `codes` codes of `bits` bits, 1, 2 or 4.
struct Plane {
  static constexpr std::size_t kUnitBytes = 64;

  int bits;
  std::size_t codes;

  std::size_t bytes() const noexcept { return codes * static_cast<std::size_t>(bits) / 8; }

  unsigned get(const std::byte* plane, std::size_t code) const noexcept {
    const Place place = place_of(code);
    return std::to_integer<unsigned>(plane[place.byte]) >> place.shift & mask();
  }
  void set(std::byte* plane, std::size_t code, unsigned value) const noexcept {
    const Place place = place_of(code);
    const unsigned others = std::to_integer<unsigned>(plane[place.byte]) & ~(mask() << place.shift);
    plane[place.byte] = static_cast<std::byte>(others | (value & mask()) << place.shift);
  }

 private:
  struct Place {
    std::size_t byte;
    std::size_t shift;
  };

  unsigned mask() const noexcept { return (1u << bits) - 1u; }

  Place place_of(std::size_t code) const noexcept {
    const auto width = static_cast<std::size_t>(bits);
    const std::size_t unit_codes = kUnitBytes * 8 / width;
    const std::size_t unit = code / unit_codes;
    const std::size_t left = codes - unit * unit_codes;
    const std::size_t stride = left < unit_codes ? left * width / 8 : kUnitBytes;
    const std::size_t rest = code % unit_codes;
    return {unit * kUnitBytes + rest % stride, rest / stride * width};
  }
};

// The codes of one side of one head of one page, `bits` each, 2 to 6.
// Requires: shape.dim is even.
class PlaneTiles {
 public:
  PlaneTiles(const TileShape& shape, int bits) noexcept
      : shape_(shape),
        bits_(bits),
        tile_codes_((shape.side == Side::key ? kTileTokens : kPack) *
                    stored_channels(shape, kPack)) {}

  // Bytes of a token tile, and of all of them.
  std::size_t tile_bytes() const noexcept {
    return tile_codes_ * static_cast<std::size_t>(bits_) / 8;
  }
  std::size_t bytes() const noexcept {
    return stored_codes(shape_, kPack) / tile_codes_ * tile_bytes();
  }

  // The channels of one slot, padding channels of keys included, 0 <= ch < channels().
  class Slot {
   public:
    unsigned get(const std::byte* data, std::size_t ch) const noexcept {
      const std::size_t code = place_.at(ch) - first_code_;
      const std::byte* tile = data + first_byte_;
      const unsigned upper = high_.bits == 0 ? 0 : high_.get(tile + low_.bytes(), code);
      return low_.get(tile, code) | upper << low_.bits;
    }
    void set(std::byte* data, std::size_t ch, unsigned value) const noexcept {
      const std::size_t code = place_.at(ch) - first_code_;
      std::byte* tile = data + first_byte_;
      low_.set(tile, code, value);
      if (high_.bits > 0) high_.set(tile + low_.bytes(), code, value >> low_.bits);
    }

   private:
    friend class PlaneTiles;
    Slot(const SlotPlace& place, std::size_t first_code, std::size_t first_byte, Plane low,
         Plane high) noexcept
        : place_(place), first_code_(first_code), first_byte_(first_byte), low_(low), high_(high) {}

    SlotPlace place_;         // as codes of 8 bits would lie
    std::size_t first_code_;  // of the token tile
    std::size_t first_byte_;
    Plane low_;
    Plane high_;
  };

  Slot slot(int index) const noexcept {
    const SlotPlace place = slot_place(shape_, kPack, index);
    const std::size_t tile = place.first / tile_codes_;
    return Slot(place, tile * tile_codes_, tile * tile_bytes(),
                {low_plane_bits(bits_), tile_codes_}, {high_plane_bits(bits_), tile_codes_});
  }

  std::size_t channels() const noexcept { return stored_channels(shape_, kPack); }

  // Moves the codes of one slot, padding channels too, to a slot of another page of the same shape.
  void copy_slot(const std::byte* data, int from, std::byte* to_data, int to) const noexcept {
    const Slot source = slot(from);
    const Slot target = slot(to);
    for (std::size_t ch = 0; ch < channels(); ++ch) target.set(to_data, ch, source.get(data, ch));
  }

 private:
  static constexpr std::size_t kPack = 4;

  TileShape shape_;
  int bits_;
  std::size_t tile_codes_;
};

}  // namespace quire
