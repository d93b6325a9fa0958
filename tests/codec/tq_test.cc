// The levels of tq, and what a row becomes.
#include "codec/tq/tq.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>

#include "base/numbers.h"
#include "base/seed.h"
#include "codec/planes.h"
#include "codec/rotation/rotation.h"
#include "codec/tq/codebooks.h"
#include "codec_cases.h"
#include "rounding.h"

namespace quire {
namespace {

using test::Bytes;
using test::Sealed;
using test::size_of;

double density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double above(double x) { return std::erfc(x / std::numbers::sqrt2) / 2; }

// Each level is the mean of its cell to within `off`, each border the middle of two levels, and the
// error of the whole is the known one.
template <int kBits>
void check_book(double error, double off = 1e-6) {
  using Book = Codebook<kBits>;
  constexpr int kLevels = 1 << (kBits - 1);
  double found = 0;
  for (int i = 0; i < kLevels; ++i) {
    const double level = Book::kLevels[i];
    const double begin = i == 0 ? 0.0 : Book::kBorders[i - 1];
    const bool last = i == kLevels - 1;
    const double end = last ? 0.0 : Book::kBorders[i];
    const double chance = above(begin) - (last ? 0.0 : above(end));
    const double mean = (density(begin) - (last ? 0.0 : density(end))) / chance;
    EXPECT_NEAR(level, mean, off) << kBits << " bits, level " << i;
    if (!last) {
      EXPECT_NEAR(end, (level + double{Book::kLevels[i + 1]}) / 2, 2e-7);
    }
    // E[(x - level)^2] over the cell, of both signs.
    const double squares = chance + begin * density(begin) - (last ? 0.0 : end * density(end));
    found += 2 * (squares - 2 * level * mean * chance + level * level * chance);
  }
  EXPECT_NEAR(found, error, 1e-7) << kBits << " bits";
}

TEST(Tq, LevelsAreTheBestOnesForANormalVariable) {
  check_book<2>(0.1174818);
  check_book<3>(0.0345478);
  check_book<4>(0.0095010);
  check_book<5>(0.0025047);
  // On halves of a step: each as near to its mean as a step and its borders allow.
  check_book<6>(0.0006846, 0.6 * double{Codebook<6>::kStep});
  for (int i = 0; i < 32; ++i) {
    const float steps = Codebook<6>::kLevels[i] / Codebook<6>::kStep - 0.5f;
    EXPECT_NEAR(steps, std::round(steps), 1e-5f);
    if (i < 24) {
      EXPECT_EQ(std::round(steps), static_cast<float>(i));
    }
    EXPECT_LE(steps, 48.0f);
  }
}

const Codec& tq(int bits) { return *find_codec("tq" + std::to_string(bits)); }

// A row whose rotated form is y, as near as rounding allows.
std::vector<float> row_of(const TileShape& shape, std::vector<float> y) {
  rotate_back(shape, y.data());
  return y;
}

TEST(Tq, CodesCountTheLevelsFromTheLowestUp) {
  // Rotated values of 8 channels with |y|^2 = 8, so that z = y; each in the middle of a cell.
  const TileShape shape{Side::value, 1, 8, 0, 3};
  const std::vector<float> z = {0.45f, -0.45f, 0.45f, -0.45f, 1.34f, -1.34f, -1.34f, 1.46f};
  const Sealed sealed = test::encode(tq(2), shape, row_of(shape, z));
  std::vector<unsigned> codes;
  for (std::size_t ch = 0; ch < 8; ++ch) {
    codes.push_back(PlaneTiles(shape, 2).slot(0).get(sealed.data.data(), ch));
  }
  EXPECT_EQ(codes, (std::vector<unsigned>{2, 1, 2, 1, 3, 0, 0, 3}));
}

// All levels, and channels between that make |y|^2 what it is for z = y.
TEST(Tq, CodesOfSixBitsCountFromTheNinthLevelUp) {
  const TileShape shape{Side::value, 1, 192, 0, 3};
  std::vector<float> z;
  double square = 0;
  for (int rank = 0; rank < 64; ++rank) {
    const float level = Codebook<6>::kLevels[rank < 32 ? 31 - rank : rank - 32];
    z.push_back(rank < 32 ? -level : level);
    square += double{level} * level;
  }
  z.resize(192, static_cast<float>(std::sqrt((192 - square) / 128)));
  const Sealed sealed = test::encode(tq(6), shape, row_of(shape, z));
  for (unsigned rank = 0; rank < 64; ++rank) {
    EXPECT_EQ(PlaneTiles(shape, 6).slot(0).get(sealed.data.data(), rank), (rank + 56) % 64);
  }
}

TEST(Tq, ANegatedRowHasMirroredCodesAndTheSameScale) {
  std::mt19937_64 random(test::announce_seed());
  std::normal_distribution<float> gauss;
  for (const int bits : {2, 3, 4, 5, 6}) {
    for (const Side side : {Side::key, Side::value}) {
      const TileShape shape{side, 16, 80, 0, 11};
      std::vector<float> rows(size_of(shape.slots * shape.dim));
      for (float& x : rows) x = gauss(random);
      std::vector<float> negated = rows;
      for (float& x : negated) x = -x;
      const Sealed a = test::encode(tq(bits), shape, rows);
      const Sealed b = test::encode(tq(bits), shape, negated);
      EXPECT_TRUE(a.scales == b.scales);
      const PlaneTiles tiles(shape, bits);
      for (int t = 0; t < shape.slots; ++t) {
        for (std::size_t ch = 0; ch < 80; ++ch) {
          const auto rank = [&](const Sealed& sealed) {
            return test::tq_rank(bits, tiles.slot(t).get(sealed.data.data(), ch));
          };
          ASSERT_EQ(rank(a) + rank(b), (1 << bits) - 1);
        }
      }
    }
  }
}

// Both rules, from the codes and the row in double.
TEST(Tq, ScalesAreUnbiasedForKeysAndLeastSquaresForValues) {
  std::mt19937_64 random(test::announce_seed());
  std::normal_distribution<float> gauss;
  const float levels[] = {-1.51041761f, -0.452780035f, 0.452780035f, 1.51041761f};
  for (const Side side : {Side::key, Side::value}) {
    const TileShape shape{side, 16, 96, 0, 4};
    std::vector<float> rows(size_of(shape.slots * shape.dim));
    for (float& x : rows) x = gauss(random);
    const Sealed sealed = test::encode(tq(2), shape, rows);
    for (int t = 0; t < shape.slots; ++t) {
      std::vector<float> y(rows.begin() + t * shape.dim, rows.begin() + (t + 1) * shape.dim);
      rotate(shape, y.data());
      double yy = 0;
      double yc = 0;
      double cc = 0;
      for (std::size_t ch = 0; ch < y.size(); ++ch) {
        const double c = levels[PlaneTiles(shape, 2).slot(t).get(sealed.data.data(), ch)];
        yy += double{y[ch]} * y[ch];
        yc += y[ch] * c;
        cc += c * c;
      }
      const double scale = side == Side::key ? yy / yc : yc / cc;
      EXPECT_NEAR(load_element(DType::f16, sealed.scales.data(), size_of(t)), scale,
                  scale * 0x1.01p-11);
    }
  }
}

TEST(Tq, AnotherSeedGivesOtherCodesOfTheSameRow) {
  std::vector<float> row(64);
  for (std::size_t ch = 0; ch < 64; ++ch) row[ch] = std::sin(static_cast<float>(ch));
  const TileShape a{Side::key, 1, 64, 0, 1};
  const TileShape b{Side::key, 1, 64, 0, 2};
  const Sealed of_a = test::encode(tq(4), a, row);
  EXPECT_FALSE(of_a == test::encode(tq(4), b, row));
  EXPECT_TRUE(of_a == test::encode(tq(4), a, row));
}

TEST(Tq, RowsBelowTheSmallestScaleBecomeZeros) {
  for (const Side side : {Side::key, Side::value}) {
    const TileShape shape{side, 16, 64, 0, 1};
    for (const float x : {0.0f, -0.0f, 1e-45f, 1e-30f, 1e-20f, 2e-8f}) {
      const Sealed sealed = test::encode(tq(3), shape, std::vector<float>(64, x));
      EXPECT_TRUE(sealed == test::encode(tq(3), shape, {})) << x;
      const auto back = test::decode(tq(3), shape, sealed, 0, 1);
      EXPECT_TRUE(test::same_bits(back, std::vector<float>(64, 0.0f))) << x;
    }
    // From half of the smallest f16 number on there is a scale.
    const Sealed sealed = test::encode(tq(3), shape, std::vector<float>(64, 4e-8f));
    EXPECT_EQ(load_element(DType::f16, sealed.scales.data(), 0), 0x1p-24f);
  }
}

TEST(Tq, TheLargestNormKeepsAFiniteScale) {
  for (const int bits : {2, 3, 4, 5, 6}) {
    EXPECT_EQ(tq(bits).largest_norm, 65504.0f);
    for (const Side side : {Side::key, Side::value}) {
      for (const int dim : {2, 4, 6, 64, 80, 256}) {
        const TileShape shape{side, 1, dim, 0, 8};
        // All of it in one channel, in one rotated channel, in two, and spread.
        std::vector<std::vector<float>> rows;
        std::vector<float> y(size_of(dim));
        y[1] = 65504.0f;
        rows.push_back(y);
        rows.push_back(row_of(shape, y));
        y[0] = -45000.0f;
        y[1] = 47000.0f;
        rows.push_back(row_of(shape, y));
        rows.push_back(
            std::vector<float>(size_of(dim), 65504.0f / std::sqrt(static_cast<float>(dim))));
        for (const std::vector<float>& row : rows) {
          const Sealed sealed = test::encode(tq(bits), shape, row);
          const float scale = load_element(DType::f16, sealed.scales.data(), 0);
          EXPECT_GT(scale, 0.0f);
          EXPECT_LE(scale, 65504.0f);
          for (const float x : test::decode(tq(bits), shape, sealed, 0, 1)) {
            EXPECT_TRUE(std::isfinite(x));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire
