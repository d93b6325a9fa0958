#include "model/tune.h"

#include <gtest/gtest.h>

#include <random>

#include "model/evaluate.h"
#include "tiny_model.h"

namespace quire::model {
namespace {

using test::TinyModel;

constexpr std::int64_t kContext = 160;

class Tune : public ::testing::Test {
 protected:
  Tune() : bytes_(TinyModel({.dim = 32}, 41).writer().bytes()) {
    std::mt19937 random(42);
    for (std::int64_t i = 0; i < 3 * kContext + 20; ++i) {
      tokens_.push_back(static_cast<int>(random() % 40));
    }
    options_.context = kContext;
  }

  Model load() const { return Model::load(Gguf::parse(bytes_, "tiny").value(), {}).value(); }
  Tuning tuned(const Model& model, const Budget& budget) {
    options_.budget = budget;
    return tune(model, tokens_, options_).value();
  }
  EvalRow measured(const Model& model, const Assignment& assignment) const {
    EvalOptions options;
    options.codecs = {{"tuned", assignment}};
    options.context = kContext;
    options.chunks = options_.chunks;
    return evaluate(model, tokens_, options).value().rows[1];
  }

  std::vector<std::byte> bytes_;
  std::vector<int> tokens_;
  TuneOptions options_;
};

TEST_F(Tune, BitsAreAtMostTheBudgetAndThoseOfEvaluate) {
  const Model model = load();
  for (const double bits : {2.5, 4.0, 6.3, 16.0}) {
    const Tuning tuning = tuned(model, {.bits = bits});
    EXPECT_LE(tuning.bits_per_value, bits);
    EXPECT_GE(tuning.bits_per_value, bits - 0.3);
    ASSERT_EQ(tuning.layers.size(), 3u);
    double kld = 0;
    double sum = 0;
    for (const TunedLayer& layer : tuning.layers) {
      kld += layer.key.kld + layer.value.kld;
      sum += layer.key.bits + layer.value.bits;
      EXPECT_GT(layer.key.sensitivity, 0);
      EXPECT_GT(layer.value.sensitivity, 0);
    }
    EXPECT_DOUBLE_EQ(tuning.kld, kld);
    EXPECT_NEAR(tuning.bits_per_value, sum / 6, 1e-9);
    EXPECT_DOUBLE_EQ(measured(model, tuning.assignment()).bits_per_value, tuning.bits_per_value);
  }
}

TEST_F(Tune, MoreBitsLoseLess) {
  const Model model = load();
  double before = 1e9;
  for (const double bits : {3.0, 4.0, 5.0, 6.0}) {
    const double kld = tuned(model, {.bits = bits}).kld;
    EXPECT_LT(kld, before);
    before = kld;
  }
  EXPECT_EQ(tuned(model, {.bits = 16}).kld, 0);
}

// Nothing random: the text and the model are fixed.
TEST_F(Tune, ItsDivergenceIsNearThePredictionAndBelowThatOfUniformPairs) {
  const Model model = load();
  const Tuning tuning = tuned(model, {.bits = 4.5});
  const double found = measured(model, tuning.assignment()).kld_mean;
  EXPECT_GT(found, 0.5 * tuning.kld);
  EXPECT_LT(found, 2 * tuning.kld);
  for (const char* pair : {"dual3/tq4", "tq4", "tq5/tq3", "q4_0"}) {
    const EvalRow uniform = measured(model, find_assignment(pair).value());
    EXPECT_LE(uniform.bits_per_value, 4.625) << pair;
    EXPECT_LT(found, uniform.kld_mean) << pair;
  }
}

TEST_F(Tune, ADivergenceIsMetWithTheFewestBits) {
  const Model model = load();
  const double aim = tuned(model, {.bits = 4.5}).kld;
  const Tuning tuning = tuned(model, {.kld = aim});
  EXPECT_LE(tuning.kld, aim);
  EXPECT_LE(tuning.bits_per_value, 4.6);
  EXPECT_GE(tuning.bits_per_value, 4.2);
  const Tuning exact = tuned(model, {.kld = 0});
  EXPECT_EQ(exact.bits_per_value, 16);
  EXPECT_EQ(exact.assignment().layers, std::vector<CodecPair>(3));
  const Tuning any = tuned(model, {.kld = 100});
  for (const TunedLayer& layer : any.layers) {
    EXPECT_EQ(layer.key.codec, "tq2");
    EXPECT_EQ(layer.value.codec, "tq2");
  }
}

TEST_F(Tune, ProgressCountsEveryMeasurement) {
  const Model model = load();
  std::vector<std::string> told;
  options_.progress = [&](const std::string& what, std::int64_t done, std::int64_t all) {
    EXPECT_EQ(done, static_cast<std::int64_t>(told.size()));
    EXPECT_EQ(all, 14);  // two chunks of one pass in f16 and six with one side coded
    told.push_back(what);
  };
  const Tuning tuning = tuned(model, {.bits = 4});
  ASSERT_EQ(told.size(), 14u);
  EXPECT_EQ(told[0], "chunk 1 of 2, f16");
  EXPECT_EQ(told[2].find("chunk 1 of 2, layer 0 values "), 0u) << told[2];
  EXPECT_EQ(told[12].find("chunk 2 of 2, layer 2 keys "), 0u) << told[12];
  EXPECT_EQ(tuning.chunks, 2);
  EXPECT_EQ(tuning.predictions, kContext);
  options_.progress = {};
  options_.chunks = 9;
  EXPECT_EQ(tuned(model, {.bits = 4}).chunks, 3);
}

TEST_F(Tune, BadOptionsAreRefused) {
  const Model model = load();
  const auto expect = [&](const TuneOptions& options, const std::string& part) {
    const Result<Tuning> result = tune(model, tokens_, options);
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().text.find(part), std::string::npos) << result.error().text;
  };
  expect(options_, "either bits or a divergence");
  options_.budget = {.bits = 4, .kld = 1};
  expect(options_, "either bits or a divergence");
  options_.budget = {.bits = 2.4};
  expect(options_, "2.4 bits per value, the smallest codecs take 2.5");
  options_.budget = {.kld = -0.1};
  expect(options_, "a divergence of -0.1");
  options_.budget = {.bits = 4};
  options_.context = 501;
  expect(options_, "2 chunks of 501 tokens, the text has 500 tokens");
  options_.chunks = 0;
  options_.context = kContext;
  expect(options_, "0 chunks");
  options_.context = 127;
  expect(options_, "chunks of 127 tokens, at least two pages of 64 are needed");
}

}  // namespace
}  // namespace quire::model
