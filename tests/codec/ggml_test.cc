#include "codec/ggml/ggml.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/numbers.h"
#include "codec_cases.h"

namespace quire {
namespace {

using test::Sealed;

const TileShape kOne{Side::key, 1, 32, 0};

std::vector<float> row_with(std::initializer_list<float> first) {
  std::vector<float> row(32, 0.0f);
  std::copy(first.begin(), first.end(), row.begin());
  return row;
}

TEST(Ggml, BlocksFollowEachOtherAndTokensToo) {
  for (const Side side : {Side::key, Side::value}) {
    const TileShape shape{side, 20, 96, 0};
    EXPECT_EQ(kQ80Codec.data_bytes(shape), 32u * 3 * 34);
    EXPECT_EQ(kQ40Codec.data_bytes(shape), 32u * 3 * 18);
    EXPECT_EQ(kQ80Codec.scale_bytes(shape), 0u);
    EXPECT_EQ(kQ40Codec.scale_bytes(shape), 0u);
    std::vector<float> rows(20 * 96, 0.0f);
    rows[7 * 96 + 64 + 5] = -127.0f;
    const Sealed q8 = test::encode(kQ80Codec, shape, rows);
    EXPECT_EQ(load_element(DType::f16, &q8.data[(7 * 3 + 2) * 34], 0), 1.0f);
    EXPECT_EQ(static_cast<signed char>(q8.data[(7 * 3 + 2) * 34 + 2 + 5]), -127);
    const Sealed q4 = test::encode(kQ40Codec, shape, rows);
    EXPECT_EQ(load_element(DType::f16, &q4.data[(7 * 3 + 2) * 18], 0), 127.0f / 8);
    EXPECT_EQ(q4.data[(7 * 3 + 2) * 18 + 2 + 5], std::byte{0x80});
  }
}

TEST(Ggml, Q80RoundsHalvesAwayFromZero) {
  const Sealed sealed =
      test::encode(kQ80Codec, kOne, row_with({127.0f, 0.5f, -0.5f, 2.5f, -2.5f, 0.49f}));
  std::vector<int> codes;
  for (int i = 0; i < 6; ++i)
    codes.push_back(static_cast<signed char>(sealed.data[2 + test::size_of(i)]));
  EXPECT_EQ(codes, (std::vector<int>{127, 1, -1, 3, -3, 0}));
}

// The largest magnitude becomes code 0, and of both signs only the first one is exact.
TEST(Ggml, Q40PutsTheLargestMagnitudeAtMinusEight) {
  const std::vector<float> row = row_with({-8.0f, 8.0f, 7.4f, 0.5f, -0.5f, 1.0f});
  const Sealed sealed = test::encode(kQ40Codec, kOne, row);
  EXPECT_EQ(load_element(DType::f16, sealed.data.data(), 0), 1.0f);
  const auto back = test::decode(kQ40Codec, kOne, sealed, 0, 1);
  EXPECT_EQ(std::vector<float>(back.begin(), back.begin() + 6),
            (std::vector<float>{-8.0f, 7.0f, 7.0f, 1.0f, 0.0f, 1.0f}));
  const Sealed other = test::encode(kQ40Codec, kOne, row_with({8.0f, -8.0f}));
  EXPECT_EQ(load_element(DType::f16, other.data.data(), 0), -1.0f);
}

TEST(Ggml, TinyRowsAreZerosAndTheLargestStaysFinite) {
  for (const Codec* codec : {&kQ80Codec, &kQ40Codec}) {
    for (const float x : {0.0f, 1e-45f, 1e-39f, 1e-30f}) {
      const Sealed sealed = test::encode(*codec, kOne, std::vector<float>(32, x));
      for (const float back : test::decode(*codec, kOne, sealed, 0, 1)) EXPECT_EQ(back, 0.0f);
    }
    for (const float x : {codec->largest, -codec->largest}) {
      const Sealed sealed = test::encode(*codec, kOne, row_with({x}));
      const float back = test::decode(*codec, kOne, sealed, 0, 1)[0];
      EXPECT_NEAR(back, x, std::fabs(x) * 1e-3f);
      const Sealed past = test::encode(*codec, kOne, row_with({std::nextafterf(x, 2 * x)}));
      EXPECT_FALSE(std::isfinite(load_element(DType::f16, past.data.data(), 0)));
    }
  }
}

TEST(Ggml, TakesMultiplesOf32) {
  for (const Codec* codec : {&kQ80Codec, &kQ40Codec}) {
    for (const int dim : {32, 64, 576}) EXPECT_TRUE(codec->takes({Side::key, 16, dim, 0}));
    for (const int dim : {1, 16, 33, 80}) EXPECT_FALSE(codec->takes({Side::value, 16, dim, 0}));
  }
}

}  // namespace
}  // namespace quire
