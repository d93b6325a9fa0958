#include "model/generator.h"

#include <algorithm>
#include <chrono>

#include "model/error.h"

namespace quire::model {
namespace {

constexpr std::size_t kStepTokens = 512;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

bool is_want_of_room(ErrorCode code) {
  return code == ErrorCode::over_limit || code == ErrorCode::out_of_memory ||
         code == ErrorCode::full;
}

Generator::Generator(const Model& model, const Tokenizer& tokenizer, Cache& cache)
    : model_(model),
      tokenizer_(tokenizer),
      cache_(cache),
      logits_(static_cast<std::size_t>(model.config().vocabulary)) {}

Result<void> Generator::feed(const Sequence& sequence, std::span<const int> tokens) {
  if (tokens.empty()) return refuse("generator: no tokens to feed");
  has_logits_ = false;
  if (tokens.size() <= kStepTokens) {
    MODEL_CHECK(feed_step(sequence, tokens));
  } else {
    // A window may have dropped tokens by the time a later step fails; a fork still has them.
    MODEL_TRY(const Sequence before, sequence.fork());
    Result<void> fed;
    while (fed && !tokens.empty()) {
      const std::size_t count = std::min(tokens.size(), kStepTokens);
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

Result<void> Generator::feed_step(const Sequence& sequence, std::span<const int> tokens) {
  MODEL_TRY(const std::int64_t position, sequence.next_position());
  std::vector<std::uint64_t> keys;
  for (const int id : tokens) keys.push_back(key_of(id));
  const Batch batch = Batch().add(sequence.id(), position, keys);
  MODEL_TRY(Step step, cache_.begin(batch));
  const std::int64_t last = std::ssize(tokens) - 1;
  MODEL_CHECK(model_.forward(step, batch, tokens, {&last, 1}, logits_.data()));
  MODEL_CHECK(step.commit());
  return {};
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
  made.stop = Stop::length;
  while (std::ssize(made.tokens) < most) {
    MODEL_TRY(const int id, sampler.choose(logits_));
    if (made.tokens.empty()) made.first_seconds = seconds_since(start);
    if (tokenizer_.is_end(id)) {
      made.stop = Stop::ended;
      break;
    }
    MODEL_TRY(const std::string bytes, tokenizer_.decode({&id, 1}, false));
    if (auto fed = feed(sequence, {&id, 1}); !fed) {
      if (!is_want_of_room(fed.code())) return std::move(fed).error();
      made.stop = Stop::memory;
      break;
    }
    made.tokens.push_back(id);
    give(stream.push(bytes));
  }
  give(stream.finish());
  made.seconds = seconds_since(start);
  return made;
}

}  // namespace quire::model
