#include "model/chat.h"

#include <algorithm>

#include "model/error.h"

namespace quire::model {
namespace {

constexpr std::string_view kBegin = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";

// The templates as they are written on one line. The default system message stands between the
// second and the third text.
constexpr std::string_view kLoop = "{% for message in messages %}";
constexpr std::string_view kBeforeSystem =
    "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n";
constexpr std::string_view kAfterSystem = "<|im_end|>\n' }}{% endif %}";
constexpr std::string_view kMessages =
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// Qwen 2.5 spreads its template over many lines, most of them for tools. Without tools these say
// it all, in this order; its default system message stands between the first and the second.
constexpr std::string_view kQwenBeforeSystem =
    "{{- '<|im_start|>system\n' + messages[0]['content'] "
    "+ '<|im_end|>\n' }}\n    {%- else %}\n        "
    "{{- '<|im_start|>system\n";
constexpr std::string_view kQwenAfterSystem =
    "<|im_end|>\n' }}\n    {%- endif %}\n{%- endif %}\n"
    "{%- for message in messages %}\n";
constexpr std::string_view kQwenMessage =
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}\n";
constexpr std::string_view kQwenReply =
    "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\n' }}\n{%- endif %}";

// Files have a line break inside a template's texts as itself or as the two characters "\n".
std::string with_line_breaks(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text.substr(i, 2) == "\\n";
    plain += escaped ? '\n' : text[i];
    i += escaped ? 1 : 0;
  }
  return plain;
}

// Reads a template from its front.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}
  bool take(std::string_view expected) {
    if (!rest_.starts_with(expected)) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }
  // What stands before the next `mark`, which is taken too.
  std::optional<std::string> take_until(std::string_view mark) {
    const std::size_t found = rest_.find(mark);
    if (found == std::string_view::npos) return std::nullopt;
    std::string before(rest_.substr(0, found));
    rest_.remove_prefix(found + mark.size());
    return before;
  }
  bool at_end() const { return rest_.find_first_not_of(" \n") == std::string_view::npos; }

 private:
  std::string_view rest_;
};

bool is_plain_text(const std::string& text) {
  return text.find_first_of("'\\{}") == std::string::npos;
}

}  // namespace

Result<ChatTemplate> ChatTemplate::recognise(std::string_view text) {
  const std::string plain = with_line_breaks(text);
  ChatTemplate made;
  Reader line(plain);
  if (line.take(kLoop)) {
    bool known = true;
    if (line.take(kBeforeSystem)) {
      made.default_system_ = line.take_until(kAfterSystem);
      known = made.default_system_ && is_plain_text(*made.default_system_);
    }
    if (known && line.take(kMessages) && line.at_end()) return made;
  }
  Reader qwen(plain);
  if (qwen.take_until(kQwenBeforeSystem)) {
    made.default_system_ = qwen.take_until(kQwenAfterSystem);
    if (made.default_system_ && is_plain_text(*made.default_system_) &&
        qwen.take_until(kQwenMessage) && qwen.take_until(kQwenReply) && qwen.at_end()) {
      return made;
    }
  }
  return Error{
      ErrorCode::not_supported,
      fmt::format("chat: the model's template of {} bytes is none that is known (ChatML with or "
                  "without a default system message, as SmolLM2 and Qwen 2 have); it begins \"{}\"",
                  text.size(), text.substr(0, 60))};
}

void ChatTemplate::add_message(const Message& message, std::vector<Part>& parts) {
  parts.push_back({std::string(kBegin), true});
  parts.push_back({message.role + "\n" + message.content, false});
  add_end(parts);
}

void ChatTemplate::add_end(std::vector<Part>& parts) {
  parts.push_back({std::string(kEnd), true});
  parts.push_back({"\n", false});
}

void ChatTemplate::add_reply(std::vector<Part>& parts) {
  parts.push_back({std::string(kBegin), true});
  parts.push_back({"assistant\n", false});
}

std::vector<ChatTemplate::Part> ChatTemplate::parts_of(std::span<const Message> messages,
                                                       bool reply) const {
  std::vector<Part> parts;
  if (default_system_ && !messages.empty() && messages.front().role != "system") {
    add_message({"system", *default_system_}, parts);
  }
  for (const Message& message : messages) add_message(message, parts);
  if (reply) add_reply(parts);
  return parts;
}

Result<std::vector<int>> ChatTemplate::encode_parts(const Tokenizer& tokenizer,
                                                    const std::vector<Part>& parts, bool bos) {
  MODEL_TRY(std::vector<int> ids, tokenizer.encode("", {.bos = bos}));
  for (const Part& part : parts) {
    if (part.is_mark) {
      ids.push_back(tokenizer.find_special(part.text));
      if (ids.back() < 0) return refuse("chat: the vocabulary has no token {}", part.text);
      continue;
    }
    MODEL_TRY(const std::vector<int> text, tokenizer.encode(part.text));
    ids.insert(ids.end(), text.begin(), text.end());
  }
  return ids;
}

std::string ChatTemplate::render(std::span<const Message> messages, bool reply) const {
  std::string text;
  for (const Part& part : parts_of(messages, reply)) text += part.text;
  return text;
}

Result<std::vector<int>> ChatTemplate::encode(const Tokenizer& tokenizer,
                                              std::span<const Message> messages, bool reply) const {
  return encode_parts(tokenizer, parts_of(messages, reply), true);
}

Result<std::vector<int>> ChatTemplate::encode_turn(const Tokenizer& tokenizer,
                                                   const Message& message,
                                                   bool after_answer) const {
  std::vector<Part> parts;
  if (after_answer) add_end(parts);
  add_message(message, parts);
  add_reply(parts);
  return encode_parts(tokenizer, parts, false);
}

Result<std::vector<int>> ChatTemplate::encode_end(const Tokenizer& tokenizer) const {
  std::vector<Part> parts;
  add_end(parts);
  return encode_parts(tokenizer, parts, false);
}

}  // namespace quire::model
