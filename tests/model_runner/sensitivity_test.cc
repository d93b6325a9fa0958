#include "model/sensitivity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "model/evaluate.h"
#include "tiny_model.h"

namespace quire::model {
namespace {

using test::TinyModel;

constexpr std::int64_t kContext = 192;

class SensitivityTest : public ::testing::Test {
 protected:
  SensitivityTest() : bytes_(TinyModel({.dim = 32}, 31).writer().bytes()) {
    std::mt19937 random(32);
    for (std::int64_t i = 0; i < 2 * kContext; ++i) {
      tokens_.push_back(static_cast<int>(random() % 40));
    }
  }

  Model load() const { return Model::load(Gguf::parse(bytes_, "tiny").value(), {}).value(); }
  std::span<const int> chunk(std::size_t index) const {
    return std::span(tokens_).subspan(index * kContext, kContext);
  }
  static std::size_t find(const Place& place, const std::string& codec) {
    for (std::size_t i = 0; i < place.candidates.size(); ++i) {
      if (place.candidates[i].codec == codec) return i;
    }
    ADD_FAILURE() << codec;
    return 0;
  }

  std::vector<std::byte> bytes_;
  std::vector<int> tokens_;
};

TEST_F(SensitivityTest, PlacesHaveTheCodecsThatTakeTheirSideInFewerBytes) {
  const Model model = load();
  const auto sensitivity = Sensitivity::create(model, kContext).value();
  ASSERT_EQ(sensitivity.places().size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) {
    const Place& place = sensitivity.places()[i];
    EXPECT_EQ(place.layer, static_cast<int>(i / 2));
    EXPECT_EQ(place.side, i % 2 == 0 ? Side::key : Side::value);
    std::vector<std::string> codecs;
    for (const Candidate& candidate : place.candidates) codecs.push_back(candidate.codec);
    std::vector<std::string> expected = {"f16", "fp8_e4m3", "fp8_e5m2", "int8", "tq6",
                                         "tq5", "tq4",      "tq3",      "tq2"};
    if (i % 2 == 0) expected.insert(expected.end(), {"dual6", "dual5", "dual4", "dual3"});
    EXPECT_EQ(codecs, expected);
    EXPECT_EQ(place.page_values, 64u * 2 * 32);
    EXPECT_EQ(place.bits_of(0), 16);
    EXPECT_EQ(place.bits_of(find(place, "int8")), 8.5);  // a scale of 16 bits for 32 channels
    EXPECT_EQ(place.bits_of(find(place, "tq3")), 3.5);
  }
}

// A measured loss is what evaluate finds with that side of that layer coded and all else in f16.
TEST_F(SensitivityTest, LossIsTheDivergenceThatEvaluateFinds) {
  const Model model = load();
  auto sensitivity = Sensitivity::create(model, kContext).value();
  sensitivity.observe(chunk(1)).value();
  for (std::size_t i = 0; i < sensitivity.places().size(); ++i) {
    const Place& place = sensitivity.places()[i];
    const std::string codec = i % 2 == 0 ? "dual3" : "tq2";
    sensitivity.measure(i, find(place, codec)).value();
    ASSERT_EQ(place.measured.size(), 1u);

    Assignment assignment{{}, std::vector<CodecPair>(3)};
    CodecPair& pair = assignment.layers[i / 2];
    (i % 2 == 0 ? pair.key : pair.value) = codec;
    EvalOptions options;
    options.codecs = {{"one side", assignment}};
    options.context = kContext;
    const double expected = evaluate(model, chunk(1), options).value().rows[1].kld_mean;
    EXPECT_GT(expected, 1e-7);
    EXPECT_NEAR(place.measured[0].loss / expected, 1, 0.01) << i;
    EXPECT_NEAR(place.loss_of(place.measured[0].candidate) / expected, 1, 0.01) << i;
  }
}

TEST_F(SensitivityTest, NoiseIsWhatChangesInAttention) {
  const Model model = load();
  auto sensitivity = Sensitivity::create(model, kContext).value();
  sensitivity.observe(chunk(0)).value();

  // The first layer's attention with its values in tq3, and in f16.
  const auto attention_with = [&](const CodecPair& pair) {
    CacheSpec spec = model.cache_spec();
    spec.layers[0].codec = pair;
    Cache cache = Cache::create(spec).value();
    const Batch batch = Batch().add(cache.open().value().id(), 0, kContext);
    Step step = cache.begin(batch).value();
    std::vector<float> mixed;
    const Attention keep = [&](Step& open, int layer, const TensorView& q, const OutputView& out) {
      Result<void> result = open.attend(layer, q, out);
      mixed.assign(out.data, out.data + kContext * 4 * 32);
      return result;
    };
    std::vector<float> stream = model.embed(chunk(0)).value();
    model.run_layers(step, batch, 0, 1, stream, keep).value();
    return mixed;
  };
  const std::vector<float> exact = attention_with({"f16", "f16"});
  const std::vector<float> coded = attention_with({"f16", "tq3"});
  double squares = 0;
  for (std::size_t i = exact.size() / 2; i < exact.size(); ++i) {
    squares += (exact[i] - coded[i]) * (exact[i] - coded[i]);
  }
  const Place& values = sensitivity.places()[1];
  EXPECT_NEAR(values.candidates[find(values, "tq3")].noise * static_cast<double>(exact.size() / 2) /
                  squares,
              1, 1e-3);
  for (const Place& place : sensitivity.places()) {
    EXPECT_EQ(place.candidates[0].noise, 0);
    const auto noise = [&](const char* codec) {
      return place.candidates[find(place, codec)].noise;
    };
    EXPECT_GT(noise("int8"), 0);
    EXPECT_LT(noise("int8"), noise("tq4"));
    EXPECT_LT(noise("tq4"), noise("tq2"));
  }
}

TEST_F(SensitivityTest, NoiseIsTheMeanOfAllChunks) {
  const Model model = load();
  const auto noise_of = [&](const std::vector<std::size_t>& chunks) {
    auto sensitivity = Sensitivity::create(model, kContext).value();
    for (const std::size_t index : chunks) sensitivity.observe(chunk(index)).value();
    const Place& place = sensitivity.places()[2];
    return place.candidates[find(place, "dual4")].noise;
  };
  EXPECT_NE(noise_of({0}), noise_of({1}));
  EXPECT_NEAR(noise_of({0, 1}) / ((noise_of({0}) + noise_of({1})) / 2), 1, 1e-9);
}

TEST(Place, LossFollowsNoiseAndTheNearestMeasurements) {
  Place place;
  place.candidates = {{"f16", 400, 0}, {"fine", 200, 1}, {"middle", 100, 4}, {"coarse", 50, 16}};
  EXPECT_TRUE(std::isinf(place.loss_of(1))) << "nothing is known";
  place.measured = {{2, 4, 0.02}};
  EXPECT_EQ(place.loss_of(0), 0);
  EXPECT_DOUBLE_EQ(place.loss_of(1), 0.005);
  EXPECT_DOUBLE_EQ(place.loss_of(2), 0.02);
  EXPECT_DOUBLE_EQ(place.loss_of(3), 0.08);
  // One more, with three times the loss per noise: half the weight for what is one bit away.
  place.measured.push_back({3, 16, 0.24});
  EXPECT_DOUBLE_EQ(place.loss_of(3), 16 * (0.5 * 0.005 + 0.015) / 1.5);
  EXPECT_DOUBLE_EQ(place.loss_of(2), 4 * (0.005 + 0.5 * 0.015) / 1.5);
  EXPECT_DOUBLE_EQ(place.loss_of(1), (0.5 * 0.005 + 0.2 * 0.015) / 0.7);
}

TEST_F(SensitivityTest, BadCallsAreRefused) {
  const Model model = load();
  EXPECT_FALSE(Sensitivity::create(model, 127));  // some predictions would read no coded page
  EXPECT_TRUE(Sensitivity::create(model, 128));
  auto sensitivity = Sensitivity::create(model, kContext).value();
  EXPECT_FALSE(sensitivity.measure(0, 1));  // no chunk yet
  EXPECT_FALSE(sensitivity.observe(chunk(0).first(kContext - 1)));
  std::vector<int> wrong(chunk(0).begin(), chunk(0).end());
  wrong[5] = 40;
  EXPECT_FALSE(sensitivity.observe(wrong));
  EXPECT_FALSE(sensitivity.measure(0, 1));
  sensitivity.observe(chunk(0)).value();
  EXPECT_FALSE(sensitivity.measure(6, 1));
  EXPECT_FALSE(sensitivity.measure(0, 15));
  for (const Place& place : sensitivity.places()) EXPECT_TRUE(place.measured.empty());
}

}  // namespace
}  // namespace quire::model
