// Logits of the default model next to those of Hugging Face transformers in float32 on the same
// file. logits_truth.py made the truth. Four of the twenty texts, or all if QUIRE_TEST_FULL is set;
// sanitizers, which make it slow, get one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "model/model.h"
#include "model/ops.h"
#include "tokenizer_fixture.h"

namespace quire::model {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kEvery = 20;
#else
constexpr std::size_t kEvery = 5;
#endif

// Of all tokens of a text, in one step.
std::vector<float> logits_of(const Model& model, const std::vector<int>& ids) {
  CacheSpec spec = model.cache_spec();
  spec.set_codec("f32", "f32");
  Cache cache = Cache::create(spec).value();
  const Batch batch = Batch().add(cache.open().value().id(), 0, std::ssize(ids));
  Step step = cache.begin(batch).value();
  std::vector<std::int64_t> rows(ids.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<float> logits(ids.size() * static_cast<std::size_t>(model.config().vocabulary));
  model.forward(step, batch, ids, rows, logits.data()).value();
  step.commit().value();
  return logits;
}

TEST(Logits, AreThoseOfTransformers) {
  const auto path = test::default_model();
  if (!path) GTEST_SKIP() << test::kNoModel;
  const std::size_t every = std::getenv("QUIRE_TEST_FULL") != nullptr ? 1 : kEvery;
  const Model model = Model::load(*path, ModelOptions{.weights = WeightForm::f32}).value();
  const auto width = static_cast<std::size_t>(model.config().vocabulary);
  const std::vector<test::Json> texts = test::truth("logits_truth.jsonl");
  ASSERT_EQ(texts.size(), 20u);
  std::size_t positions = 0;
  std::size_t equal = 0;
  double difference = 0;
  std::size_t compared = 0;
  for (std::size_t i = every / 2; i < texts.size(); i += every) {
    const auto ids = texts[i]["ids"].get<std::vector<int>>();
    const std::vector<float> logits = logits_of(model, ids);
    for (std::size_t t = 0; t < ids.size(); ++t) {
      const std::size_t top = argmax({logits.data() + t * width, width});
      equal += top == texts[i]["top"][t].get<std::size_t>();
      ++positions;
    }
    const auto expected = texts[i]["logits"].get<std::vector<double>>();
    std::size_t at = 0;
    for (const std::size_t t : texts[i]["positions"]) {
      for (const std::size_t token : texts[i]["tokens"]) {
        difference += std::abs(logits[t * width + token] - expected.at(at++));
        ++compared;
      }
    }
    EXPECT_EQ(at, expected.size());
  }
  const double share = static_cast<double>(equal) / static_cast<double>(positions);
  const double mean = difference / static_cast<double>(compared);
  EXPECT_EQ(positions, 20 / every * 256);
  EXPECT_GE(share, 0.995);
  EXPECT_LT(mean, 0.002);  // about 3e-5 is what rounding leaves
  std::printf(
      "logits: the same token is likeliest at %.3f of %zu positions, mean difference %.2g\n", share,
      positions, mean);
}

}  // namespace
}  // namespace quire::model
