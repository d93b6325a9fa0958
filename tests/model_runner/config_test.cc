#include "model/config.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/model.h"
#include "model/ops.h"
#include "tiny_model.h"
#include "tokenizer_fixture.h"

namespace quire::model {
namespace {

using quire::test::GgufWriter;
using test::TinyModel;

Result<Config> config_of(const TinyModel& tiny) {
  const std::vector<std::byte> bytes = tiny.writer().bytes();
  return read_config(Gguf::parse(bytes, "tiny").value());
}

TEST(Config, SizesAndDefaultsOfLlama) {
  const Config config = config_of(TinyModel({}, 1)).value();
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.name, "tiny");
  EXPECT_EQ(config.layers.size(), 3u);
  EXPECT_EQ(config.embedding, 32);
  EXPECT_EQ(config.feed_forward, 48);
  EXPECT_EQ(config.query_heads, 4);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.key_dim, 8);
  EXPECT_EQ(config.value_dim, 8);
  EXPECT_EQ(config.vocabulary, 40);
  EXPECT_EQ(config.context, 512);
  EXPECT_FLOAT_EQ(config.norm_epsilon, 1e-5f);
  EXPECT_FLOAT_EQ(config.attention_scale, 1 / std::sqrt(8.0f));
  EXPECT_EQ(config.attention_soft_cap, 0);
  EXPECT_EQ(config.output_soft_cap, 0);
  EXPECT_EQ(config.rotary_magnitude, 1);
  EXPECT_EQ(config.embedding_scale, 1);
  EXPECT_FALSE(config.has_qk_norm || config.has_after_norm || config.is_gelu);
  EXPECT_EQ(config.layers[2].window, 0);
  EXPECT_EQ(config.layers[2].rope.pairs, Rope::Pairs::interleaved);
  EXPECT_EQ(config.layers[2].rope.size, 8);
  EXPECT_EQ(config.layers[2].rope.base, 10000);
}

TEST(Config, OldLinearScalingIsUnderstood) {
  TinyModel tiny({}, 1);
  tiny.writer().add("llama.rope.scale_linear", 4.0f);
  EXPECT_EQ(config_of(tiny).value().layers[0].rope.frequency_scale, 0.25);
}

TEST(Config, HeadsGivenPerLayerMustBeEqual) {
  const auto file = [](const std::vector<std::int32_t>& heads) {
    GgufWriter writer;
    writer.add("general.architecture", "llama");
    for (const char* key : {"block_count", "embedding_length", "feed_forward_length"}) {
      writer.add(std::string("llama.") + key, std::uint32_t{32});
    }
    writer.add("llama.attention.head_count", heads);
    writer.add_f32("token_embd.weight", {32, 2}, std::vector<float>(64));
    return writer.bytes();
  };
  const std::vector<std::byte> equal = file({4, 4});
  EXPECT_EQ(read_config(Gguf::parse(equal, "x").value()).value().kv_heads, 4);
  for (const auto& heads : {std::vector<std::int32_t>{4, 2}, std::vector<std::int32_t>{}}) {
    const std::vector<std::byte> bytes = file(heads);
    const Result<Config> config = read_config(Gguf::parse(bytes, "x").value());
    ASSERT_FALSE(config);
    EXPECT_NE(config.error().text.find("differs between layers"), std::string::npos);
  }
}

TEST(Config, LargestGemmasScaleByTheirShareOfAHead) {
  const Config usual =
      config_of(TinyModel({.architecture = "gemma2", .layers = 2, .dim = 32}, 1)).value();
  EXPECT_FLOAT_EQ(usual.attention_scale, 1 / std::sqrt(32.0f));
  const Config large =
      config_of(TinyModel({.architecture = "gemma2", .layers = 46, .dim = 32}, 1)).value();
  EXPECT_FLOAT_EQ(large.attention_scale, 1 / std::sqrt(8.0f));
  EXPECT_EQ(large.layers[0].window, 4096);
  EXPECT_EQ(large.layers[1].window, 0);
}

GgufWriter vocabulary_file() {
  GgufWriter writer;
  writer.add("tokenizer.ggml.model", "gpt2");
  writer.add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab", "<e>"});
  return writer;
}

Result<Vocabulary> vocabulary_of(const GgufWriter& writer) {
  const std::vector<std::byte> bytes = writer.bytes();
  return read_vocabulary(Gguf::parse(bytes, "v").value());
}

TEST(Config, AVocabularyIsReadWhole) {
  GgufWriter writer = vocabulary_file();
  writer.add("tokenizer.ggml.pre", "smollm");
  writer.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 1, 1, 3});
  writer.add("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  writer.add("tokenizer.ggml.bos_token_id", std::uint32_t{0});
  writer.add("tokenizer.ggml.eos_token_id", std::uint32_t{3});
  writer.add("tokenizer.ggml.eot_token_id", std::uint32_t{2});
  writer.add("tokenizer.ggml.padding_token_id", std::uint32_t{1});
  writer.add_bool("tokenizer.ggml.add_bos_token", true);
  writer.add("tokenizer.chat_template", "{{ x }}");
  const Vocabulary vocabulary = vocabulary_of(writer).value();
  EXPECT_EQ(vocabulary.model, "gpt2");
  EXPECT_EQ(vocabulary.pre, "smollm");
  EXPECT_EQ(vocabulary.tokens, (std::vector<std::string>{"a", "b", "ab", "<e>"}));
  EXPECT_EQ(vocabulary.types, (std::vector<int>{1, 1, 1, 3}));
  EXPECT_EQ(vocabulary.merges, (std::vector<std::string>{"a b"}));
  EXPECT_EQ(vocabulary.bos, 0);
  EXPECT_EQ(vocabulary.eos, 3);
  EXPECT_EQ(vocabulary.eot, 2);
  EXPECT_EQ(vocabulary.pad, 1);
  EXPECT_TRUE(vocabulary.add_bos);
  EXPECT_EQ(vocabulary.chat_template, "{{ x }}");
}

TEST(Config, WhatAVocabularyLeavesOutHasADefault) {
  const Vocabulary vocabulary = vocabulary_of(vocabulary_file()).value();
  EXPECT_EQ(vocabulary.types, std::vector<int>(4, 1));
  EXPECT_TRUE(vocabulary.merges.empty() && vocabulary.pre.empty());
  EXPECT_EQ(vocabulary.bos, -1);
  EXPECT_EQ(vocabulary.eos, -1);
  EXPECT_EQ(vocabulary.eot, -1);
  EXPECT_EQ(vocabulary.pad, -1);
  EXPECT_FALSE(vocabulary.add_bos);
}

TEST(Config, AVocabularyOfSentencePieceHasScores) {
  GgufWriter writer = vocabulary_file();
  writer.add("tokenizer.ggml.scores", std::vector<float>{0, -1, -2.5f, 0});
  EXPECT_TRUE(vocabulary_of(writer).value().add_space);
  writer.add_bool("tokenizer.ggml.add_space_prefix", false);
  const Vocabulary vocabulary = vocabulary_of(writer).value();
  EXPECT_EQ(vocabulary.scores, (std::vector<float>{0, -1, -2.5f, 0}));
  EXPECT_FALSE(vocabulary.add_space);
}

TEST(Config, MarksOfChatsAreControlTokensAndEndTurns) {
  for (const char* end : {"<|im_end|>", "<|eot_id|>", "<end_of_turn>"}) {
    GgufWriter writer;
    writer.add("tokenizer.ggml.model", "gpt2");
    writer.add("tokenizer.ggml.tokens",
               std::vector<std::string>{"a", "<start_of_turn>", end, "<table>", "<|im_start|>"});
    writer.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 4, 4, 4, 1});
    const Vocabulary vocabulary = vocabulary_of(writer).value();
    EXPECT_EQ(vocabulary.types, (std::vector<int>{1, 3, 3, 4, 3}));
    EXPECT_EQ(vocabulary.eot, 2);
    writer.add("tokenizer.ggml.eot_token_id", std::uint32_t{0});
    EXPECT_EQ(vocabulary_of(writer).value().eot, 0);
  }
}

TEST(Config, VocabulariesThatDoNotFitAreRefused) {
  const auto expect = [](const GgufWriter& writer, const std::string& part) {
    const Result<Vocabulary> vocabulary = vocabulary_of(writer);
    ASSERT_FALSE(vocabulary);
    EXPECT_NE(vocabulary.error().text.find(part), std::string::npos) << vocabulary.error().text;
  };
  expect(GgufWriter(), "no value tokenizer.ggml.model");
  GgufWriter types = vocabulary_file();
  types.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 1});
  expect(types, "4 tokens have 2 types");
  GgufWriter odd = vocabulary_file();
  odd.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 1, 1, -1});
  expect(odd, "type is -1");
  GgufWriter id = vocabulary_file();
  id.add("tokenizer.ggml.eos_token_id", std::uint32_t{4});
  expect(id, "tokenizer.ggml.eos_token_id is 4, tokens are 0 to 3");
}

// The default model, where it is there.
TEST(DefaultModelForward, KnowsTheCapitalOfFrance) {
  const std::optional<std::string> path = test::default_model();
  if (!path) GTEST_SKIP() << test::kNoModel;
  const Model model = Model::load(*path, {}).value();
  EXPECT_EQ(model.config().layers.size(), 30u);
  const auto tokenizer = Tokenizer::create(model.vocabulary()).value();
  const std::vector<int> tokens = tokenizer.encode("The capital of France is").value();
  Cache cache = Cache::create(model.cache_spec()).value();
  const Batch batch = Batch().add(cache.open().value().id(), 0, std::ssize(tokens));
  Step step = cache.begin(batch).value();
  std::vector<float> logits(49152);
  const std::vector<std::int64_t> rows = {std::ssize(tokens) - 1};
  model.forward(step, batch, tokens, rows, logits.data()).value();
  const int next = static_cast<int>(argmax(logits));
  EXPECT_EQ(tokenizer.decode({&next, 1}).value(), " Paris");
}

}  // namespace
}  // namespace quire::model
