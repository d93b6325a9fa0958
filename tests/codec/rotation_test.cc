#include "codec/rotation/rotation.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <iterator>
#include <random>
#include <vector>

#include "base/isa.h"
#include "base/seed.h"
#include "base/slow_build.h"
#include "codec_cases.h"

namespace quire {
namespace {

using test::size_of;

TileShape shape_of(int dim, std::uint64_t seed = 1) { return {Side::key, 16, dim, 0, seed}; }

// Head sizes of models, and sizes with large and repeated odd factors.
constexpr int kDims[] = {2,   4,   6,   10,  14,  22,  62,  64,   72,  80,  88,
                         90,  96,  98,  104, 106, 112, 128, 160,  192, 208, 224,
                         254, 256, 272, 288, 306, 536, 576, 1018, 1024};

std::vector<double> rotated(const TileShape& shape, std::vector<float> row) {
  rotate(shape, row.data());
  return {row.begin(), row.end()};
}

std::vector<float> one_hot(int dim, int channel) {
  std::vector<float> row(size_of(dim));
  row[size_of(channel)] = 1.0f;
  return row;
}

double kurtosis(const std::vector<double>& y) {
  double second = 0;
  double fourth = 0;
  for (const double v : y) {
    second += v * v;
    fourth += v * v * v * v;
  }
  return static_cast<double>(y.size()) * fourth / (second * second);
}

// An entry of the transform of p numbers.
double entry_of_prime(int p, int row, int column) {
  if (p < 7) return (row == column ? 1.0 : 0.0) - 2.0 / p;
  double q = 0;
  for (int root = 1; root < p; ++root) {
    if ((row + root * root - column) % p == 0) q = 1;
  }
  if (q == 0 && row != column) q = -1;
  if (p % 4 == 1) return q / std::sqrt(p) + 1.0 / p;
  const double near = 1 / std::sqrt(p + 1);
  return ((row == column ? 1 : 0) + q) * near + (1 - near) / p;
}

// The matrix of the header, entry by entry.
double entry(const TileShape& shape, int row, int column) {
  int block = 1;
  while (shape.dim % (2 * block) == 0) block *= 2;
  const auto common = static_cast<unsigned>(row % block & column % block);
  double value = (std::popcount(common) % 2 == 0 ? 1.0 : -1.0) / std::sqrt(block);
  int odd = shape.dim / block;
  int a = row / block;
  int b = column / block;
  for (int p = 3; odd > 1; p += 2) {
    for (; odd % p == 0; odd /= p, a /= p, b /= p) value *= entry_of_prime(p, a % p, b % p);
  }
  const bool negated = sign_word(shape.seed, column / 64) >> (column % 64) & 1u;
  return negated ? -value : value;
}

TEST(Rotation, IsTheMatrixOfItsDefinition) {
  for (const int dim : kDims) {
    const TileShape shape = shape_of(dim, 77);
    for (int column = 0; column < dim; column += dim < 300 ? 1 : 37) {
      const auto y = rotated(shape, one_hot(dim, column));
      for (int row = 0; row < dim; ++row) {
        ASSERT_NEAR(y[size_of(row)], entry(shape, row, column), 1e-6)
            << dim << ' ' << row << ' ' << column;
      }
    }
  }
}

TEST(Rotation, IsOrthonormal) {
  std::vector<int> dims(std::begin(kDims), std::end(kDims));
  dims.insert(dims.end(), {512, 640, 768, 1000});
  for (const int dim : dims) {
    if (test::kSlowBuild && dim > 300) continue;
    const std::size_t n = size_of(dim);
    std::vector<double> matrix(n * n);  // [row][column]
    for (std::size_t column = 0; column < n; ++column) {
      const auto y = rotated(shape_of(dim), one_hot(dim, static_cast<int>(column)));
      for (std::size_t row = 0; row < n; ++row) matrix[row * n + column] = y[row];
    }
    for (std::size_t i = 0; i < n; ++i) {
      std::vector<double> products(i + 1);  // of column i with those up to itself
      for (const double* row = matrix.data(); row != matrix.data() + n * n; row += n) {
        for (std::size_t j = 0; j <= i; ++j) products[j] += row[i] * row[j];
      }
      for (std::size_t j = 0; j <= i; ++j) {
        ASSERT_NEAR(products[j], i == j ? 1.0 : 0.0, 1e-6) << dim << ' ' << i << ' ' << j;
      }
    }
  }
}

TEST(Rotation, KeepsInnerProductsAndComesBack) {
  std::mt19937_64 random(test::announce_seed());
  std::normal_distribution<float> gauss;
  for (const int dim : kDims) {
    const TileShape shape = shape_of(dim, random());
    std::vector<float> a(size_of(dim));
    std::vector<float> b(size_of(dim));
    for (float& x : a) x = gauss(random);
    for (float& x : b) x = gauss(random);
    double before = 0;
    double norms = 0;
    for (std::size_t ch = 0; ch < a.size(); ++ch) {
      before += double{a[ch]} * b[ch];
      norms += double{a[ch]} * a[ch] + double{b[ch]} * b[ch];
    }
    std::vector<float> turned = a;
    rotate(shape, turned.data());
    const auto other = rotated(shape, b);
    double after = 0;
    for (std::size_t ch = 0; ch < a.size(); ++ch) after += turned[ch] * other[ch];
    EXPECT_NEAR(after, before, 1e-5 * norms) << dim;
    rotate_back(shape, turned.data());
    for (std::size_t ch = 0; ch < a.size(); ++ch) ASSERT_NEAR(turned[ch], a[ch], 2e-5) << dim;
  }
}

// Numbers of all sizes, so that another order of additions would show.
TEST(Rotation, EveryInstructionSetGivesTheSameBits) {
  std::mt19937_64 random(test::announce_seed());
  std::normal_distribution<float> gauss;
  std::uniform_int_distribution<int> exponents(-12, 12);
  const auto check = [&](int dim) {
    const TileShape shape = shape_of(dim, random());
    const std::size_t count = random() % 4;
    const std::size_t stride = size_of(dim) + random() % 3;
    std::vector<float> rows(count * stride);
    for (float& x : rows) x = std::ldexp(gauss(random), exponents(random));
    if (count > 0) rows[0] = -0.0f;
    std::vector<float> turned = rows;
    for (std::size_t i = 0; i < count; ++i) rotate(shape, turned.data() + i * stride);
    std::vector<float> back = turned;
    for (std::size_t i = 0; i < count; ++i) rotate_back(shape, back.data() + i * stride);
    for (const Isa isa : isas_found()) {
      std::vector<float> found = rows;
      kRotators[static_cast<std::size_t>(isa)](shape, found.data(), count, stride);
      ASSERT_TRUE(test::same_bits(found, turned)) << dim << ' ' << name_of(isa);
      kRotatorsBack[static_cast<std::size_t>(isa)](shape, found.data(), count, stride);
      ASSERT_TRUE(test::same_bits(found, back)) << dim << ' ' << name_of(isa) << ", back";
    }
  };
  for (int dim = 2; dim <= 320; dim += 2) check(dim);
  for (const int dim : {384, 448, 510, 512, 514, 536, 576, 640, 768, 960, 1022, 1024}) check(dim);
  check(static_cast<int>(random() % 512 + 1) * 2);
}

// A row that lies anywhere, between others.
TEST(Rotation, TouchesNothingOutsideTheRow) {
  for (const Isa isa : isas_found()) {
    for (const int dim : {2, 6, 10, 16, 18, 22, 36, 64, 80, 126, 1024}) {
      for (const std::size_t begin : {std::size_t{1}, std::size_t{3}, std::size_t{16}}) {
        std::vector<float> all(begin + size_of(dim) + 16, 7.0f);
        kRotators[static_cast<std::size_t>(isa)](shape_of(dim), all.data() + begin, 1, 0);
        kRotatorsBack[static_cast<std::size_t>(isa)](shape_of(dim), all.data() + begin, 1, 0);
        for (std::size_t i = 0; i < all.size(); ++i) {
          if (i >= begin && i < begin + size_of(dim)) continue;
          ASSERT_EQ(all[i], 7.0f) << dim << ' ' << name_of(isa) << ' ' << i;
        }
      }
    }
  }
}

// 3 is the kurtosis of a normal variable, d that of a single channel.
TEST(Rotation, SpreadsSingleChannels) {
  struct Bound {
    int dim;
    double kurtosis;
  };
  for (const auto& [dim, bound] :
       {Bound{64, 1.0}, Bound{80, 1.16}, Bound{96, 1.223}, Bound{112, 1.2047}, Bound{128, 1.0},
        Bound{160, 1.16}, Bound{192, 1.223}, Bound{224, 1.2047}, Bound{256, 1.0},
        Bound{576, 1.494}}) {
    for (int ch = 0; ch < dim; ++ch) {
      ASSERT_NEAR(kurtosis(rotated(shape_of(dim), one_hot(dim, ch))), bound, 0.001)
          << dim << ' ' << ch;
    }
  }
  // Of larger primes too, which leave little more than the other numbers in a channel's own place.
  for (const int dim : {62, 88, 104, 106, 136, 208, 254, 1018}) {
    for (const int ch : {0, 5, dim - 1}) {
      EXPECT_LT(kurtosis(rotated(shape_of(dim), one_hot(dim, ch))), 1.4) << dim << ' ' << ch;
    }
  }
}

TEST(Rotation, SpreadsAllOnesAsNormalNumbers) {
  for (const int dim : {64, 80, 96, 112, 128, 192, 256}) {
    double sum = 0;
    constexpr int kSeeds = 4000;  // the same on every run
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      const auto y = rotated(shape_of(dim, seed), std::vector<float>(size_of(dim), 1.0f));
      sum += kurtosis(y);
    }
    // 3 - 2/d for independent signs and flat rows of the matrix.
    EXPECT_LE(sum / kSeeds, 3.0) << dim;
    EXPECT_GE(sum / kSeeds, 2.8) << dim;
  }
}

TEST(Rotation, SignsAreTheSeedsAndTheSameEverywhere) {
  // The sequence of splitmix64.
  EXPECT_EQ(sign_word(0, 0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(sign_word(0, 1), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(sign_word(1234567, 0), 0x599ed017fb08fc85u);
  int same = 0;
  for (int index = 0; index < 100; ++index) {
    same += 64 - std::popcount(sign_word(7, index) ^ sign_word(8, index));
  }
  EXPECT_NEAR(same, 3200, 200);
}

TEST(Rotation, TakesEvenSizesUpToItsLimit) {
  for (const int dim : {2, 64, 80, 1024}) EXPECT_TRUE(rotates(shape_of(dim))) << dim;
  for (const int dim : {0, 1, 3, 63, 1023, 1026}) EXPECT_FALSE(rotates(shape_of(dim))) << dim;
  EXPECT_EQ(transform_of(1024).last, 1.0f / 32.0f);
  EXPECT_EQ(transform_of(2 * 3 * 3 * 5).factors[2], 5);
  EXPECT_EQ(transform_of(2 * 3 * 3 * 5).factors[3], 0);
}

}  // namespace
}  // namespace quire
