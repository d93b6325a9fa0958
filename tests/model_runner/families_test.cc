// Tiny random models of every family next to Hugging Face transformers on the same files.
// families_truth.py made both. Where model_test.cc compares with our own reading of an
// architecture, this is somebody else's: the order of rotary channels, windows, norms, scales,
// caps.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "model/model.h"
#include "tokenizer_fixture.h"

namespace quire::model {
namespace {

using Rows = std::vector<std::vector<float>>;

// Logits of some positions of a text that comes in steps of `step_tokens`.
Rows logits_of(const Model& model, const std::vector<int>& ids,
               const std::vector<std::int64_t>& positions, std::int64_t step_tokens) {
  CacheSpec spec = model.cache_spec();
  spec.set_codec("f32", "f32");
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  Rows result;
  for (std::int64_t at = 0; at < std::ssize(ids); at += step_tokens) {
    const std::int64_t count = std::min(step_tokens, std::ssize(ids) - at);
    const Batch batch = Batch().add(sequence.id(), at, count);
    Step step = cache.begin(batch).value();
    std::vector<std::int64_t> rows;
    for (const std::int64_t position : positions) {
      if (position >= at && position < at + count) rows.push_back(position - at);
    }
    const auto width = static_cast<std::size_t>(model.config().vocabulary);
    std::vector<float> logits(rows.size() * width);
    const std::span<const int> part(ids.data() + at, static_cast<std::size_t>(count));
    model.forward(step, batch, part, rows, logits.data()).value();
    step.commit().value();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      result.emplace_back(logits.data() + i * width, logits.data() + (i + 1) * width);
    }
  }
  return result;
}

TEST(Families, AreThoseOfTransformers) {
  const std::vector<test::Json> families = test::truth("families_truth.jsonl");
  ASSERT_EQ(families.size(), 11u);
  for (const test::Json& family : families) {
    const auto name = family["name"].get<std::string>();
    SCOPED_TRACE(name);
    const Model model =
        Model::load(std::string(QUIRE_FIXTURES) + "/families/" + name + ".gguf", ModelOptions{})
            .value();
    const auto ids = family["ids"].get<std::vector<int>>();
    const auto positions = family["positions"].get<std::vector<std::int64_t>>();
    const auto expected = family["logits"].get<Rows>();
    for (const std::int64_t step_tokens : {72, 5, 1}) {
      const Rows found = logits_of(model, ids, positions, step_tokens);
      ASSERT_EQ(found.size(), expected.size());
      float farthest = 0;
      float largest = 0;
      for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_EQ(found[i].size(), expected[i].size());
        for (std::size_t j = 0; j < found[i].size(); ++j) {
          farthest = std::max(farthest, std::abs(found[i][j] - expected[i][j]));
          largest = std::max(largest, std::abs(expected[i][j]));
        }
      }
      EXPECT_LT(farthest, 5e-4) << "in steps of " << step_tokens;
      EXPECT_GT(largest, 1);  // so that the bound means something
    }
  }
}

}  // namespace
}  // namespace quire::model
