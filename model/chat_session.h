// A chat session is one conversation kept in a cache: only what is new is ever computed.
//
// The history is the system message, if there is one, and turns: a message of the user and the
// model's answer. When the next turn would not fit into the context, or the cache has no room for
// it, the oldest turns are forgotten: their tokens are removed and the later ones move down, which
// Quire does without computing or copying keys. The system message stays.
//
// A turn that fails leaves the conversation as it was, but for turns forgotten on the way. An
// answer that ends for want of room is kept as far as it came.
//
// Thread-safety: none. Sessions that share a generator take turns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/chat.h"
#include "model/generator.h"
#include "model/sampler.h"
#include "quire/cache.hpp"

namespace quire::model {

// What a conversation runs on. Requires: all outlive the sessions.
struct ChatParts {
  const Tokenizer& tokenizer;
  const ChatTemplate& chat;
  Generator& generator;
};

struct ChatOptions {
  std::int64_t context = 0;       // tokens of the history; 0: no limit
  std::int64_t most_reply = 512;  // tokens of one answer
};

struct Reply {
  Generation generation;
  std::int64_t prompt_tokens = 0;    // computed for this turn, without the answer
  std::int64_t turns_forgotten = 0;  // to make room
  double prompt_seconds = 0;
};

class ChatSession {
 public:
  // Begins a conversation in an empty sequence. An empty `system` means the template's own message,
  // or none where it has none.
  static Result<ChatSession> begin(const ChatParts& parts, const Sequence& sequence,
                                   const Sampler& sampler, const ChatOptions& options,
                                   const std::string& system);

  // The user says something and the model answers.
  Result<Reply> say(const std::string& text, const TextFunction& on_text = {});
  // Forgets the last turn. Refused without one, and where a window has dropped what came before it.
  Result<void> undo();
  // A second conversation with the same past; they share its pages.
  Result<ChatSession> fork() const;

  const Sequence& sequence() const { return sequence_; }
  std::int64_t turns() const { return std::ssize(turns_); }

 private:
  struct Turn {
    std::int64_t begin = 0;     // position of its message
    std::int64_t end_mark = 0;  // tokens before that, which end the answer of the turn before
  };

  ChatSession(const ChatParts& parts, const Sequence& sequence, const Sampler& sampler,
              const ChatOptions& options)
      : parts_(parts), sequence_(sequence), sampler_(sampler), options_(options) {}

  Result<std::int64_t> feed_turn(const std::string& text, Reply& reply);
  Result<void> forget_oldest();

  ChatParts parts_;
  Sequence sequence_;
  Sampler sampler_;
  ChatOptions options_;
  std::vector<Turn> turns_;
};

}  // namespace quire::model
