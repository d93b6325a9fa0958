#include "model/evaluate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tiny_model.h"

namespace quire::model {
namespace {

using test::TinyModel;

constexpr std::int64_t kContext = 200;

class Evaluate : public ::testing::Test {
 protected:
  Evaluate() : bytes_(TinyModel({}, 21).writer().bytes()) {
    std::mt19937 random(22);
    for (int i = 0; i < 2 * kContext + 50; ++i) tokens_.push_back(static_cast<int>(random() % 40));
  }

  Model load() const { return Model::load(Gguf::parse(bytes_, "tiny").value(), {}).value(); }

  // Log-probabilities of the second half of a chunk, computed token by token.
  static std::vector<std::vector<double>> decode(const Model& model, const std::string& codec,
                                                 std::span<const int> chunk) {
    CacheSpec spec = model.cache_spec();
    spec.set_codec(codec, codec);
    Cache cache = Cache::create(spec).value();
    const Sequence sequence = cache.open().value();
    std::vector<std::vector<double>> result;
    for (std::int64_t position = 0; position + 1 < kContext; ++position) {
      const Batch batch = Batch().add(sequence.id(), position, 1);
      Step step = cache.begin(batch).value();
      std::vector<float> logits(40);
      const std::vector<std::int64_t> rows = {0};
      model
          .forward(step, batch, chunk.subspan(static_cast<std::size_t>(position), 1), rows,
                   logits.data())
          .value();
      step.commit().value();
      if (position < kContext / 2 - 1) continue;
      double sum = 0;
      for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
      result.emplace_back();
      for (const float logit : logits) result.back().push_back(logit - std::log(sum));
    }
    return result;
  }

  std::vector<std::byte> bytes_;
  std::vector<int> tokens_;
};

TEST_F(Evaluate, NumbersAreThoseOfDecodingOneByOne) {
  const Model model = load();
  EvalOptions options;
  options.codecs = {{"f16", {{"f16", "f16"}}}, {"coarse", {{"fp8_e5m2", "fp8_e5m2"}}}};
  options.context = kContext;
  options.chunks = 9;
  options.step_tokens = 64;
  std::vector<std::string> passes;
  options.progress = [&](std::int64_t chunk, std::int64_t chunks, const std::string& codec) {
    passes.push_back(std::to_string(chunk) + "/" + std::to_string(chunks) + " " + codec);
  };
  const Evaluation evaluation = evaluate(model, tokens_, options).value();
  EXPECT_EQ(passes, (std::vector<std::string>{"0/2 f16", "0/2 coarse", "1/2 f16", "1/2 coarse"}));
  EXPECT_EQ(evaluation.chunks, 2);
  EXPECT_EQ(evaluation.predictions, kContext);
  ASSERT_EQ(evaluation.rows.size(), 2u);

  std::vector<double> losses[2];
  std::vector<double> divergences;
  double agreed = 0;
  for (std::size_t chunk = 0; chunk < 2; ++chunk) {
    const auto text = std::span(tokens_).subspan(chunk * kContext, kContext);
    const auto exact = decode(model, "f16", text);
    const auto coded = decode(model, "fp8_e5m2", text);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const auto next = static_cast<std::size_t>(text[kContext / 2 + i]);
      losses[0].push_back(-exact[i][next]);
      losses[1].push_back(-coded[i][next]);
      double divergence = 0;
      for (std::size_t j = 0; j < 40; ++j) {
        divergence += std::exp(exact[i][j]) * (exact[i][j] - coded[i][j]);
      }
      divergences.push_back(divergence);
      const auto top = [](const std::vector<double>& row) {
        return std::max_element(row.begin(), row.end()) - row.begin();
      };
      agreed += top(exact[i]) == top(coded[i]);
    }
  }
  const auto mean = [](const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
  };
  const auto count = static_cast<double>(divergences.size());
  ASSERT_EQ(divergences.size(), 200u);
  double variance = 0;
  for (std::size_t i = 0; i < divergences.size(); ++i) {
    const double off = losses[1][i] - losses[0][i] - (mean(losses[1]) - mean(losses[0]));
    variance += off * off / (count - 1);
  }
  std::sort(divergences.begin(), divergences.end());

  const EvalRow& exact = evaluation.rows[0];
  EXPECT_EQ(exact.codec, "f16");
  EXPECT_NEAR(exact.ppl / std::exp(mean(losses[0])), 1, 1e-3);
  EXPECT_EQ(exact.ppl_delta, 0);
  EXPECT_EQ(exact.ppl_delta_se, 0);
  EXPECT_EQ(exact.kld_mean, 0);
  EXPECT_EQ(exact.top1, 1);
  EXPECT_EQ(exact.bits_per_value, 16);

  const EvalRow& coarse = evaluation.rows[1];
  const double ratio = std::exp(mean(losses[1]) - mean(losses[0]));
  EXPECT_EQ(coarse.codec, "coarse");
  EXPECT_NEAR(coarse.ppl / std::exp(mean(losses[1])), 1, 1e-3);
  EXPECT_NEAR(coarse.ppl_delta, ratio - 1, 1e-3);
  EXPECT_NEAR(coarse.ppl_delta_se / (ratio * std::sqrt(variance / count)), 1, 0.02);
  EXPECT_NEAR(coarse.kld_mean / mean(divergences), 1, 0.02);
  EXPECT_NEAR(coarse.kld_p99 / divergences[197], 1, 0.02);  // 198 of 200 are at most that
  EXPECT_NEAR(coarse.kld_p999 / divergences[199], 1, 0.02);
  EXPECT_NEAR(coarse.top1, agreed / count, 0.011);
  EXPECT_LT(coarse.top1, 1);
  EXPECT_EQ(coarse.bits_per_value, 8);
  for (const EvalRow& row : evaluation.rows) EXPECT_GT(row.tokens_per_second, 0);
}

TEST_F(Evaluate, LayersMayHaveCodecsOfTheirOwn) {
  const Model model = load();
  EvalOptions options;
  const CodecPair exact{"f16", "f16"};
  const CodecPair coarse{"fp8_e5m2", "fp8_e5m2"};
  options.codecs = {{"all", {coarse}},
                    {"each", {{}, {coarse, coarse, coarse}}},
                    {"none", {{}, {exact, exact, exact}}},
                    {"one", {{}, {exact, {"f16", "fp8_e5m2"}, exact}}}};
  options.context = kContext;
  const std::vector<EvalRow> rows = evaluate(model, tokens_, options).value().rows;
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[2].kld_mean, rows[1].kld_mean);
  EXPECT_EQ(rows[2].bits_per_value, 8);
  EXPECT_EQ(rows[3].kld_mean, 0);
  EXPECT_EQ(rows[3].bits_per_value, 16);
  EXPECT_GT(rows[4].kld_mean, 0);
  EXPECT_LT(rows[4].kld_mean, rows[1].kld_mean);
  EXPECT_DOUBLE_EQ(rows[4].bits_per_value, 16 - 8.0 / 6);
}

TEST_F(Evaluate, BytesAreThoseOfTheCacheAtFullContext) {
  const Model model = load();
  EvalOptions options;
  options.context = kContext;
  const Evaluation evaluation = evaluate(model, tokens_, options).value();
  // 3 layers of 2 heads, 8 channels, keys and values, f16: 192 bytes per token. Three pages are
  // sealed, and the open one has room for 64 rows.
  const double pages = 4 * 64 * 192.0 / kContext;
  EXPECT_GE(evaluation.rows[0].bytes_per_token, pages);
  EXPECT_LE(evaluation.rows[0].bytes_per_token, pages * 1.5);
}

TEST_F(Evaluate, ReferenceAttentionMeasuresTheSame) {
  const Model model = load();
  EvalOptions options;
  options.codecs = {{"coarse", {{"fp8_e5m2", "fp8_e5m2"}}}};
  options.context = kContext;
  const EvalRow attended = evaluate(model, tokens_, options).value().rows[1];
  options.reference_attention = true;
  const EvalRow reference = evaluate(model, tokens_, options).value().rows[1];
  EXPECT_NEAR(reference.ppl / attended.ppl, 1, 1e-3);
  EXPECT_NEAR(reference.kld_mean / attended.kld_mean, 1, 0.05);
}

TEST_F(Evaluate, BadOptionsAreRefused) {
  const Model model = load();
  const auto expect = [&](const EvalOptions& options, const std::string& part) {
    const Result<Evaluation> result = evaluate(model, tokens_, options);
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().text.find(part), std::string::npos) << result.error().text;
  };
  EvalOptions options;
  options.context = 451;
  expect(options, "a text of 450 tokens has no chunk of 451");
  options.context = 3;
  expect(options, "context 3 (at least 4)");
  options.context = 16;
  options.chunks = 0;
  expect(options, "0 chunks");
  options.chunks = 1;
  options.codecs = {{"odd", {{"f17", "f16"}}}};
  expect(options, "f17");
  options.codecs = {{"short", {{}, std::vector<CodecPair>(2)}}};
  expect(options, "codecs of 2 layers were given, the model has 3");
  options.codecs = {{"blocks", {{}, {{"f16", "f16"}, {"q4_0", "f16"}, {"f16", "f16"}}}}};
  expect(options, "layer 1: q4_0 takes no keys of 8 channels");
}

}  // namespace
}  // namespace quire::model
