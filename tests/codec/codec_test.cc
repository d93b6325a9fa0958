// The rules every codec keeps, on every side, dim and page size.
#include "codec/codec.h"

#include <gtest/gtest.h>

#include <array>
#include <cfloat>
#include <cmath>
#include <limits>
#include <random>

#include "base/numbers.h"
#include "base/seed.h"
#include "codec_cases.h"

namespace quire {
namespace {

using test::Bytes;
using test::Sealed;

TEST(Codec, SizesAreThoseOfTheFormat) {
  test::for_each_case([](const Codec& codec, const TileShape& shape) {
    if (!test::is_defined(codec)) return;
    const auto [code_bytes, pack, oracle] = test::definition(codec);
    const std::size_t slots = (test::size_of(shape.slots) + 15) / 16 * 16;
    EXPECT_EQ(codec.data_bytes(shape), slots * test::padded_dim(shape, pack) * code_bytes);
    const std::size_t scales = std::string(codec.name) == "int8" ? (shape.split > 0 ? 2u : 1u) : 0u;
    EXPECT_EQ(codec.scale_bytes(shape), scales * slots * 2);
  });
}

// The worked example of docs/format.md.
TEST(Codec, ChannelTenOfSlotTwentyOneLiesWhereTheFormatSays) {
  const Codec& int8 = *find_codec("int8");
  for (const Side side : {Side::key, Side::value}) {
    const TileShape shape{side, 64, 64, 0};
    std::vector<float> rows(64 * 64, 0.0f);
    rows[21 * 64 + 10] = 127.0f;
    const Sealed sealed = test::encode(int8, shape, rows);
    ASSERT_EQ(sealed.data.size(), 4096u);
    ASSERT_EQ(sealed.scales.size(), 128u);
    EXPECT_EQ(sealed.data[side == Side::key ? 1174 : 1321], std::byte{127});
    EXPECT_EQ(load_element(DType::f16, &sealed.scales[42], 0), 1.0f);
  }
}

TEST(Codec, EncodeGivesEveryByteOfTheDefinition) {
  std::mt19937_64 random(test::announce_seed());
  test::for_each_case([&](const Codec& codec, const TileShape& shape) {
    if (!test::is_defined(codec)) return;
    const auto rows = test::random_rows(shape, random);
    const auto expected = test::reference(codec, shape, rows);
    const Sealed found = test::encode(codec, shape, rows);
    ASSERT_TRUE(found.data == expected.sealed.data);
    ASSERT_TRUE(found.scales == expected.sealed.scales);
  });
}

TEST(Codec, DecodeGivesTheValuesOfTheDefinition) {
  std::mt19937_64 random(test::announce_seed());
  test::for_each_case([&](const Codec& codec, const TileShape& shape) {
    if (!test::is_defined(codec)) return;
    const auto rows = test::random_rows(shape, random);
    const auto expected = test::reference(codec, shape, rows);
    const Sealed sealed = test::encode(codec, shape, rows);
    ASSERT_TRUE(
        test::same_bits(test::decode(codec, shape, sealed, 0, shape.slots), expected.decoded));
  });
}

TEST(Codec, DecodeOfARangeIsThatRangeOfTheWhole) {
  std::mt19937_64 random(test::announce_seed());
  test::for_each_case([&](const Codec& codec, const TileShape& shape) {
    const auto rows = test::random_rows(shape, random);
    const Sealed sealed = test::encode(codec, shape, rows);
    const auto whole = test::decode(codec, shape, sealed, 0, shape.slots);
    for (int i = 0; i < 4; ++i) {
      const int first = std::uniform_int_distribution<int>(0, shape.slots)(random);
      const int count = std::uniform_int_distribution<int>(0, shape.slots - first)(random);
      const auto part = test::decode(codec, shape, sealed, first, count);
      const auto begin = whole.begin() + first * shape.dim;
      ASSERT_TRUE(test::same_bits(part, {begin, begin + count * shape.dim}))
          << first << " + " << count;
    }
  });
}

TEST(Codec, SlotsThatWereNotFilledAreZeros) {
  std::mt19937_64 random(test::announce_seed());
  test::for_each_case([&](const Codec& codec, const TileShape& shape) {
    auto rows = test::random_rows(shape, random);
    const int count = shape.slots / 2;
    rows.resize(test::size_of(count * shape.dim));
    const Sealed sealed = test::encode(codec, shape, rows);
    if (test::is_defined(codec)) {
      ASSERT_TRUE(sealed == test::reference(codec, shape, rows).sealed);
    }
    for (const float x : test::decode(codec, shape, sealed, count, shape.padded_slots() - count)) {
      ASSERT_EQ(x, 0.0f);
    }
    // The codes of an empty slot are zeros too.
    if (codec.copy_slot == nullptr) return;
    Sealed empty{Bytes(sealed.data.size()), Bytes(sealed.scales.size())};
    Sealed copied = empty;
    for (int slot = count; slot < shape.padded_slots(); ++slot) {
      codec.copy_slot(shape, sealed.data.data(), sealed.scales.data(), slot, copied.data.data(),
                      copied.scales.data(), slot);
    }
    ASSERT_TRUE(copied == empty);
  });
}

TEST(Codec, EncodingSlotBySlotInAnyOrderIsEncodingThePage) {
  std::mt19937_64 random(test::announce_seed());
  test::for_each_case([&](const Codec& codec, const TileShape& shape) {
    if (codec.encode_slot == nullptr) return;
    const auto rows = test::random_rows(shape, random);
    const Sealed whole = test::encode(codec, shape, rows);
    Sealed slots{Bytes(whole.data.size()), Bytes(whole.scales.size())};
    std::vector<int> order(test::size_of(shape.slots));
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    std::shuffle(order.begin(), order.end(), random);
    for (const int slot : order) {
      codec.encode_slot(shape, &rows[test::size_of(slot * shape.dim)], slot, slots.data.data(),
                        slots.scales.data());
    }
    ASSERT_TRUE(slots == whole);
  });
}

TEST(Codec, EncodingASlotReplacesItAndLeavesTheOthers) {
  std::mt19937_64 random(test::announce_seed());
  test::for_each_case([&](const Codec& codec, const TileShape& shape) {
    if (codec.encode_slot == nullptr) return;
    auto rows = test::random_rows(shape, random);
    const auto other = test::random_rows(shape, random);
    Sealed sealed = test::encode(codec, shape, rows);
    const int slot = std::uniform_int_distribution<int>(0, shape.slots - 1)(random);
    const auto begin = slot * shape.dim;
    codec.encode_slot(shape, &other[test::size_of(begin)], slot, sealed.data.data(),
                      sealed.scales.data());
    std::copy_n(other.begin() + begin, shape.dim, rows.begin() + begin);
    ASSERT_TRUE(sealed == test::encode(codec, shape, rows)) << "slot " << slot;
  });
}

TEST(Codec, CopySlotMovesOneSlotBitForBit) {
  std::mt19937_64 random(test::announce_seed());
  test::for_each_case([&](const Codec& codec, const TileShape& shape) {
    if (codec.copy_slot == nullptr) return;
    const auto from_rows = test::random_rows(shape, random);
    auto to_rows = test::random_rows(shape, random);
    const Sealed from = test::encode(codec, shape, from_rows);
    Sealed to = test::encode(codec, shape, to_rows);
    std::uniform_int_distribution<int> any_slot(0, shape.slots - 1);
    for (int i = 0; i < 4; ++i) {
      const int slot = any_slot(random);
      const int to_slot = any_slot(random);
      codec.copy_slot(shape, from.data.data(), from.scales.data(), slot, to.data.data(),
                      to.scales.data(), to_slot);
      std::copy_n(from_rows.begin() + slot * shape.dim, shape.dim,
                  to_rows.begin() + to_slot * shape.dim);
      ASSERT_TRUE(to == test::encode(codec, shape, to_rows)) << slot << " to " << to_slot;
    }
  });
}

TEST(Codec, BytesMayLieAtAnyAddress) {
  std::mt19937_64 random(test::announce_seed());
  for (const Codec* codec : all_codecs()) {
    for (const Side side : {Side::key, Side::value}) {
      // The smallest odd size where the codec takes one.
      TileShape shape{side, 20, 7, 0};
      for (const int dim : {6, 32}) {
        if (codec->takes != nullptr && !codec->takes(shape)) shape.dim = dim;
      }
      if (!test::stores(*codec, shape)) continue;
      const auto rows = test::random_rows(shape, random);
      const Sealed expected = test::encode(*codec, shape, rows);
      Bytes data(expected.data.size() + 2, std::byte{0x5a});
      Bytes scales(expected.scales.size() + 2, std::byte{0x5a});
      codec->encode(shape, rows.data(), shape.slots, data.data() + 1, scales.data() + 1);
      EXPECT_TRUE(std::equal(expected.data.begin(), expected.data.end(), data.begin() + 1));
      EXPECT_TRUE(std::equal(expected.scales.begin(), expected.scales.end(), scales.begin() + 1));
      for (const Bytes* bytes : {&data, &scales}) {
        EXPECT_EQ(bytes->front(), std::byte{0x5a}) << codec->name;
        EXPECT_EQ(bytes->back(), std::byte{0x5a}) << codec->name;
      }
      std::vector<float> found(rows.size());
      codec->decode(shape, data.data() + 1, scales.data() + 1, 0, shape.slots, found.data());
      EXPECT_TRUE(test::same_bits(found, test::decode(*codec, shape, expected, 0, shape.slots)));
    }
  }
}

// As sealed pages travel: nothing but their bytes is kept, and they come to lie elsewhere.
TEST(Codec, CopiedBytesDecodeToTheSameBits) {
  std::mt19937_64 random(test::announce_seed());
  test::for_each_case([&](const Codec& codec, const TileShape& shape) {
    Sealed sealed = test::encode(codec, shape, test::random_rows(shape, random));
    const auto expected = test::decode(codec, shape, sealed, 0, shape.slots);
    Bytes carried = sealed.data;
    carried.insert(carried.end(), sealed.scales.begin(), sealed.scales.end());
    for (Bytes* bytes : {&sealed.data, &sealed.scales}) {
      std::fill(bytes->begin(), bytes->end(), std::byte{0x5a});
    }
    const auto scales = carried.begin() + static_cast<std::ptrdiff_t>(sealed.data.size());
    const Sealed arrived{{carried.begin(), scales}, {scales, carried.end()}};
    ASSERT_TRUE(test::same_bits(test::decode(codec, shape, arrived, 0, shape.slots), expected));
  });
}

TEST(Codec, LosslessCodecsGiveRowsBackBitForBit) {
  std::mt19937_64 random(test::announce_seed());
  int lossless = 0;
  for (const Codec* codec : all_codecs()) {
    if (!codec->lossless) continue;
    ++lossless;
    const DType dtype = *codec->lossless;
    EXPECT_STREQ(codec->name, name_of(dtype));
    for (const Side side : {Side::key, Side::value}) {
      // Random bits of the row type: every exponent, subnormals and zeros of both signs.
      const TileShape shape{side, 256, 80, 0};
      std::vector<float> rows;
      while (rows.size() < 256 * 80) {
        const std::uint64_t bits = random();
        const float x = load_element(dtype, &bits, 0);
        if (std::isfinite(x)) rows.push_back(x);
      }
      rows[0] = -0.0f;
      rows[1] = 0.0f;
      for (const float x : rows) ASSERT_LE(std::fabs(x), codec->largest) << x;
      const Sealed sealed = test::encode(*codec, shape, rows);
      EXPECT_TRUE(test::same_bits(test::decode(*codec, shape, sealed, 0, shape.slots), rows))
          << codec->name;
    }
  }
  EXPECT_EQ(lossless, 3);
}

TEST(Codec, ASplitChangesOnlyCodecsWithScales) {
  std::mt19937_64 random(test::announce_seed());
  for (const Codec* codec : all_codecs()) {
    if (!codec->encodes_latents) continue;
    const TileShape whole{Side::key, 16, 24, 0};
    const TileShape split{Side::key, 16, 24, 16};
    const auto rows = test::random_rows(whole, random);
    const bool same = test::encode(*codec, whole, rows) == test::encode(*codec, split, rows);
    EXPECT_EQ(same, codec->scale_bytes(whole) == 0) << codec->name;
  }
}

TEST(Codec, LargestIsTheLastBeforeAValueWouldBecomeInfinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  struct Border {
    const char* codec;
    float first_refused;  // infinity: every finite value fits
  };
  const std::array<Border, 6> borders = {{
      {"f32", infinity},
      {"f16", 65520.0f},
      {"bf16", std::bit_cast<float>(0x7f7f8000u)},
      {"fp8_e4m3", infinity},
      {"fp8_e5m2", infinity},
      {"int8", 65520.0f * 127.0f},
  }};
  for (const auto& [name, first_refused] : borders) {
    const Codec* codec = find_codec(name);
    ASSERT_NE(codec, nullptr) << name;
    EXPECT_EQ(codec->largest, std::nextafterf(first_refused, 0.0f)) << name;
    const TileShape shape{Side::key, 1, 1, 0};
    const auto back = [&](float x) {
      return test::decode(*codec, shape, test::encode(*codec, shape, {x}), 0, 1)[0];
    };
    for (const float x : {0.0f, 1e-45f, 1.0f, codec->largest}) {
      EXPECT_TRUE(std::isfinite(back(x))) << name << " " << x;
      EXPECT_TRUE(std::isfinite(back(-x))) << name << " " << -x;
    }
    if (first_refused == infinity) continue;
    // Infinite, or not a number: infinity times the code 0.
    EXPECT_FALSE(std::isfinite(back(first_refused))) << name;
    EXPECT_FALSE(std::isfinite(back(-first_refused))) << name;
  }
}

// sum (x - x')^2 / sum x^2 over rows of independent normal values.
double relative_error_of(const Codec& codec, int dim, std::mt19937_64& random) {
  std::normal_distribution<float> gauss;
  double error = 0;
  double energy = 0;
  for (int page = 0; page < 20; ++page) {
    const TileShape shape{Side::key, 256, dim, 0};
    std::vector<float> rows(test::size_of(shape.slots * dim));
    for (float& x : rows) x = gauss(random);
    const auto back = test::decode(codec, shape, test::encode(codec, shape, rows), 0, shape.slots);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      error += std::pow(double{rows[i]} - double{back[i]}, 2);
      energy += std::pow(double{rows[i]}, 2);
    }
  }
  return error / energy;
}

TEST(Codec, ErrorOnNormalRowsIsAsExpected) {
  std::mt19937_64 random(test::announce_seed());
  struct Expected {
    const char* codec;
    int dim;
    double error;
  };
  for (const auto& [name, dim, error] :
       {Expected{"int8", 64, 3.5e-5}, Expected{"int8", 128, 4.2e-5},
        Expected{"fp8_e4m3", 64, 7.0e-4}, Expected{"fp8_e4m3", 128, 7.0e-4}}) {
    EXPECT_NEAR(relative_error_of(*find_codec(name), dim, random), error, 0.05 * error)
        << name << " " << dim;
  }
}

}  // namespace
}  // namespace quire
