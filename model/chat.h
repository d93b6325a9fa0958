// A chat template turns a conversation into the text that a model was trained to continue.
//
// Model files carry their template as a program in the language Jinja. It is recognised, not run.
// Known are these forms:
//
// - ChatML, of SmolLM2 and of Qwen 2 and 2.5 without tools:
//   <|im_start|>role\ncontent<|im_end|>\n
// - Llama 3: <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|>
// - Gemma, where the assistant's role is "model": <start_of_turn>role\ncontent<end_of_turn>\n
// - Mistral: [INST] content [/INST], and an answer ends with </s>
//
// ChatML may have a system message that is put first when a conversation brings none. Gemma and
// Mistral take no system message. Llama 3 and Gemma leave out white space around a message (here:
// that of ASCII). Other templates are refused: a model answers badly, and without an error, to a
// form it does not know.
//
// A conversation is encoded part by part, so that only the template's own marks become special
// tokens; "<|im_end|>" inside a message stays text.
//
// Thread-safety: a template is read-only after it was made.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer.h"
#include "quire/result.hpp"

namespace quire::model {

struct Message {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

class ChatTemplate {
 public:
  // Recognises the text that a model file has under tokenizer.chat_template.
  static Result<ChatTemplate> recognise(std::string_view text);

  // What is put first when a conversation brings no system message.
  const std::optional<std::string>& default_system() const { return default_system_; }

  // The conversation as text, without the model's first token; with `reply` it ends where the
  // assistant's answer begins.
  std::string render(std::span<const Message> messages, bool reply) const;

  // The conversation as tokens, with the model's first token if it wants one. Where no message has
  // text that looks like a special token these are the ids of render(). Refused when the vocabulary
  // lacks the marks, and for a system message where the form has none.
  Result<std::vector<int>> encode(const Tokenizer& tokenizer, std::span<const Message> messages,
                                  bool reply) const;

  // What a message adds to a history, up to where the model's answer begins. `after_answer`: the
  // history ends with the text of an answer, so the mark that ends it comes first. A chat that
  // keeps its history in a cache encodes only what is new, whether the model ended its last answer
  // itself or was stopped.
  Result<std::vector<int>> encode_turn(const Tokenizer& tokenizer, const Message& message,
                                       bool after_answer) const;
  // The tokens that encode_turn puts before the message after an answer.
  Result<std::vector<int>> encode_end(const Tokenizer& tokenizer) const;

 private:
  enum class Form { chatml, llama3, gemma, mistral };
  struct Part {
    std::string text;
    bool is_mark = false;
  };

  explicit ChatTemplate(Form form) : form_(form) {}

  Result<void> check(const Message& message) const;
  void add_message(const Message& message, std::vector<Part>& parts) const;
  void add_begin(const std::string& role, std::vector<Part>& parts) const;
  void add_end(std::vector<Part>& parts) const;
  void add_reply(std::vector<Part>& parts) const;
  Result<std::vector<int>> encode_parts(const Tokenizer& tokenizer, const std::vector<Part>& parts,
                                        bool bos) const;
  std::vector<Part> parts_of(std::span<const Message> messages, bool reply) const;

  Form form_;
  std::optional<std::string> default_system_;
};

}  // namespace quire::model
