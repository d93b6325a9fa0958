#include "model/chat_session.h"

#include <algorithm>
#include <chrono>

#include "model/error.h"

namespace quire::model {

Result<ChatSession> ChatSession::begin(const ChatParts& parts, const Sequence& sequence,
                                       const Sampler& sampler, const ChatOptions& options,
                                       const std::string& system) {
  MODEL_TRY(const bool is_empty, sequence.is_empty());
  if (!is_empty) return refuse("chat: a conversation begins in an empty sequence");
  if (options.most_reply < 1) return refuse("chat: answers of {} tokens", options.most_reply);
  std::vector<Message> messages;
  if (!system.empty()) {
    messages.push_back({"system", system});
  } else if (parts.chat.default_system()) {
    messages.push_back({"system", *parts.chat.default_system()});
  }
  MODEL_TRY(const std::vector<int> tokens, parts.chat.encode(parts.tokenizer, messages, false));
  if (options.context > 0 && std::ssize(tokens) >= options.context) {
    return refuse("chat: the system message takes {} tokens of a context of {}", tokens.size(),
                  options.context);
  }
  if (!tokens.empty()) MODEL_CHECK(parts.generator.feed(sequence, tokens));
  return ChatSession(parts, sequence, sampler, options);
}

// Puts the message in, forgetting turns until it fits; returns the most tokens of the answer.
Result<std::int64_t> ChatSession::feed_turn(const std::string& text, Reply& reply) {
  for (;; ++reply.turns_forgotten) {
    const bool after_answer = !turns_.empty();
    MODEL_TRY(const std::vector<int> tokens,
              parts_.chat.encode_turn(parts_.tokenizer, {"user", text}, after_answer));
    MODEL_TRY(const std::vector<int> end_mark, parts_.chat.encode_end(parts_.tokenizer));
    MODEL_TRY(const std::int64_t position, sequence_.next_position());
    const std::int64_t room =
        options_.context > 0 ? options_.context - position - std::ssize(tokens) : INT64_MAX;
    // An answer is given at least a quarter of the context, unless it must be shorter.
    Result<void> fed;
    if (room < std::min(options_.most_reply, std::max<std::int64_t>(options_.context / 4, 1))) {
      fed = Error{ErrorCode::full,
                  fmt::format("chat: a message of {} tokens after {} leaves no room for an answer "
                              "in a context of {}",
                              tokens.size(), position, options_.context)};
    } else {
      fed = parts_.generator.feed(sequence_, tokens);
    }
    if (fed) {
      const std::int64_t marks = after_answer ? std::ssize(end_mark) : 0;
      turns_.push_back({position + marks, marks});
      reply.prompt_tokens = std::ssize(tokens);
      return std::min(options_.most_reply, room);
    }
    if (!is_want_of_room(fed.code()) || turns_.empty()) return std::move(fed).error();
    MODEL_CHECK(forget_oldest());
  }
}

Result<Reply> ChatSession::say(const std::string& text, const TextFunction& on_text) {
  const auto start = std::chrono::steady_clock::now();
  Reply reply;
  MODEL_TRY(const std::int64_t most, feed_turn(text, reply));
  const auto fed = std::chrono::steady_clock::now();
  reply.prompt_seconds = std::chrono::duration<double>(fed - start).count();
  auto made = parts_.generator.generate(sequence_, sampler_, most, on_text);
  if (!made) {
    MODEL_CHECK(undo());
    return std::move(made).error();
  }
  reply.generation = std::move(*made);
  return reply;
}

Result<void> ChatSession::undo() {
  if (turns_.empty()) return Error{ErrorCode::wrong_state, "chat: there is no turn to undo"};
  const std::int64_t position = turns_.back().begin - turns_.back().end_mark;
  MODEL_TRY(const Resume resume, sequence_.can_resume(position));
  if (resume == Resume::no) {
    return Error{
        ErrorCode::not_resumable,
        fmt::format("chat: what a token at position {} would see has left the window", position)};
  }
  MODEL_CHECK(sequence_.truncate(position));
  turns_.pop_back();
  return {};
}

Result<ChatSession> ChatSession::fork() const {
  ChatSession other = *this;
  MODEL_TRY(other.sequence_, sequence_.fork());
  return other;
}

// With the oldest turn goes the mark that ends its answer, which was written with the next one.
Result<void> ChatSession::forget_oldest() {
  MODEL_TRY(const std::int64_t end, sequence_.next_position());
  const std::int64_t first = turns_.front().begin;
  const std::int64_t next = turns_.size() > 1 ? turns_[1].begin : end;
  MODEL_CHECK(sequence_.remove(first, next));
  turns_.erase(turns_.begin());
  for (Turn& turn : turns_) turn.begin -= next - first;
  if (!turns_.empty()) turns_.front().end_mark = 0;
  return {};
}

}  // namespace quire::model
