// A model of the Llama family that keeps its keys and values in Quire.
//
//     Model model = Model::load("model.gguf", {}).value();
//     Cache cache = Cache::create(model.cache_spec()).value();
//     Sequence chat = cache.open().value();
//     Batch batch = Batch().add(chat.id(), 0, count);
//     Step step = cache.begin(batch).value();
//     model.forward(step, batch, tokens, {{count - 1}}, logits).value();
//     step.commit().value();
//
// A batch is anything that a step takes: a piece of a prompt, one token each of many sequences, or
// both. Weights are read-only after loading.
//
// Thread-safety: forward is const and keeps its work on the heap, so several threads may call it
// with steps of their own; one of them then uses the model's threads, the others work alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/gguf.h"
#include "model/huge_pages.h"
#include "model/linear.h"
#include "model/vocabulary.h"
#include "quire/cache.hpp"

namespace quire::model {

struct ModelOptions {
  WeightForm weights = WeightForm::f32;
  int threads = 1;  // of forward and of the caches made from cache_spec(); 0: one per usable core
};

// How a layer attends: fills `out` for the queries of the step. Step::attend unless given.
using Attention =
    std::function<Result<void>(Step& step, int layer, const TensorView& q, const OutputView& out)>;

// Tokens of a step in which a prompt is fed: enough for the products of weights; a step holds the
// rows of all its tokens in all layers until it commits, so larger ones would only take memory.
inline constexpr std::int64_t kStepTokens = 512;

class Model {
 public:
  static Result<Model> load(const std::string& path, const ModelOptions& options);
  static Result<Model> load(Gguf file, const ModelOptions& options);
  Model(Model&&) = default;
  Model& operator=(Model&&) = delete;  // weights would outlive their memory

  const Config& config() const { return config_; }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  const Gguf& file() const { return file_; }
  // Layers, patterns, rotation and scales; codecs are f16. Caches made from it work on the model's
  // threads, so the model must outlive them.
  CacheSpec cache_spec() const;

  // Runs the tokens of a step through all layers: puts, attends, leaves the commit to the caller.
  // tokens[i] is the id of batch.tokens[i]. For each row of the batch named in `rows`, `logits`
  // gets one row of config().vocabulary numbers, in that order. On an error the step is still open
  // and has to be dropped.
  Result<void> forward(Step& step, const Batch& batch, std::span<const int> tokens,
                       std::span<const std::int64_t> rows, float* logits,
                       const Attention& attention = {}) const;

  // The parts of forward, for callers that look at what lies between layers: the residual stream,
  // [tokens][config().embedding]. forward is embed, run_layers of all layers and predict.
  Result<std::vector<float>> embed(std::span<const int> tokens) const;
  // Layers [first, last). A step that has not run all layers cannot be committed.
  Result<void> run_layers(Step& step, const Batch& batch, int first, int last,
                          std::vector<float>& stream, const Attention& attention = {}) const;
  // Logits of some rows of a stream that has run all layers.
  Result<void> predict(const std::vector<float>& stream, std::span<const std::int64_t> rows,
                       float* logits) const;

 private:
  struct Layer {
    std::vector<float> attention_norm;
    std::vector<float> attention_after_norm;  // empty, or as has_after_norm
    std::vector<float> query_norm;            // empty, or as has_qk_norm
    std::vector<float> key_norm;
    std::unique_ptr<Linear> query_key_value;  // stacked
    std::unique_ptr<Linear> output;
    std::vector<float> feed_norm;
    std::vector<float> feed_after_norm;
    std::unique_ptr<Linear> gate_up;  // stacked
    std::unique_ptr<Linear> down;
  };
  class Loader;
  class Pass;

  explicit Model(Gguf file) : file_(std::move(file)) {}

  Gguf file_;  // embeddings are expanded from it, row by row
  Config config_;
  Vocabulary vocabulary_;
  std::unique_ptr<Executor> executor_;
  // Of the weights; stays where it is when the model moves.
  std::unique_ptr<HugePages> pages_;
  std::unique_ptr<std::pmr::monotonic_buffer_resource> memory_;
  const GgufTensor* embedding_ = nullptr;
  std::vector<Layer> layers_;
  std::vector<float> output_norm_;
  std::unique_ptr<Linear> output_;
};

}  // namespace quire::model
