#include "codec/dual/dual.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/numbers.h"
#include "base/seed.h"
#include "codec/planes.h"
#include "codec/rotation/rotation.h"
#include "codec_cases.h"

namespace quire {
namespace {

using test::Sealed;
using test::size_of;

const Codec& dual(int bits) { return *find_codec("dual" + std::to_string(bits)); }

// The three parts of the scales.
struct Scales {
  std::vector<float> norms, low, step;

  Scales(const TileShape& shape, const Sealed& sealed) {
    std::size_t at = 0;
    const auto take = [&](int count) {
      std::vector<float> part;
      for (int i = 0; i < count; ++i) {
        part.push_back(load_element(DType::f16, sealed.scales.data(), at++));
      }
      return part;
    };
    norms = take(shape.padded_slots());
    low = take(shape.dim);
    step = take(shape.dim);
    EXPECT_EQ(at * 2, sealed.scales.size());
  }
};

std::vector<float> normal_rows(const TileShape& shape, std::mt19937_64& random) {
  std::normal_distribution<float> gauss;
  std::vector<float> rows(size_of(shape.slots * shape.dim));
  for (float& x : rows) x = gauss(random);
  return rows;
}

TEST(Dual, EncodesKeysOnly) {
  for (const int bits : {3, 4, 5, 6}) {
    EXPECT_FALSE(dual(bits).encodes_values);
    EXPECT_EQ(dual(bits).encode_slot, nullptr);
    EXPECT_EQ(dual(bits).copy_slot, nullptr);
  }
}

// Every number against double, from what is stored.
TEST(Dual, NormsRangesAndCodesAreThoseOfTheDefinition) {
  std::mt19937_64 random(test::announce_seed());
  for (const int bits : {3, 4, 5, 6}) {
    for (const int dim : {64, 80}) {
      const TileShape shape{Side::key, 40, dim, 0, 6};
      std::vector<float> rows = normal_rows(shape, random);
      for (int ch = 0; ch < dim; ++ch) {
        rows[size_of(3 * dim + ch)] *= 1000.0f;
        rows[size_of(4 * dim + ch)] *= 0.01f;
      }
      const Sealed sealed = test::encode(dual(bits), shape, rows);
      const Scales scales(shape, sealed);
      const double top = (1 << bits) - 1;
      std::vector<double> low(size_of(dim), 1e30);
      std::vector<double> high(size_of(dim), -1e30);
      std::vector<std::vector<double>> z;
      for (int t = 0; t < shape.slots; ++t) {
        std::vector<float> y(rows.begin() + t * dim, rows.begin() + (t + 1) * dim);
        rotate(shape, y.data());
        double square = 0;
        for (const float v : y) square += double{v} * v;
        const double norm = std::sqrt(square / dim);
        const double stored = scales.norms[size_of(t)];
        ASSERT_NEAR(stored, norm, norm * 0x1.01p-11);
        std::vector<double>& of_token = z.emplace_back();
        for (std::size_t ch = 0; ch < y.size(); ++ch) {
          of_token.push_back(y[ch] / stored);
          low[ch] = std::min(low[ch], of_token.back());
          high[ch] = std::max(high[ch], of_token.back());
        }
      }
      const PlaneTiles tiles(shape, bits);
      for (std::size_t ch = 0; ch < size_of(dim); ++ch) {
        ASSERT_NEAR(scales.low[ch], low[ch], std::fabs(low[ch]) * 0x1.01p-11);
        const double step = (high[ch] - low[ch]) / top;
        ASSERT_NEAR(scales.step[ch], step, step * 0x1.01p-11);
        for (int t = 0; t < shape.slots; ++t) {
          const double code = tiles.slot(t).get(sealed.data.data(), ch);
          const double steps =
              (z[size_of(t)][ch] - double{scales.low[ch]}) / double{scales.step[ch]};
          ASSERT_LE(code, top);
          ASSERT_NEAR(code, std::clamp(steps, 0.0, top), 0.5001);
        }
      }
      for (int t = shape.slots; t < shape.padded_slots(); ++t) {
        ASSERT_EQ(scales.norms[size_of(t)], 0.0f);
      }
      // And back: half a step, or the part of a step that rounding of low and step cut off.
      const auto back = test::decode(dual(bits), shape, sealed, 0, shape.slots);
      for (int t = 0; t < shape.slots; ++t) {
        std::vector<float> y(back.begin() + t * dim, back.begin() + (t + 1) * dim);
        rotate(shape, y.data());
        for (std::size_t ch = 0; ch < y.size(); ++ch) {
          ASSERT_NEAR(y[ch] / scales.norms[size_of(t)], z[size_of(t)][ch],
                      0.56 * double{scales.step[ch]} + 1e-3 * std::fabs(low[ch]));
        }
      }
    }
  }
}

TEST(Dual, TokensOfNormZeroTakeNoPartInRangesAndStayZeros) {
  std::mt19937_64 random(test::announce_seed());
  const TileShape shape{Side::key, 16, 64, 0, 1};
  TileShape more = shape;
  more.slots = 20;
  const std::vector<float> rows = normal_rows(shape, random);
  std::vector<float> with_zeros(64, 0.0f);
  with_zeros.insert(with_zeros.end(), rows.begin(), rows.end());
  with_zeros.insert(with_zeros.end(), 64, 1e-30f);
  const Sealed a = test::encode(dual(4), shape, rows);
  const Sealed b = test::encode(dual(4), more, with_zeros);
  EXPECT_EQ(Scales(shape, a).low, Scales(more, b).low);
  EXPECT_EQ(Scales(shape, a).step, Scales(more, b).step);
  for (const int slot : {0, 17, 18}) {
    EXPECT_EQ(Scales(more, b).norms[size_of(slot)], 0.0f);
    EXPECT_TRUE(
        test::same_bits(test::decode(dual(4), more, b, slot, 1), std::vector<float>(64, 0.0f)));
    for (std::size_t ch = 0; ch < 64; ++ch) {
      EXPECT_EQ(PlaneTiles(more, 4).slot(slot).get(b.data.data(), ch), 0u);
    }
  }
  EXPECT_TRUE(test::same_bits(test::decode(dual(4), shape, a, 0, 16),
                              test::decode(dual(4), more, b, 1, 16)));
  // A page of nothing else.
  EXPECT_TRUE(test::encode(dual(4), shape, std::vector<float>(16 * 64, 0.0f)) ==
              test::encode(dual(4), shape, {}));
}

TEST(Dual, AChannelThatDoesNotChangeHasStepZeroAndLosesNothing) {
  std::mt19937_64 random(test::announce_seed());
  const TileShape one{Side::key, 1, 80, 0, 1};
  const std::vector<float> row = normal_rows(one, random);
  const TileShape shape{Side::key, 48, 80, 0, 1};
  std::vector<float> rows;
  for (int t = 0; t < shape.slots; ++t) {  // the same but for a power of two
    for (const float x : row) rows.push_back(std::ldexp(x, t % 7 - 3));
  }
  const Sealed sealed = test::encode(dual(3), shape, rows);
  for (const float step : Scales(shape, sealed).step) EXPECT_EQ(step, 0.0f);
  const auto back = test::decode(dual(3), shape, sealed, 0, shape.slots);
  for (int t = 0; t < shape.slots; ++t) {
    for (std::size_t ch = 0; ch < row.size(); ++ch) {
      const std::size_t at = size_of(t) * row.size() + ch;
      ASSERT_NEAR(back[at], rows[at], std::ldexp(3e-3, t % 7 - 3));
    }
  }
}

// Subnormal norms round by up to a third, subnormal steps to 0.
TEST(Dual, TinyAndHugePagesStayFiniteWithCodesInRange) {
  std::mt19937_64 random(test::announce_seed());
  for (const int bits : {3, 4, 5, 6}) {
    for (const int dim : {2, 64}) {
      const TileShape shape{Side::key, 64, dim, 0, 2};
      std::vector<float> rows = normal_rows(shape, random);
      for (int t = 0; t < shape.slots; ++t) {
        const float size = t < 32 ? std::ldexp(1.0f, -26 + t % 8) : std::ldexp(1.0f, 3 + t % 9);
        for (int ch = 0; ch < dim; ++ch) rows[size_of(t * dim + ch)] *= size;
      }
      for (const float x : {65504.0f, -65504.0f}) {
        for (int ch = 0; ch < dim; ++ch) rows[size_of((x > 0 ? 9 : 40) * dim + ch)] = 0.0f;
        rows[size_of((x > 0 ? 9 : 40) * dim + 1)] = x;
      }
      const Sealed sealed = test::encode(dual(bits), shape, rows);
      for (const float x : test::decode(dual(bits), shape, sealed, 0, shape.slots)) {
        ASSERT_TRUE(std::isfinite(x));
      }
      const Scales scales(shape, sealed);
      for (const auto* part : {&scales.norms, &scales.low, &scales.step}) {
        for (const float x : *part) ASSERT_TRUE(std::isfinite(x));
      }
    }
  }
}

}  // namespace
}  // namespace quire
