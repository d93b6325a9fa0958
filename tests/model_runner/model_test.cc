#include "model/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/seed.h"
#include "model/reference_attention.h"
#include "tiny_model.h"

namespace quire::model {
namespace {

using test::TinyModel;
using test::TinySpec;
using Logits = std::vector<std::vector<float>>;

// A file, a model made from it, and the same model in double precision.
struct Subject {
  explicit Subject(TinyModel made) : tiny(std::move(made)), bytes(tiny.writer().bytes()) {}
  Model load() const {
    return Model::load(Gguf::parse(bytes, "tiny").value(), ModelOptions{}).value();
  }
  std::string refusal() const {
    Result<Gguf> file = Gguf::parse(bytes, "tiny");
    if (!file) return file.error().text;
    const Result<Model> model = Model::load(std::move(*file), ModelOptions{});
    return model ? "" : model.error().text;
  }
  TinyModel tiny;
  std::vector<std::byte> bytes;
};

std::vector<int> random_tokens(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int> tokens(count);
  for (int& token : tokens) token = static_cast<int>(random() % 40);
  return tokens;
}

Cache f32_cache(const Model& model) {
  CacheSpec spec = model.cache_spec();
  spec.set_codec("f32", "f32");
  return Cache::create(spec).value();
}

// Appends tokens to a sequence in one step; returns the logits of every one.
Logits append(const Model& model, Cache& cache, const Sequence& sequence,
              std::span<const int> tokens, const Attention& attention = {}) {
  const std::int64_t first = sequence.next_position().value();
  const Batch batch = Batch().add(sequence.id(), first, std::ssize(tokens));
  Step step = cache.begin(batch).value();
  std::vector<std::int64_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  const auto width = static_cast<std::size_t>(model.config().vocabulary);
  std::vector<float> logits(tokens.size() * width);
  model.forward(step, batch, tokens, rows, logits.data(), attention).value();
  step.commit().value();
  Logits result;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    result.emplace_back(logits.begin() + static_cast<std::ptrdiff_t>(i * width),
                        logits.begin() + static_cast<std::ptrdiff_t>((i + 1) * width));
  }
  return result;
}

template <typename A, typename B>
double farthest(const std::vector<A>& a, const std::vector<B>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].size(), b[i].size());
    for (std::size_t j = 0; j < a[i].size(); ++j) {
      most = std::max(most, std::abs(static_cast<double>(a[i][j]) - b[i][j]));
    }
  }
  return most;
}

// Logits are of the order of ten; f32 through a few layers leaves about 1e-5 of that.
constexpr double kClose = 5e-4;

void expect_agreement(const TinyModel& tiny, std::size_t count = 100) {
  const Subject subject(tiny);
  const Model model = subject.load();
  Cache cache = f32_cache(model);
  const std::vector<int> tokens = random_tokens(count, 11);
  const Logits found = append(model, cache, cache.open().value(), tokens);
  const auto expected = subject.tiny.logits(tokens);
  EXPECT_LT(farthest(found, expected), kClose);
  // A difference that means something: logits themselves are far from zero.
  EXPECT_GT(farthest(found, Logits(count, std::vector<float>(40))), 1.0);
}

TEST(Model, LlamaAgreesWithDoubles) {
  expect_agreement(TinyModel({}, 1));
  expect_agreement(TinyModel({.kv_heads = 4, .has_own_output = true}, 2));
  expect_agreement(TinyModel({.heads = 6, .kv_heads = 1, .dim = 16, .stores_f16 = true}, 3));
}

TEST(Model, MistralsWindowAgreesWithDoubles) {
  TinyModel tiny({.windows = {7, 7, 7}}, 4);
  tiny.writer().add("llama.attention.sliding_window", std::uint32_t{7});
  expect_agreement(tiny);
}

TEST(Model, ScaledRotationsAgreeWithDoubles) {
  TinyModel linear({.rope_scale = 0.25}, 5);
  linear.writer().add("llama.rope.scaling.type", "linear");
  linear.writer().add("llama.rope.scaling.factor", 4.0f);
  expect_agreement(linear);

  TinyModel factors({.rope_factors = {1, 2, 4, 8}}, 6);
  factors.writer().add_f32("rope_freqs.weight", {4}, {1, 2, 4, 8});
  expect_agreement(factors);

  // dim 8, base 10000, original context 64: pairs that turn 32 times and once are
  // 8 ln(64 / 64 pi) / (2 ln 10000) < 0 and 8 ln(64 / 2 pi) / (2 ln 10000) = 1.008, so low is 0
  // and high 2. Pair 0 is kept, pair 1 is halfway, pairs 2 and 3 are slowed by 4.
  TinyModel yarn(
      {.rope_factors = {1, 1 / (0.5 / 4 + 0.5), 4, 4}, .rope_magnitude = 1 + 0.1 * std::log(4.0)},
      7);
  yarn.writer().add("llama.rope.scaling.type", "yarn");
  yarn.writer().add("llama.rope.scaling.factor", 4.0f);
  yarn.writer().add("llama.rope.scaling.original_context_length", std::uint32_t{64});
  expect_agreement(yarn);
}

TEST(Model, QwensAgreeWithDoubles) {
  expect_agreement(
      TinyModel({.architecture = "qwen2", .is_interleaved = false, .has_bias = true}, 8));
  expect_agreement(TinyModel(
      {.architecture = "qwen3", .dim = 16, .is_interleaved = false, .has_qk_norm = true}, 9));
}

TinyModel gemma2() {
  TinyModel tiny({.architecture = "gemma2",
                  .is_interleaved = false,
                  .has_after_norm = true,
                  .is_gelu = true,
                  .embedding_scale = std::sqrt(32.0),
                  .attention_cap = 2,
                  .output_cap = 10,
                  .windows = {9, 0, 9}},
                 10);
  tiny.writer().add("gemma2.attention.sliding_window", std::uint32_t{9});
  tiny.writer().add("gemma2.attn_logit_softcapping", 2.0f);
  tiny.writer().add("gemma2.final_logit_softcapping", 10.0f);
  return tiny;
}

TEST(Model, GemmasAgreeWithDoubles) {
  expect_agreement(TinyModel({.architecture = "gemma",
                              .dim = 16,
                              .is_interleaved = false,
                              .is_gelu = true,
                              .embedding_scale = std::sqrt(32.0)},
                             11));
  expect_agreement(gemma2());
  TinyModel gemma3({.architecture = "gemma3",
                    .layers = 7,
                    .rope_base = 1000000,
                    .rope_scale = 0.125,
                    .is_interleaved = false,
                    .has_qk_norm = true,
                    .has_after_norm = true,
                    .is_gelu = true,
                    .embedding_scale = std::sqrt(32.0),
                    .windows = {9, 9, 9, 9, 9, 0, 9},
                    .rope_bases = {1e4, 1e4, 1e4, 1e4, 1e4, 1e6, 1e4}},
                   12);
  gemma3.writer().add("gemma3.attention.sliding_window", std::uint32_t{9});
  gemma3.writer().add("gemma3.rope.scaling.type", "linear");
  gemma3.writer().add("gemma3.rope.scaling.factor", 8.0f);
  expect_agreement(gemma3);
}

TEST(Model, APromptInPiecesIsThePromptInOne) {
  const Subject subject(TinyModel({}, 13));
  const Model model = subject.load();
  const std::vector<int> tokens = random_tokens(150, 14);
  for (const char* codec : {"f32", "int8"}) {
    CacheSpec spec = model.cache_spec();
    spec.set_codec(codec, codec);
    Cache cache = Cache::create(spec).value();
    const Logits whole = append(model, cache, cache.open().value(), tokens);
    std::mt19937_64 random(quire::test::announce_seed());
    const Sequence sequence = cache.open().value();
    Logits pieces;
    for (std::size_t begin = 0; begin < tokens.size();) {
      const std::size_t count = std::min<std::size_t>(1 + random() % 70, tokens.size() - begin);
      const Logits part = append(model, cache, sequence, std::span(tokens).subspan(begin, count));
      pieces.insert(pieces.end(), part.begin(), part.end());
      begin += count;
    }
    // Attention is equal to the bit; matrix products round differently for other row counts, and
    // int8 may then round a key to the next code.
    EXPECT_LT(farthest(whole, pieces), codec == std::string("f32") ? kClose : 0.05);
  }
}

TEST(Model, ABatchGivesEachSequenceWhatItGetsAlone) {
  const Subject subject(TinyModel({}, 15));
  const Model model = subject.load();
  Cache cache = f32_cache(model);
  const std::vector<int> tokens = random_tokens(130, 16);
  // Three sequences of different lengths, then one step that gives them 1, 5 and 2 tokens, mixed.
  const std::size_t lengths[] = {3, 70, 100};
  const std::size_t added[] = {1, 5, 2};
  std::vector<Sequence> sequences;
  Batch batch;
  std::vector<int> batch_tokens;
  std::vector<std::pair<std::size_t, std::size_t>> places;  // sequence, index
  for (std::size_t s = 0; s < 3; ++s) {
    sequences.push_back(cache.open().value());
    append(model, cache, sequences[s], std::span(tokens).first(lengths[s]));
  }
  for (std::size_t i = 0; i < 5; ++i) {
    for (std::size_t s = 0; s < 3; ++s) {
      if (i >= added[s]) continue;
      batch.add(sequences[s].id(), static_cast<std::int64_t>(lengths[s] + i), 1);
      batch_tokens.push_back(tokens[lengths[s] + i]);
      places.emplace_back(s, i);
    }
  }
  Step step = cache.begin(batch).value();
  // Rows in another order than the batch, and not all of them.
  const std::vector<std::int64_t> rows = {7, 0, 1, 3};
  std::vector<float> logits(rows.size() * 40);
  model.forward(step, batch, batch_tokens, rows, logits.data()).value();
  step.commit().value();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto [s, i] = places[static_cast<std::size_t>(rows[r])];
    const auto alone =
        append(model, cache, cache.open().value(), std::span(tokens).first(lengths[s] + i + 1));
    const auto at = logits.begin() + static_cast<std::ptrdiff_t>(r * 40);
    EXPECT_LT(farthest(Logits{alone.back()}, Logits{{at, at + 40}}), kClose);
  }
}

TEST(Model, ReferenceAttentionReadsWhatAttendReads) {
  for (const TinyModel& tiny : {TinyModel({}, 17), gemma2()}) {
    const Subject subject(tiny);
    const Model model = subject.load();
    const std::vector<int> tokens = random_tokens(200, 18);
    for (const std::int64_t tail : {0, 70}) {
      CacheSpec spec = model.cache_spec();
      spec.set_codec("fp8_e5m2",
                     "fp8_e5m2");  // coarse: a page in the wrong form is off by 0.1 and more
      spec.exact_tail = tail;
      Cache cache = Cache::create(spec).value();
      const Sequence sequence = cache.open().value();
      const Attention reference = reference_attention(cache);
      double difference = 0;
      // Each step is run twice from the same past: by attend, dropped, and by the reference. So
      // rounding in one step does not grow in the next.
      for (std::size_t begin = 0; begin < tokens.size();) {
        const auto end = static_cast<std::size_t>(std::min<std::int64_t>(
            reference_step_end(spec, static_cast<std::int64_t>(begin)), std::ssize(tokens)));
        const auto part = std::span(tokens).subspan(begin, end - begin);
        const Sequence other = sequence.fork().value();
        const Logits attended = append(model, cache, other, part);
        other.close().value();
        const Logits expected = append(model, cache, sequence, part, reference);
        EXPECT_LT(farthest(attended, expected), 0.02) << "tokens " << begin << " to " << end;
        begin = end;
        difference += farthest(attended, expected);
      }
      EXPECT_GT(difference, 0);  // they are two computations indeed
    }
  }
}

TEST(Model, ReferenceStepsEndWhereTheFormOfAPageChanges) {
  CacheSpec spec;
  EXPECT_EQ(reference_step_end(spec, 0), 64);
  EXPECT_EQ(reference_step_end(spec, 63), 64);
  EXPECT_EQ(reference_step_end(spec, 64), 128);
  spec.exact_tail = 70;
  EXPECT_EQ(reference_step_end(spec, 0), 134);
  EXPECT_EQ(reference_step_end(spec, 133), 134);
  EXPECT_EQ(reference_step_end(spec, 134), 198);
}

TEST(Model, TheCacheSpecHasTheModelsRules) {
  const Subject subject(gemma2());
  const CacheSpec spec = subject.load().cache_spec();
  ASSERT_EQ(spec.layers.size(), 3u);
  EXPECT_EQ(spec.layers[0].pattern, Pattern::window(9));
  EXPECT_EQ(spec.layers[1].pattern, Pattern::causal());
  EXPECT_EQ(spec.layers[0].kv_heads, 2);
  EXPECT_EQ(spec.layers[0].query_heads, 4);
  EXPECT_EQ(spec.layers[0].key_dim, 8);
  EXPECT_EQ(spec.layers[0].soft_cap, 2.0f);
  EXPECT_FLOAT_EQ(spec.layers[0].scale.value(), 1 / std::sqrt(8.0f));
  EXPECT_EQ(spec.layers[0].rotation.rope.pairs, Rope::Pairs::halves);
  EXPECT_EQ(spec.threads, 1);
}

TEST(Model, PartsAreTheWhole) {
  const Subject subject(TinyModel({}, 20));
  const Model model = subject.load();
  const std::vector<int> tokens = random_tokens(30, 21);
  Cache cache = f32_cache(model);
  const Logits whole = append(model, cache, cache.open().value(), tokens);

  const Batch batch = Batch().add(cache.open().value().id(), 0, 30);
  Step step = cache.begin(batch).value();
  std::vector<float> stream = model.embed(tokens).value();
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_FALSE(step.commit());  // layers are missing
    model.run_layers(step, batch, layer, layer + 1, stream).value();
  }
  std::vector<float> logits(2 * 40);
  const std::vector<std::int64_t> rows = {29, 7};
  model.predict(stream, rows, logits.data()).value();
  step.commit().value();
  // Products of two rows may round as those of thirty do not.
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_NEAR(logits[i], whole[29][i], 1e-4);
    EXPECT_NEAR(logits[40 + i], whole[7][i], 1e-4);
  }

  Step other = cache.begin(Batch().add(cache.open().value().id(), 0, 30)).value();
  EXPECT_FALSE(model.run_layers(other, batch, 0, 4, stream));
  EXPECT_FALSE(model.run_layers(other, batch, 2, 1, stream));
  EXPECT_FALSE(model.run_layers(other, batch, -1, 1, stream));
  stream.pop_back();
  EXPECT_FALSE(model.run_layers(other, batch, 0, 1, stream));
  EXPECT_FALSE(model.predict(stream, rows, logits.data()));  // 29 whole rows
}

TEST(Model, BadCallsAreRefused) {
  const Subject subject(TinyModel({}, 19));
  const Model model = subject.load();
  Cache cache = f32_cache(model);
  const Sequence sequence = cache.open().value();
  const Batch batch = Batch().add(sequence.id(), 0, 2);
  Step step = cache.begin(batch).value();
  std::vector<float> logits(80);
  const auto expect = [&](const std::vector<int>& tokens, const std::vector<std::int64_t>& rows,
                          const std::string& part) {
    const Result<void> result = model.forward(step, batch, tokens, rows, logits.data());
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().text.find(part), std::string::npos) << result.error().text;
  };
  expect({1}, {0}, "1 tokens for a batch of 2");
  expect({1, 40}, {0}, "token 1 is 40, the vocabulary has 40");
  expect({-1, 0}, {0}, "token 0 is -1");
  expect({1, 2}, {2}, "row 2 of a batch of 2");
  expect({1, 2}, {-1}, "row -1");
  const std::vector<int> tokens = {1, 2};
  model.forward(step, batch, tokens, {}, nullptr).value();  // the step was still as new
  step.commit().value();
}

TEST(Model, BadFilesAreRefusedByName) {
  const auto expect = [](TinyModel tiny, const std::string& part) {
    const std::string text = Subject(std::move(tiny)).refusal();
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(TinyModel({.architecture = "mamba"}, 1), "architecture \"mamba\"");
  expect(TinyModel({.heads = 4, .kv_heads = 3}, 1), "4 query heads are no multiple of 3");
  // A file says that there are q and k norms, biases of the right size, an own output.
  expect(TinyModel({.architecture = "qwen3", .is_interleaved = false}, 1),
         "no tensor blk.0.attn_q_norm.weight");
  const auto with = [](const std::string& key, auto value) {
    TinyModel tiny({}, 1);
    tiny.writer().add("llama." + key, value);
    return tiny;
  };
  expect(with("expert_count", std::uint32_t{8}), "8 experts");
  expect(with("attention.key_length", std::uint32_t{16}), "tensor blk.0.attn_q.weight is 32 x 32");
  expect(with("rope.scaling.type", "longrope"), "rotary scaling \"longrope\"");
  expect(with("rope.scaling.factor", 0.0f), "rope.scaling.factor is 0");
  expect(with("rope.dimension_count", std::uint32_t{7}), "odd number");
  expect(with("rope.dimension_count", std::uint32_t{64}), "allowed is 1 to 8");
  TinyModel bias({}, 1);
  bias.writer().add_f32("blk.1.attn_k.bias", {3}, {1, 2, 3});
  expect(bias, "tensor blk.1.attn_k.bias is 3, the model's sizes make it 16");
  TinyModel factors({}, 1);
  factors.writer().add_f32("rope_freqs.weight", {4}, {1, 1, 1, 0});
  expect(factors, "a factor of 0");
  EXPECT_NE(Model::load("/nonexistent.gguf", ModelOptions{}).error().text.find("cannot be opened"),
            std::string::npos);
}

TEST(Model, DamagedModelsDoNoHarm) {
  std::mt19937_64 random(quire::test::announce_seed());
  const Subject subject(gemma2());
  const std::size_t header = subject.tiny.writer().header_bytes();
  int loaded = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<std::byte> bytes = subject.bytes;
    bytes[random() % header] = static_cast<std::byte>(random());
    // Every other round strikes the weights as well.
    if (round % 2 == 0) bytes[header + random() % (bytes.size() - header)] = std::byte{0xff};
    Result<Gguf> file = Gguf::parse(bytes, "damaged");
    if (!file) continue;
    const Result<Model> model = Model::load(std::move(*file), ModelOptions{});
    if (!model) continue;
    ++loaded;
    Result<Cache> cache = Cache::create(model->cache_spec());
    if (!cache) continue;
    const Batch batch = Batch().add(cache->open().value().id(), 0, 3);
    Step step = cache->begin(batch).value();
    const std::vector<int> tokens = {1, 2, 3};
    const std::vector<std::int64_t> rows = {2};
    std::vector<float> logits(static_cast<std::size_t>(model->config().vocabulary));
    (void)model->forward(step, batch, tokens, rows, logits.data());
  }
  EXPECT_GT(loaded, 0);
}

}  // namespace
}  // namespace quire::model
