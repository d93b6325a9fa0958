#include "model/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace quire::model {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Sampler sampler_of(const SamplerOptions& options) { return Sampler::create(options).value(); }

// What comes in many draws, and how often.
std::map<int, int> counts_of(const SamplerOptions& options, const std::vector<float>& logits,
                             int draws = 2000) {
  Sampler sampler = sampler_of(options);
  std::map<int, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[sampler.choose(logits).value()];
  return counts;
}

std::set<int> ids_of(const SamplerOptions& options, const std::vector<float>& logits) {
  std::set<int> ids;
  for (const auto& [id, count] : counts_of(options, logits)) ids.insert(id);
  return ids;
}

// Logits whose probabilities at temperature 1 are these.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

TEST(Sampler, WithoutTemperatureTakesTheLargest) {
  Sampler sampler = sampler_of({});
  EXPECT_EQ(sampler.choose(std::vector<float>{-3, 2, 1}).value(), 1);
  EXPECT_EQ(sampler.choose(std::vector<float>{1, 5, -kInfinity, 5}).value(), 1);  // lowest id
  EXPECT_EQ(sampler.choose(std::vector<float>{-kInfinity, -1e30f}).value(), 1);
}

TEST(Sampler, DrawsByProbability) {
  // 20,000 draws with a fixed seed: one standard deviation is at most 71.
  const auto counts = counts_of({.temperature = 1, .seed = 1}, logits_of({.5, .3, .2}), 20000);
  EXPECT_NEAR(counts.at(0), 10000, 300);
  EXPECT_NEAR(counts.at(1), 6000, 300);
  EXPECT_NEAR(counts.at(2), 4000, 300);
}

TEST(Sampler, TemperatureDividesLogits) {
  // Halves of logits are roots of probabilities.
  const auto counts = counts_of({.temperature = 2, .seed = 2}, logits_of({.64, .36}), 20000);
  EXPECT_NEAR(counts.at(0), 20000 * .8 / 1.4, 300);
  // Near 0 the largest is all that is left, of equals all.
  EXPECT_EQ(ids_of({.temperature = 1e-9}, {1, 1.001f, 0}), std::set{1});
  EXPECT_EQ(ids_of({.temperature = 1e-300}, {1, 0, 1}), (std::set{0, 2}));
  EXPECT_EQ(ids_of({.temperature = 1e300}, {100, -100}), (std::set{0, 1}));
}

TEST(Sampler, TopKKeepsTheLargestAndOfEqualsTheLowestIds) {
  EXPECT_EQ(ids_of({.temperature = 1, .top_k = 2}, {0, 1, 0.5f, 1.5f}), (std::set{1, 3}));
  EXPECT_EQ(ids_of({.temperature = 1, .top_k = 2}, {0, 1, 1, 1}), (std::set{1, 2}));
  EXPECT_EQ(ids_of({.temperature = 1, .top_k = 1}, {1, 1, 1}), std::set{0});
  EXPECT_EQ(ids_of({.temperature = 1, .top_k = 9}, {1, 1, 1}), (std::set{0, 1, 2}));
}

TEST(Sampler, TopPKeepsAsManyAsReachIt) {
  const auto logits = logits_of({.1, .4, .3, .2});
  EXPECT_EQ(ids_of({.temperature = 1, .top_p = .3}, logits), std::set{1});
  EXPECT_EQ(ids_of({.temperature = 1, .top_p = .45}, logits), (std::set{1, 2}));
  EXPECT_EQ(ids_of({.temperature = 1, .top_p = .8}, logits), (std::set{1, 2, 3}));
  EXPECT_EQ(ids_of({.temperature = 1, .top_p = 1}, logits), (std::set{0, 1, 2, 3}));
  EXPECT_EQ(ids_of({.temperature = 1, .top_p = 1e-9}, {2, 2}), std::set{0});
  // Exactly reached is enough: two of four equals.
  EXPECT_EQ(ids_of({.temperature = 1, .top_p = .5}, {3, 3, 3, 3}), (std::set{0, 1}));
}

TEST(Sampler, MinPComparesWithTheLargest) {
  const auto logits = logits_of({.5, .26, .24});
  EXPECT_EQ(ids_of({.temperature = 1, .min_p = .5}, logits), (std::set{0, 1}));
  EXPECT_EQ(ids_of({.temperature = 1, .min_p = .4}, logits), (std::set{0, 1, 2}));
  EXPECT_EQ(ids_of({.temperature = 1, .min_p = 1}, {1, 2, 2}), (std::set{1, 2}));
}

TEST(Sampler, FiltersComeInTheirOrder) {
  const auto logits = logits_of({.4, .3, .2, .1});
  // Temperature first: at 0.25 the largest alone has .754 of the whole.
  EXPECT_EQ(ids_of({.temperature = .25, .top_p = .7}, logits), std::set{0});
  // top_k before top_p: of .4 and .3 the first has .571, of all four it has .4.
  EXPECT_EQ(ids_of({.temperature = 1, .top_k = 2, .top_p = .5}, logits), std::set{0});
  EXPECT_EQ(ids_of({.temperature = 1, .top_p = .5}, logits), (std::set{0, 1}));
  // Temperature before min_p: .3 / .4 squared is .5625.
  EXPECT_EQ(ids_of({.temperature = .5, .min_p = .6}, logits), std::set{0});
  EXPECT_EQ(ids_of({.temperature = 1, .min_p = .6}, logits), (std::set{0, 1}));
}

TEST(Sampler, NeverTakesWhatIsForbidden) {
  EXPECT_EQ(ids_of({.temperature = 1e6}, {-kInfinity, 0, -kInfinity, 1}), (std::set{1, 3}));
  EXPECT_EQ(ids_of({.temperature = 1e6, .top_k = 3}, {-kInfinity, 0, 1}), (std::set{1, 2}));
}

TEST(Sampler, OneSeedIsOneRowOfTokens) {
  std::vector<float> logits;
  for (int i = 0; i < 1000; ++i) logits.push_back(static_cast<float>((i * 37) % 101) / 16);
  const auto row = [&](std::uint64_t seed) {
    Sampler sampler = sampler_of({.temperature = 1, .top_k = 500, .top_p = .9, .seed = seed});
    std::vector<int> ids;
    for (int i = 0; i < 12; ++i) ids.push_back(sampler.choose(logits).value());
    return ids;
  };
  // From a program of its own in another language; any machine must find the same.
  EXPECT_EQ(row(7), (std::vector<int>{513, 232, 922, 158, 846, 827, 169, 281, 969, 917, 464, 62}));
  EXPECT_NE(row(7), row(8));
}

TEST(Sampler, ACopyGoesOnFromTheSameState) {
  const std::vector<float> logits(50, 0.f);
  Sampler first = sampler_of({.temperature = 1, .seed = 3});
  for (int i = 0; i < 5; ++i) first.choose(logits).value();
  Sampler second = first;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(first.choose(logits).value(), second.choose(logits).value());
  }
}

TEST(Sampler, RefusesLogitsThatAreNone) {
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler = sampler_of({.temperature = temperature, .seed = 4});
    Sampler untouched = sampler;
    const auto nan = sampler.choose(std::vector<float>{0, kNan, 1});
    ASSERT_EQ(nan.code(), ErrorCode::non_finite);
    EXPECT_EQ(nan.error().text, "sampler: logit 1 of 3 is nan");
    EXPECT_EQ(sampler.choose(std::vector<float>{kInfinity}).code(), ErrorCode::non_finite);
    EXPECT_EQ(sampler.choose({}).code(), ErrorCode::invalid_argument);
    EXPECT_EQ(sampler.choose(std::vector<float>{-kInfinity}).code(), ErrorCode::invalid_argument);
    const std::vector<float> logits(1000, 0.f);
    EXPECT_EQ(sampler.choose(logits).value(), untouched.choose(logits).value());
  }
}

TEST(Sampler, RefusesOptionsOutsideTheirRanges) {
  for (const SamplerOptions& options : std::vector<SamplerOptions>{{.temperature = -1},
                                                                   {.temperature = kNan},
                                                                   {.temperature = kInfinity},
                                                                   {.top_k = -1},
                                                                   {.top_p = 0},
                                                                   {.top_p = 1.01},
                                                                   {.top_p = kNan},
                                                                   {.min_p = -.1},
                                                                   {.min_p = 1.1},
                                                                   {.min_p = kNan}}) {
    EXPECT_EQ(Sampler::create(options).code(), ErrorCode::invalid_argument);
  }
}

}  // namespace
}  // namespace quire::model
