#include "model/chat.h"

#include <algorithm>

#include "model/error.h"

namespace quire::model {
namespace {

// Templates that say one thing only, as they are written on one line.
constexpr std::string_view kLlama3 =
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
    "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim "
    "+ "
    "'<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
    "{{ content }}{% endfor %}";
constexpr std::string_view kLlama3Reply =
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}";
constexpr std::string_view kAlternate =
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}";
constexpr std::string_view kGemmaFront =
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}";
constexpr std::string_view kGemma =
    "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}"
    "{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + "
    "message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}";
constexpr std::string_view kGemmaReply = "{{'<start_of_turn>model\n'}}";
constexpr std::string_view kMistralFront = "{{ bos_token }}";
constexpr std::string_view kMistral =
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}"
    "{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}";
constexpr std::string_view kIfReply = "{% if add_generation_prompt %}";
constexpr std::string_view kEndIf = "{% endif %}";

// ChatML on one line. The default system message stands between the
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

std::string trimmed(std::string_view text) {
  constexpr std::string_view kWhite = " \t\n\v\f\r";
  const std::size_t first = text.find_first_not_of(kWhite);
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(kWhite) - first + 1));
}

bool is_plain_text(const std::string& text) {
  return text.find_first_of("'\\{}") == std::string::npos;
}

}  // namespace

Result<ChatTemplate> ChatTemplate::recognise(std::string_view text) {
  const std::string plain = with_line_breaks(text);
  Reader llama(plain);
  if (llama.take(kLlama3)) {
    // Older files write where the answer begins whether it is asked for or not.
    const bool asks = llama.take(kIfReply);
    if (llama.take(kLlama3Reply) && llama.take(asks ? kEndIf : "") && llama.at_end()) {
      return ChatTemplate(Form::llama3);
    }
  }
  Reader gemma(plain);
  if (gemma.take(kGemmaFront) && gemma.take(kAlternate) && gemma.take(kGemma) &&
      gemma.take(kIfReply) && gemma.take(kGemmaReply) && gemma.take(kEndIf) && gemma.at_end()) {
    return ChatTemplate(Form::gemma);
  }
  Reader mistral(plain);
  if (mistral.take(kMistralFront) && mistral.take(kAlternate) && mistral.take(kMistral) &&
      mistral.at_end()) {
    return ChatTemplate(Form::mistral);
  }
  ChatTemplate made(Form::chatml);
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
                  "without a default system message, as SmolLM2 and Qwen 2 have, Llama 3, Gemma "
                  "and Mistral 0.2); it begins \"{}\"",
                  text.size(), text.substr(0, 60))};
}

Result<void> ChatTemplate::check(const Message& message) const {
  const bool has_system = form_ == Form::chatml || form_ == Form::llama3;
  if (message.role == "system" && !has_system) {
    return refuse("chat: the model's template takes no system message");
  }
  return {};
}

// Up to where the content begins.
void ChatTemplate::add_begin(const std::string& role, std::vector<Part>& parts) const {
  switch (form_) {
    case Form::chatml:
      parts.push_back({"<|im_start|>", true});
      parts.push_back({role + "\n", false});
      break;
    case Form::llama3:
      parts.push_back({"<|start_header_id|>", true});
      parts.push_back({role, false});
      parts.push_back({"<|end_header_id|>", true});
      parts.push_back({"\n\n", false});
      break;
    case Form::gemma:
      parts.push_back({"<start_of_turn>", true});
      parts.push_back({(role == "assistant" ? "model" : role) + "\n", false});
      break;
    case Form::mistral:
      if (role == "user") parts.push_back({"[INST] ", false});
      break;
  }
}

void ChatTemplate::add_message(const Message& message, std::vector<Part>& parts) const {
  add_begin(message.role, parts);
  const bool trims = form_ == Form::llama3 || form_ == Form::gemma;
  const std::string content = trims ? trimmed(message.content) : message.content;
  const bool is_asked = form_ == Form::mistral && message.role == "user";
  if (parts.empty() || parts.back().is_mark) parts.push_back({"", false});
  parts.back().text += content + (is_asked ? " [/INST]" : "");
  if (!is_asked) add_end(parts);
}

void ChatTemplate::add_end(std::vector<Part>& parts) const {
  switch (form_) {
    case Form::chatml:
      parts.push_back({"<|im_end|>", true});
      parts.push_back({"\n", false});
      break;
    case Form::llama3:
      parts.push_back({"<|eot_id|>", true});
      break;
    case Form::gemma:
      parts.push_back({"<end_of_turn>", true});
      parts.push_back({"\n", false});
      break;
    case Form::mistral:
      parts.push_back({"</s>", true});
      break;
  }
}

void ChatTemplate::add_reply(std::vector<Part>& parts) const { add_begin("assistant", parts); }

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
                                                    const std::vector<Part>& parts,
                                                    bool bos) const {
  MODEL_TRY(std::vector<int> ids, tokenizer.encode("", {.bos = bos}));
  if (bos && ids.empty() && form_ != Form::chatml) {
    // The template puts the first token even where the tokenizer would not.
    const char* first = form_ == Form::llama3  ? "<|begin_of_text|>"
                        : form_ == Form::gemma ? "<bos>"
                                               : "<s>";
    if (const int id = tokenizer.find_special(first); id >= 0) ids.push_back(id);
  }
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
  for (const Message& message : messages) MODEL_CHECK(check(message));
  return encode_parts(tokenizer, parts_of(messages, reply), true);
}

Result<std::vector<int>> ChatTemplate::encode_turn(const Tokenizer& tokenizer,
                                                   const Message& message,
                                                   bool after_answer) const {
  MODEL_CHECK(check(message));
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
