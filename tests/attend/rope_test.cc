// Rotation, against the angles written out in double.
#include "attend/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "attend/history.h"

namespace quire::test {
namespace {

struct Case {
  const char* name;
  Rope rope;
  int dim;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Rope::Pairs pairs : {Rope::Pairs::halves, Rope::Pairs::interleaved}) {
    Rope plain;
    plain.pairs = pairs;
    all.push_back({"whole key", plain, 16});
    Rope part = plain;
    part.offset = 6;
    part.size = 8;
    part.base = 500000.0;
    all.push_back({"offset and size", part, 20});
    Rope scaled = plain;
    scaled.frequency_scale = 0.25;
    scaled.factors = {1.0, 1.5, 4.0, 8.0};
    scaled.size = 8;
    all.push_back({"factors and scale", scaled, 12});
  }
  return all;
}

// What spec.hpp says, written from it.
std::vector<double> rotate(const Rope& rope, int dim, const std::vector<double>& x,
                           double distance) {
  std::vector<double> y = x;
  const int size = rope.size == 0 ? dim : rope.size;
  for (int i = 0; i < size / 2; ++i) {
    double angle = distance * rope.frequency_scale * std::pow(rope.base, -2.0 * i / size);
    if (!rope.factors.empty()) angle /= rope.factors[size_of(i)];
    const bool halves = rope.pairs == Rope::Pairs::halves;
    const std::size_t a = size_of(rope.offset + (halves ? i : 2 * i));
    const std::size_t b = size_of(rope.offset + (halves ? i + size / 2 : 2 * i + 1));
    y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
    y[b] = x[a] * std::sin(angle) + x[b] * std::cos(angle);
  }
  return y;
}

std::vector<float> turn(const RopeTurner& turner, std::vector<float> x, std::int64_t distance) {
  turner.apply(turner.angles(distance), x.data());
  return x;
}

std::vector<float> random_key(Random& random, int dim) {
  std::vector<float> x;
  for (int c = 0; c < dim; ++c) x.push_back(random.normal());
  return x;
}

TEST(Rope, TurnsPairsByTheirAngles) {
  Random random(10);
  for (const Case& c : cases()) {
    const RopeTurner turner(c.rope, c.dim);
    for (const std::int64_t distance : {1, -1, 17, -4000, 1000000}) {
      const std::vector<float> x = random_key(random, c.dim);
      const std::vector<double> expected = rotate(
          c.rope, c.dim, std::vector<double>(x.begin(), x.end()), static_cast<double>(distance));
      const std::vector<float> y = turn(turner, x, distance);
      for (std::size_t i = 0; i < y.size(); ++i) {
        EXPECT_NEAR(y[i], expected[i], 3e-6) << c.name << " distance " << distance << " at " << i;
      }
    }
  }
}

TEST(Rope, LeavesChannelsOutsideItsPartAlone) {
  Random random(11);
  Rope rope;
  rope.offset = 6;
  rope.size = 8;
  const RopeTurner turner(rope, 20);
  const std::vector<float> x = random_key(random, 20);
  const std::vector<float> y = turn(turner, x, 5);
  for (std::size_t i = 0; i < 20; ++i) {
    if (i >= 6 && i < 14) continue;
    EXPECT_EQ(x[i], y[i]) << i;
  }
}

TEST(Rope, NoDistanceIsNoChange) {
  Random random(12);
  for (const Case& c : cases()) {
    const std::vector<float> x = random_key(random, c.dim);
    EXPECT_EQ(turn(RopeTurner(c.rope, c.dim), x, 0), x) << c.name;
  }
}

TEST(Rope, TurnsAddUp) {
  Random random(13);
  for (const Case& c : cases()) {
    const RopeTurner turner(c.rope, c.dim);
    for (int round = 0; round < 20; ++round) {
      const std::int64_t a = random.integer(-100000, 100000);
      const std::int64_t b = random.integer(-100000, 100000);
      const std::vector<float> x = random_key(random, c.dim);
      const std::vector<float> twice = turn(turner, turn(turner, x, a), b);
      const std::vector<float> once = turn(turner, x, a + b);
      for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_NEAR(twice[i], once[i], 5e-6) << c.name << ' ' << a << " then " << b;
      }
    }
  }
}

TEST(Rope, DotProductsDependOnDistancesOnly) {
  Random random(14);
  const auto dot = [](const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * double{b[i]};
    return sum;
  };
  for (const Case& c : cases()) {
    const RopeTurner turner(c.rope, c.dim);
    for (int round = 0; round < 20; ++round) {
      const std::vector<float> q = random_key(random, c.dim);
      const std::vector<float> k = random_key(random, c.dim);
      const std::int64_t query = random.integer(0, 100000);
      const std::int64_t key = random.integer(0, query);
      const std::int64_t shift = random.integer(-50000, 50000);
      const double here = dot(turn(turner, q, query), turn(turner, k, key));
      const double there = dot(turn(turner, q, query + shift), turn(turner, k, key + shift));
      EXPECT_NEAR(here, there, 5e-5) << c.name << ' ' << query << ' ' << key << ' ' << shift;
    }
  }
}

}  // namespace
}  // namespace quire::test
