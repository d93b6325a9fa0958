#include "model/ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <random>

namespace quire::model {
namespace {

std::vector<float> random_row(std::size_t count, double deviation, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, static_cast<float>(deviation));
  std::vector<float> row(count);
  for (float& value : row) value = normal(random);
  return row;
}

TEST(Ops, ExpIsWithinTwoUnits) {
  double worst = 0;
  for (double x = -87; x <= 88; x += 0.00713) {
    const auto given = static_cast<float>(x);
    const double exact = std::exp(static_cast<double>(given));
    const auto nearest = static_cast<float>(exact);
    const double unit = std::nextafter(nearest, INFINITY) - nearest;
    worst = std::max(worst, std::abs(fast_exp(given) - exact) / unit);
  }
  EXPECT_LE(worst, 2.0);
  EXPECT_EQ(fast_exp(0.0f), 1.0f);
  EXPECT_EQ(fast_exp(-88.0f), 0.0f);
  EXPECT_EQ(fast_exp(-INFINITY), 0.0f);
  EXPECT_EQ(fast_exp(INFINITY), fast_exp(88.0f));
}

TEST(Ops, NormMakesTheMeanSquareOne) {
  for (const std::size_t width : {1u, 7u, 16u, 576u, 2100u}) {
    const std::vector<float> x = random_row(width, 3, 1);
    const std::vector<float> weight = random_row(width, 1, 2);
    double squares = 0;
    for (const float value : x) squares += static_cast<double>(value) * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + 0.25);
    std::vector<float> out(width);
    rms_norm(x, weight, 0.25f, out.data());
    for (std::size_t i = 0; i < width; ++i) {
      EXPECT_NEAR(out[i], x[i] * scale * weight[i], 1e-5 * std::abs(weight[i]) * 4);
    }
    std::vector<float> in_place = x;
    rms_norm(in_place, weight, 0.25f, in_place.data());
    EXPECT_EQ(in_place, out);
  }
}

TEST(Ops, RotationTurnsPairsByTheirAngle) {
  const std::vector<std::int64_t> positions = {0, 3, 5000};
  for (const auto pairs : {Rope::Pairs::halves, Rope::Pairs::interleaved}) {
    Rope rope{.pairs = pairs, .base = 500.0, .frequency_scale = 0.5, .factors = {1, 2, 4}};
    rope.offset = 1;
    rope.size = 6;
    constexpr int heads = 2;
    constexpr int dim = 9;
    const std::vector<float> rows = random_row(3 * 2 * 9, 1, 3);
    std::vector<float> turned = rows;
    const Rotator rotator(rope, 1.5f, positions);
    for (std::size_t p = 0; p < 3; ++p) {
      rotator.apply(p, turned.data() + p * heads * dim, heads, dim);
    }
    for (std::size_t row = 0; row < 6; ++row) {
      const float* before = rows.data() + row * 9;
      const float* after = turned.data() + row * 9;
      for (const int same : {0, 7, 8}) EXPECT_EQ(after[same], before[same]);
      for (int i = 0; i < 3; ++i) {
        const double angle = static_cast<double>(positions[row / 2]) * 0.5 *
                             std::pow(500.0, -2.0 * i / 6) /
                             rope.factors[static_cast<std::size_t>(i)];
        const int a = 1 + (pairs == Rope::Pairs::halves ? i : 2 * i);
        const int b = a + (pairs == Rope::Pairs::halves ? 3 : 1);
        const auto expected = std::complex<double>(before[a], before[b]) * std::polar(1.5, angle);
        EXPECT_NEAR(after[a], expected.real(), 1e-5);
        EXPECT_NEAR(after[b], expected.imag(), 1e-5);
      }
    }
  }
}

TEST(Ops, GatesAreSiluAndGelu) {
  const std::vector<float> up = random_row(1000, 1, 4);
  const std::vector<float> x = random_row(1000, 10, 5);
  std::vector<float> silu = x;
  std::vector<float> gelu(x.size());
  gate_silu(silu.data(), up.data(), x.size(), silu.data());
  gate_gelu(x.data(), up.data(), x.size(), gelu.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = x[i];
    const double tanh_part = std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v));
    EXPECT_NEAR(silu[i], v / (1 + std::exp(-v)) * up[i], 1e-5 * (1 + std::abs(v)));
    EXPECT_NEAR(gelu[i], 0.5 * v * (1 + tanh_part) * up[i], 1e-5 * (1 + std::abs(v)));
  }
}

TEST(Ops, SoftCapBendsTowardsTheCap) {
  std::vector<float> x = {-1000, -3, 0, 3, 1000};
  soft_cap(x, 5);
  EXPECT_FLOAT_EQ(x[0], -5);
  EXPECT_FLOAT_EQ(x[1], static_cast<float>(5 * std::tanh(-0.6)));
  EXPECT_EQ(x[2], 0);
  EXPECT_FLOAT_EQ(x[4], 5);
}

TEST(Ops, LogSoftmaxAndDivergenceAgreeWithDoubles) {
  for (const std::size_t width : {2u, 16u, 1000u, 5001u}) {
    const std::vector<float> a = random_row(width, 4, 6);
    const std::vector<float> b = random_row(width, 4, 7);
    const auto logs_of = [](const std::vector<float>& x) {
      double sum = 0;
      for (const float value : x) sum += std::exp(static_cast<double>(value));
      std::vector<double> logs;
      for (const float value : x) logs.push_back(value - std::log(sum));
      return logs;
    };
    std::vector<float> p = a;
    std::vector<float> q = b;
    log_softmax(p);
    log_softmax(q);
    const std::vector<double> la = logs_of(a);
    const std::vector<double> lb = logs_of(b);
    double expected = 0;
    for (std::size_t i = 0; i < width; ++i) {
      EXPECT_NEAR(p[i], la[i], 1e-5);
      expected += std::exp(la[i]) * (la[i] - lb[i]);
    }
    EXPECT_NEAR(divergence(p, q), expected, 1e-5 * (1 + expected));
    EXPECT_EQ(divergence(p, p), 0);
  }
}

TEST(Ops, ArgmaxIsTheFirstOfTheLargest) {
  std::vector<float> x = random_row(100, 1, 8);
  x[37] = 50;
  x[91] = 50;
  EXPECT_EQ(argmax(x), 37u);
  EXPECT_EQ(argmax(std::vector<float>{-3}), 0u);
  EXPECT_EQ(argmax(std::vector<float>{-3, -1, -2}), 1u);
  EXPECT_EQ(argmax(std::vector<float>{NAN, 1, 2}), 0u);
}

}  // namespace
}  // namespace quire::model
