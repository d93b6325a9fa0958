// A generator lets a model go on with sequences of a cache: tokens in, tokens out.
//
// A prompt that is refused leaves its sequence as it was. What was drawn stays, also when a later
// token fails. Prompts go in steps of kStepTokens.
//
// With a draft, tokens are guessed from the history and go into one step together with the token
// that was drawn. Each is then drawn as if it had come alone, from the logits of the row before it,
// and the step commits those that were drawn as guessed. What a query reads does not depend on how
// tokens are cut into steps, and the sampler is asked once per token in both cases, so the result
// is that of generating without a draft wherever a row of the model does not depend on its batch;
// products by BLAS round differently for one row and for several.
//
// Thread-safety: none; one generator serves one thread, and any number of sequences of its cache.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/lookup_draft.h"
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
  std::int64_t drafted = 0;   // tokens guessed
  std::int64_t accepted = 0;  // and of these drawn as guessed; they are among `tokens`
  double first_seconds = 0;   // from the call to the first token
  double seconds = 0;         // the whole call
};

// Whether an error says that there is no room for more tokens, which forgetting some would give.
bool is_want_of_room(ErrorCode code);

// Is given text as it comes, in whole characters.
using TextFunction = std::function<void(std::string_view text)>;

class Generator {
 public:
  // Requires: all three outlive the generator; the cache was made from the model's spec.
  Generator(const Model& model, const Tokenizer& tokenizer, Cache& cache,
            const std::optional<LookupDraft>& draft = {});

  // Appends tokens to a sequence. The next generate() goes on from there.
  Result<void> feed(const Sequence& sequence, std::span<const int> tokens);

  // Draws and appends at most `most` tokens. The sequence must be the one fed last.
  Result<Generation> generate(const Sequence& sequence, Sampler& sampler, std::int64_t most,
                              const TextFunction& on_text = {});

 private:
  // What a step with guesses came to.
  struct Advance {
    std::size_t accepted = 0;  // guesses
    std::optional<int> next;   // drawn after them, when it was not the next guess
  };

  // Begins a step and runs it; the caller commits.
  Result<Step> forward(const Sequence& sequence, std::span<const int> tokens,
                       std::span<const std::int64_t> rows, float* logits);
  Result<void> feed_step(const Sequence& sequence, std::span<const int> tokens);
  // Appends a token that was drawn, and those of the guesses that are drawn after it.
  Result<Advance> advance(const Sequence& sequence, int id, const std::vector<int>& guesses,
                          Sampler& sampler);

  const Model& model_;
  const Tokenizer& tokenizer_;
  Cache& cache_;
  std::optional<LookupDraft> draft_;
  std::vector<float> logits_;       // after the last token fed
  std::vector<float> step_logits_;  // of each row of a step with guesses
  SequenceId fed_{};                // the sequence of the last token fed
  bool has_logits_ = false;
};

}  // namespace quire::model
