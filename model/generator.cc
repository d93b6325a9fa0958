#include "model/generator.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "model/error.h"

namespace quire::model {
namespace {

constexpr std::int64_t kFirstGuesses = 2;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

bool is_want_of_room(ErrorCode code) {
  return code == ErrorCode::over_limit || code == ErrorCode::out_of_memory ||
         code == ErrorCode::full;
}

Generator::Generator(const Model& model, const Tokenizer& tokenizer, Cache& cache,
                     const std::optional<LookupDraft>& draft)
    : model_(model),
      tokenizer_(tokenizer),
      cache_(cache),
      draft_(draft),
      logits_(static_cast<std::size_t>(model.config().vocabulary)) {}

Result<void> Generator::feed(const Sequence& sequence, std::span<const int> tokens) {
  if (tokens.empty()) return refuse("generator: no tokens to feed");
  has_logits_ = false;
  if (std::ssize(tokens) <= kStepTokens) {
    MODEL_CHECK(feed_step(sequence, tokens));
  } else {
    // A window may have dropped tokens by the time a later step fails; a fork still has them.
    MODEL_TRY(const Sequence before, sequence.fork());
    Result<void> fed;
    while (fed && !tokens.empty()) {
      const std::size_t count = std::min(tokens.size(), std::size_t{kStepTokens});
      fed = feed_step(sequence, tokens.first(count));
      tokens = tokens.subspan(count);
    }
    if (!fed) MODEL_CHECK(cache_.copy_prefix(before.id(), sequence.id(), INT64_MAX));
    MODEL_CHECK(before.close());
    if (!fed) return fed;
  }
  fed_ = sequence.id();
  has_logits_ = true;
  return {};
}

Result<Step> Generator::forward(const Sequence& sequence, std::span<const int> tokens,
                                std::span<const std::int64_t> rows, float* logits) {
  MODEL_TRY(const std::int64_t position, sequence.next_position());
  std::vector<std::uint64_t> keys;
  for (const int id : tokens) keys.push_back(key_of(id));
  const Batch batch = Batch().add(sequence.id(), position, keys);
  MODEL_TRY(Step step, cache_.begin(batch));
  MODEL_CHECK(model_.forward(step, batch, tokens, rows, logits));
  return step;
}

Result<void> Generator::feed_step(const Sequence& sequence, std::span<const int> tokens) {
  const std::int64_t last = std::ssize(tokens) - 1;
  MODEL_TRY(Step step, forward(sequence, tokens, {&last, 1}, logits_.data()));
  MODEL_CHECK(step.commit());
  return {};
}

Result<Generator::Advance> Generator::advance(const Sequence& sequence, int id,
                                              const std::vector<int>& guesses, Sampler& sampler) {
  std::vector<int> tokens = {id};
  tokens.insert(tokens.end(), guesses.begin(), guesses.end());
  std::vector<std::int64_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  step_logits_.resize(rows.size() * logits_.size());
  MODEL_TRY(Step step, forward(sequence, tokens, rows, step_logits_.data()));

  Advance made;
  const auto row = [&] {  // after the tokens kept
    return std::span(step_logits_).subspan(made.accepted * logits_.size(), logits_.size());
  };
  while (made.accepted < guesses.size()) {
    const Result<int> drawn = sampler.choose(row());
    if (!drawn) break;  // the next draw, from the same row, says why
    if (*drawn != guesses[made.accepted] || tokenizer_.is_end(*drawn)) {
      made.next = *drawn;
      break;
    }
    ++made.accepted;
  }
  MODEL_CHECK(step.commit({static_cast<std::int64_t>(made.accepted) + 1}));
  std::copy(row().begin(), row().end(), logits_.begin());
  return made;
}

Result<Generation> Generator::generate(const Sequence& sequence, Sampler& sampler,
                                       std::int64_t most, const TextFunction& on_text) {
  if (!has_logits_ || fed_ != sequence.id()) {
    return Error{ErrorCode::wrong_state, "generator: the sequence is not the one fed last"};
  }
  const auto start = Clock::now();
  Generation made;
  Utf8Stream stream;
  const auto give = [&](const std::string& text) {
    if (on_text && !text.empty()) on_text(text);
  };
  std::vector<int> history;
  if (draft_) {
    MODEL_TRY(const std::vector<Token> held, sequence.tokens());
    for (const Token& token : held) history.push_back(static_cast<int>(token.key) - 1);
  }
  made.stop = Stop::length;
  std::optional<int> drawn;  // and not yet in the history
  // A guess costs nearly as much as a token where arithmetic and not memory is the bound, so their
  // number follows what came of them: twice as many after a step in which all were right, else one
  // more than were right.
  std::int64_t trust = kFirstGuesses;
  while (std::ssize(made.tokens) < most) {
    if (!drawn) {
      MODEL_TRY(drawn, sampler.choose(logits_));
    }
    if (made.tokens.empty()) made.first_seconds = seconds_since(start);
    if (tokenizer_.is_end(*drawn)) {
      made.stop = Stop::ended;
      break;
    }
    std::vector<int> guesses;
    if (draft_) {
      history.push_back(*drawn);
      guesses = draft_->propose(history, std::min(trust, most - std::ssize(made.tokens) - 1));
    }
    auto advanced = advance(sequence, *drawn, guesses, sampler);
    if (!advanced && !guesses.empty()) {
      // Guesses take room, and a wrong one may be what failed.
      guesses.clear();
      advanced = advance(sequence, *drawn, guesses, sampler);
    }
    if (!advanced) {
      if (!is_want_of_room(advanced.code())) return std::move(advanced).error();
      made.stop = Stop::memory;
      break;
    }
    made.drafted += std::ssize(guesses);
    made.accepted += static_cast<std::int64_t>(advanced->accepted);
    if (!guesses.empty()) {
      const auto right = static_cast<std::int64_t>(advanced->accepted);
      trust = right < std::ssize(guesses) ? right + 1 : 2 * std::ssize(guesses);
    }
    guesses.resize(advanced->accepted);
    history.insert(history.end(), guesses.begin(), guesses.end());
    const std::size_t before = made.tokens.size();
    made.tokens.push_back(*drawn);
    made.tokens.insert(made.tokens.end(), guesses.begin(), guesses.end());
    drawn = advanced->next;
    MODEL_TRY(const std::string bytes,
              tokenizer_.decode(std::span(made.tokens).subspan(before), false));
    give(stream.push(bytes));
  }
  give(stream.finish());
  made.seconds = seconds_since(start);
  return made;
}

}  // namespace quire::model
