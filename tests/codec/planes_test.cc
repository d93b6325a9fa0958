// Planes against a model that writes them bit by bit, in the words of docs/format.md.
#include "codec/planes.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/seed.h"
#include "codec_cases.h"

namespace quire {
namespace {

using test::Bytes;
using test::size_of;

// Appends one plane of `width` bits: bits [first, first + width) of each code.
void append_plane(Bytes& out, const std::vector<unsigned>& codes, unsigned first, unsigned width) {
  std::size_t begin = 0;
  while (begin < codes.size()) {
    const std::size_t count = std::min(codes.size() - begin, std::size_t{64 * 8} / width);
    const std::size_t bytes = count * width / 8;
    for (std::size_t j = 0; j < bytes; ++j) {
      unsigned byte = 0;
      for (unsigned i = 0; i < 8 / width; ++i) {
        const unsigned code = codes[begin + j + bytes * i];
        byte |= (code >> first & ((1u << width) - 1)) << (i * width);
      }
      out.push_back(static_cast<std::byte>(byte));
    }
    begin += count;
  }
}

// codes[slot][channel] of all padded slots; padding channels are 0.
Bytes model(const TileShape& shape, unsigned bits,
            const std::vector<std::vector<unsigned>>& codes) {
  const std::size_t channels = test::padded_dim(shape, 4);
  const std::size_t tokens = shape.side == Side::key ? 16 : 4;
  std::vector<unsigned> in_order(codes.size() * channels);
  for (std::size_t t = 0; t < codes.size(); ++t) {
    for (std::size_t ch = 0; ch < codes[t].size(); ++ch) {
      in_order[test::code_index(shape, 4, t, ch)] = codes[t][ch];
    }
  }
  const unsigned low = bits == 2 || bits == 3 ? 2 : 4;
  Bytes out;
  for (std::size_t at = 0; at < in_order.size(); at += tokens * channels) {
    const auto begin = in_order.begin() + static_cast<std::ptrdiff_t>(at);
    const std::vector<unsigned> tile(begin, begin + static_cast<std::ptrdiff_t>(tokens * channels));
    append_plane(out, tile, 0, low);
    if (bits > low) append_plane(out, tile, low, bits - low);
  }
  return out;
}

TEST(Planes, AreThoseOfTheModelAndGiveCodesBack) {
  std::mt19937_64 random(test::announce_seed());
  for (const Side side : {Side::key, Side::value}) {
    for (const int bits : {2, 3, 4, 5, 6}) {
      for (const int dim : {2, 6, 20, 64, 80, 96, 112, 128, 130, 192, 256, 576}) {
        for (const int slots : {1, 16, 40}) {
          const TileShape shape{side, slots, dim, 0};
          SCOPED_TRACE(std::to_string(bits) + " bits, dim " + std::to_string(dim));
          const PlaneTiles tiles(shape, bits);
          std::vector<std::vector<unsigned>> codes(size_of(shape.padded_slots()),
                                                   std::vector<unsigned>(size_of(dim)));
          Bytes data(tiles.bytes());
          // In any order, over other codes: setting one leaves the rest.
          std::vector<int> order;
          for (int t = 0; t < shape.padded_slots(); ++t) order.insert(order.end(), {t, t});
          std::shuffle(order.begin(), order.end(), random);
          for (const int t : order) {
            for (std::size_t ch = 0; ch < size_of(dim); ++ch) {
              const unsigned code = static_cast<unsigned>(random() % (1u << bits));
              codes[size_of(t)][ch] = code;
              tiles.slot(t).set(data.data(), ch, code);
            }
          }
          ASSERT_TRUE(data == model(shape, static_cast<unsigned>(bits), codes));
          for (int t = 0; t < shape.padded_slots(); ++t) {
            for (std::size_t ch = 0; ch < size_of(dim); ++ch) {
              ASSERT_EQ(tiles.slot(t).get(data.data(), ch), codes[size_of(t)][ch]);
            }
          }
        }
      }
    }
  }
}

TEST(Planes, TakeTheirBitsAndNotAByteMore) {
  for (const int bits : {2, 3, 4, 5, 6}) {
    EXPECT_EQ(PlaneTiles({Side::key, 64, 64, 0}, bits).bytes(), size_of(64 * 64 * bits / 8));
    EXPECT_EQ(PlaneTiles({Side::value, 64, 80, 0}, bits).bytes(), size_of(64 * 80 * bits / 8));
    // Channels of keys are padded to 4, slots to 16.
    EXPECT_EQ(PlaneTiles({Side::key, 17, 6, 0}, bits).bytes(), size_of(32 * 8 * bits / 8));
    EXPECT_EQ(PlaneTiles({Side::value, 17, 6, 0}, bits).bytes(), size_of(32 * 6 * bits / 8));
  }
}

// The worked example of docs/format.md.
TEST(Planes, ChannelTenOfSlotTwentyOneLiesWhereTheFormatSays) {
  const PlaneTiles keys({Side::key, 64, 64, 0}, 5);
  Bytes data(keys.bytes());
  keys.slot(21).set(data.data(), 10, 0b11010);
  EXPECT_EQ(data[640 + 64 + 22], std::byte{0x0a});
  EXPECT_EQ(data[640 + 512 + 22], std::byte{0x04});
  const PlaneTiles values({Side::value, 64, 64, 0}, 5);
  data.assign(values.bytes(), std::byte{0});
  values.slot(21).set(data.data(), 10, 0b11010);
  EXPECT_EQ(data[5 * 160 + 41], std::byte{0x0a});
  EXPECT_EQ(data[5 * 160 + 128 + 9], std::byte{0x02});
}

TEST(Planes, CopyOfASlotMovesAllItsCodes) {
  std::mt19937_64 random(test::announce_seed());
  for (const Side side : {Side::key, Side::value}) {
    const TileShape shape{side, 32, 6, 0};
    const PlaneTiles tiles(shape, 3);
    Bytes from(tiles.bytes());
    Bytes to(tiles.bytes());
    for (std::byte& byte : from) byte = static_cast<std::byte>(random());
    for (std::byte& byte : to) byte = static_cast<std::byte>(random());
    const Bytes before = to;
    tiles.copy_slot(from.data(), 5, to.data(), 30);
    for (int t = 0; t < 32; ++t) {
      for (std::size_t ch = 0; ch < tiles.channels(); ++ch) {
        ASSERT_EQ(tiles.slot(t).get(to.data(), ch), t == 30 ? tiles.slot(5).get(from.data(), ch)
                                                            : tiles.slot(t).get(before.data(), ch));
      }
    }
  }
}

}  // namespace
}  // namespace quire
