// A generator lets a model go on with sequences of a cache: tokens in, tokens out.
//
// A prompt that is refused leaves its sequence as it was. What was drawn stays, also when a later
// token fails. Prompts go in steps of 512 tokens; a step holds the rows of all its tokens
// in all layers until it commits, so larger ones would only take more memory.
//
// Thread-safety: none; one generator serves one thread, and any number of sequences of its cache.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "model/model.h"
#include "model/sampler.h"
#include "model/tokenizer.h"
#include "quire/cache.hpp"

namespace quire::model {

// The key under which a cache knows a token. 0 would mean that it has no content to be known by.
constexpr std::uint64_t key_of(int id) { return static_cast<std::uint64_t>(id) + 1; }

enum class Stop {
  ended,   // the model produced a token that ends a turn; it is not in the history
  length,  // as many tokens as were asked for
  memory,  // the cache had no room for another token
};

struct Generation {
  std::vector<int> tokens;  // all of them in the history
  Stop stop = Stop::ended;
  double first_seconds = 0;  // from the call to the first token
  double seconds = 0;        // the whole call
};

// Whether an error says that there is no room for more tokens, which forgetting some would give.
bool is_want_of_room(ErrorCode code);

// Is given text as it comes, in whole characters.
using TextFunction = std::function<void(std::string_view text)>;

class Generator {
 public:
  // Requires: all three outlive the generator; the cache was made from the model's spec.
  Generator(const Model& model, const Tokenizer& tokenizer, Cache& cache);

  // Appends tokens to a sequence. The next generate() goes on from there.
  Result<void> feed(const Sequence& sequence, std::span<const int> tokens);

  // Draws and appends at most `most` tokens. The sequence must be the one fed last.
  Result<Generation> generate(const Sequence& sequence, Sampler& sampler, std::int64_t most,
                              const TextFunction& on_text = {});

 private:
  Result<void> feed_step(const Sequence& sequence, std::span<const int> tokens);

  const Model& model_;
  const Tokenizer& tokenizer_;
  Cache& cache_;
  std::vector<float> logits_;  // after the last token fed
  SequenceId fed_{};           // its sequence
  bool has_logits_ = false;
};

}  // namespace quire::model
