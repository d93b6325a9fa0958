#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/numbers.h"
#include "base/seed.h"
#include "codec_cases.h"

namespace quire {
namespace {

const Codec& int8() { return *find_codec("int8"); }

// One row in a page of one slot, as a value: codes are 4 bytes apart, the scale comes first.
struct Row {
  float scale;
  std::vector<int> codes;
  std::vector<float> decoded;
};

Row encode_row(const std::vector<float>& row) {
  const TileShape shape{Side::value, 1, static_cast<int>(row.size()), 0};
  const test::Sealed sealed = test::encode(int8(), shape, row);
  Row out;
  out.scale = load_element(DType::f16, sealed.scales.data(), 0);
  for (std::size_t ch = 0; ch < row.size(); ++ch) {
    out.codes.push_back(static_cast<signed char>(sealed.data[4 * ch]));
  }
  out.decoded = test::decode(int8(), shape, sealed, 0, 1);
  return out;
}

TEST(Int8, LargestMagnitudeBecomes127) {
  const Row row = encode_row({0.5f, -254.0f, 127.0f});
  EXPECT_EQ(row.scale, 2.0f);
  EXPECT_EQ(row.codes, (std::vector<int>{0, -127, 64}));  // 0.25 down; 63.5 to even
  EXPECT_EQ(row.decoded, (std::vector<float>{0.0f, -254.0f, 128.0f}));
}

TEST(Int8, TiesGoToTheEvenCode) {
  const Row row = encode_row({127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, -126.5f});
  EXPECT_EQ(row.scale, 1.0f);
  EXPECT_EQ(row.codes, (std::vector<int>{127, 0, 2, 2, 0, -2, -2, 126, -126}));
}

TEST(Int8, ScaleIsRoundedBeforeCodesAreMade) {
  // 1 / 127 is not an f16; the nearest is a little smaller.
  const Row row = encode_row({1.0f, 62.499f / 127.0f});
  EXPECT_EQ(row.scale, 0x1.02p-7f);
  EXPECT_LT(row.scale, 1.0f / 127.0f);
  // Over the exact scale it would be 62.499, so 62; over the stored one it is 62.503.
  EXPECT_EQ(row.codes[1], 63);
}

TEST(Int8, ZeroRowsHaveScaleZeroAndDecodeToZeros) {
  const Row row = encode_row({0.0f, -0.0f, 0.0f});
  EXPECT_EQ(row.scale, 0.0f);
  EXPECT_EQ(row.codes, (std::vector<int>{0, 0, 0}));
  EXPECT_TRUE(test::same_bits(row.decoded, {0.0f, 0.0f, 0.0f}));
}

TEST(Int8, RowsBelowTheSmallestScaleBecomeZeros) {
  // max / 127 = 2^-25 is a tie between 0 and the smallest f16, and goes to 0.
  const Row row = encode_row({127.0f * 0x1p-25f, -1e-7f});
  EXPECT_EQ(row.scale, 0.0f);
  EXPECT_EQ(row.codes, (std::vector<int>{0, 0}));
  EXPECT_EQ(row.decoded, (std::vector<float>{0.0f, 0.0f}));
  EXPECT_EQ(encode_row({1e-45f}).scale, 0.0f);
}

TEST(Int8, SubnormalScalesClampAtTheLargestCode) {
  // max / 127 = 1.25 units of 2^-24 rounds to 1 unit: 158.75 units would be the code 159.
  const Row row = encode_row({127.0f * 1.25f * 0x1p-24f, -127.0f * 1.25f * 0x1p-24f, 0x1p-22f});
  EXPECT_EQ(row.scale, 0x1p-24f);
  EXPECT_EQ(row.codes, (std::vector<int>{127, -127, 4}));
  EXPECT_EQ(row.decoded[0], 127.0f * 0x1p-24f);
}

TEST(Int8, HugeValuesKeepAFiniteScale) {
  const float largest = int8().largest;
  const Row row = encode_row({largest, -largest, 1.0f});
  EXPECT_EQ(row.scale, 65504.0f);
  EXPECT_EQ(row.codes, (std::vector<int>{127, -127, 0}));
  EXPECT_EQ(row.decoded[0], 65504.0f * 127.0f);
}

TEST(Int8, ErrorIsAtMostHalfAScaleWhereTheScaleIsNormal) {
  std::mt19937_64 random(test::announce_seed());
  std::normal_distribution<float> gauss;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<float> row(16);
    const int exponent = std::uniform_int_distribution<int>(-6, 20)(random);
    for (float& x : row) x = std::ldexp(gauss(random), exponent);
    row[0] = std::ldexp(1.0f, exponent);
    const Row coded = encode_row(row);
    ASSERT_GE(coded.scale, 0x1p-14f);
    // Rounding the scale down by 2^-11 moves the largest value past 127 by 0.062 of a scale only.
    for (std::size_t ch = 0; ch < row.size(); ++ch) {
      ASSERT_LE(std::fabs(row[ch] - coded.decoded[ch]), 0.5f * coded.scale) << row[ch];
    }
  }
}

TEST(Int8, PartsHaveScalesOfTheirOwn) {
  // A latent of 5 channels and a rotary part of 2 that is a thousand times larger. The split need
  // not be a multiple of 4.
  for (const Side side : {Side::key, Side::value}) {
    const TileShape shape{side, 18, 7, 5};
    std::vector<float> rows;
    for (int slot = 0; slot < shape.slots; ++slot) {
      for (const float x : {1.27f, -0.5f, 0.25f, 0.0f, 1.0f, 1270.0f, -20.0f}) rows.push_back(x);
    }
    const test::Sealed sealed = test::encode(int8(), shape, rows);
    ASSERT_EQ(sealed.scales.size(), 2u * 32u * 2u);
    for (std::size_t slot = 0; slot < 18; ++slot) {
      EXPECT_NEAR(load_element(DType::f16, sealed.scales.data(), slot), 0.01f, 1e-5f);
      EXPECT_EQ(load_element(DType::f16, sealed.scales.data(), 32 + slot), 10.0f);
    }
    for (std::size_t slot = 18; slot < 32; ++slot) {
      EXPECT_EQ(load_element(DType::f16, sealed.scales.data(), slot), 0.0f);
      EXPECT_EQ(load_element(DType::f16, sealed.scales.data(), 32 + slot), 0.0f);
    }
    const auto back = test::decode(int8(), shape, sealed, 17, 1);
    EXPECT_NEAR(back[1], -0.5f, 0.005f);
    EXPECT_EQ(back[5], 1270.0f);
    EXPECT_EQ(back[6], -20.0f);
  }
}

TEST(Int8, ASplitAtEitherEndIsOnePart) {
  EXPECT_EQ((TileShape{Side::key, 16, 8, 0}).parts(), 1);
  EXPECT_EQ((TileShape{Side::key, 16, 8, 8}).parts(), 1);
  EXPECT_EQ((TileShape{Side::key, 16, 8, 4}).parts(), 2);
  EXPECT_EQ(int8().scale_bytes({Side::key, 16, 8, 8}), 32u);
}

}  // namespace
}  // namespace quire
