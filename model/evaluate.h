// What a codec costs in quality: a model's predictions with a coded cache next to those with f16.
//
// A text of tokens is cut into chunks. Each chunk is one new sequence, and the second half of its
// tokens is predicted, from positions context/2 - 1 to context - 2. A query reads what it would
// read if tokens came one by one, so prefill in large steps measures what decoding would see. All
// codecs see the same chunks; differences are paired, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/assignment.h"
#include "model/model.h"

namespace quire::model {

struct NamedCodec {
  std::string name;
  Assignment codec;
};

struct EvalOptions {
  std::vector<NamedCodec> codecs;  // f16 is always measured, and is the first row
  std::int64_t context = 2048;     // tokens of a chunk, at least 4
  std::int64_t chunks = 1;         // at most; the text may have fewer
  std::int64_t step_tokens = kStepTokens;
  bool reference_attention = false;
  // Called before each pass.
  std::function<void(std::int64_t chunk, std::int64_t chunks, const std::string& codec)> progress;
};

struct EvalRow {
  std::string codec;
  double ppl = 0;
  double ppl_delta = 0;     // ppl / ppl of f16 - 1
  double ppl_delta_se = 0;  // standard error of it, from the paired differences of log-likelihoods
  double kld_mean = 0;      // KL(f16 || codec) of predictions, in nats
  double kld_p99 = 0;
  double kld_p999 = 0;
  double top1 = 0;             // how often the most likely token is that of f16
  double bytes_per_token = 0;  // true bytes of the cache at full context, over the context
  double bits_per_value = 0;   // of sealed pages, with scales
  double tokens_per_second = 0;
};

struct Evaluation {
  std::int64_t context = 0;
  std::int64_t chunks = 0;
  std::int64_t predictions = 0;
  std::vector<EvalRow> rows;
};

// Cost: memory for context / 2 + step_tokens rows of logits.
Result<Evaluation> evaluate(const Model& model, std::span<const int> tokens,
                            const EvalOptions& options);

}  // namespace quire::model
