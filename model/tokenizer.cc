#include "model/tokenizer.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "model/error.h"

namespace quire::model {
namespace {

// Vocabularies of this kind write bytes as characters that can be seen: printable Latin-1 as
// itself, the 68 other bytes in order as U+0100 and up.
struct Alphabet {
  Alphabet() {
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
      const char32_t character = printable ? byte : next++;
      byte_of_[character] = static_cast<char>(byte);
    }
  }

  // The bytes that a token's text stands for; nothing when a character is not of the alphabet.
  std::optional<std::string> bytes_of(std::string_view text) const {
    std::string bytes;
    while (!text.empty()) {
      const Utf8Front front = utf8_front(text);
      const auto found = byte_of_.find(front.character);
      if (front.kind != Utf8::whole || found == byte_of_.end()) return std::nullopt;
      bytes += found->second;
      text.remove_prefix(front.bytes);
    }
    return bytes;
  }

 private:
  std::unordered_map<char32_t, char> byte_of_;
};

using TokenIds = std::unordered_map<std::string_view, int>;

Result<void> check(const Vocabulary& vocabulary) {
  if (vocabulary.model != "gpt2" && vocabulary.model != "llama") {
    return Error{ErrorCode::not_supported,
                 fmt::format("tokenizer: the algorithm \"{}\" is unknown; known: gpt2 (byte-level "
                             "byte-pair encoding) and llama (SentencePiece's)",
                             vocabulary.model)};
  }
  const std::size_t size = vocabulary.tokens.size();
  if (size == 0) return refuse("tokenizer: the vocabulary has no tokens");
  if (!vocabulary.types.empty() && vocabulary.types.size() != size) {
    return refuse("tokenizer: {} types for {} tokens", vocabulary.types.size(), size);
  }
  for (const auto& [name, id] : {std::pair{"bos", vocabulary.bos},
                                 {"eos", vocabulary.eos},
                                 {"eot", vocabulary.eot},
                                 {"pad", vocabulary.pad}}) {
    if (id < -1 || id >= static_cast<int>(size)) {
      return refuse("tokenizer: {} is {}, outside {} tokens", name, id, size);
    }
  }
  return {};
}

Result<void> add_merge(const TokenIds& ids, std::size_t rank, const std::string& merge,
                       Merger& merger) {
  const auto fault = [&](const std::string& what) {
    return refuse("tokenizer: merge {} \"{}\": {}", rank, merge, what);
  };
  const std::size_t space = merge.find(' ');
  if (space == std::string::npos || merge.find(' ', space + 1) != std::string::npos) {
    return fault("not two texts with a space between them");
  }
  const std::string left = merge.substr(0, space);
  const std::string right = merge.substr(space + 1);
  const std::string joined = left + right;
  for (const std::string& text : {left, right, joined}) {
    if (!ids.contains(text)) return fault(fmt::format("\"{}\" is no token", text));
  }
  if (!merger.add(ids.at(left), ids.at(right), ids.at(joined))) return fault("given before");
  return {};
}

}  // namespace

Result<Tokenizer> Tokenizer::create(const Vocabulary& vocabulary) {
  MODEL_CHECK(check(vocabulary));
  Tokenizer made;
  const bool is_spm = vocabulary.model == "llama";
  if (is_spm) {
    MODEL_TRY(made.spm_, SpmEncoder::create(vocabulary));
  } else {
    MODEL_TRY(made.splitter_, Splitter::create(vocabulary.pre));
  }
  // Llama 3 takes a piece that is a token as it is, though merges might not lead there.
  const bool takes_whole = vocabulary.pre == "llama-bpe" || vocabulary.pre == "llama3";
  const Alphabet alphabet;
  TokenIds ids;
  made.id_of_byte_.fill(-1);
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::string& text = vocabulary.tokens[i];
    const int id = static_cast<int>(i);
    const int type = vocabulary.types.empty() ? 1 : vocabulary.types[i];
    const bool special = type == kControl || type == kUserDefined;
    made.control_.push_back(type == kControl);
    // What is not written in the alphabet stands for itself.
    made.bytes_.push_back(is_spm    ? SpmEncoder::bytes_of(text, type)
                          : special ? text
                                    : alphabet.bytes_of(text).value_or(text));
    ids.emplace(text, id);
    if (special) {
      if (text.empty()) continue;
      made.special_.emplace(text, id);
      made.special_sizes_.push_back(text.size());
      made.special_first_[static_cast<unsigned char>(text[0])] = true;
      continue;
    }
    const std::string& bytes = made.bytes_.back();
    if (bytes.size() == 1 && (!is_spm || type == kByte)) {
      int& id_of_byte = made.id_of_byte_[static_cast<unsigned char>(bytes[0])];
      if (id_of_byte < 0) id_of_byte = id;
    }
    if (takes_whole) made.whole_.emplace(bytes, id);
  }
  std::sort(made.special_sizes_.begin(), made.special_sizes_.end(), std::greater<>());
  made.special_sizes_.erase(std::unique(made.special_sizes_.begin(), made.special_sizes_.end()),
                            made.special_sizes_.end());
  for (std::size_t rank = 0; rank < vocabulary.merges.size() && !is_spm; ++rank) {
    MODEL_CHECK(add_merge(ids, rank, vocabulary.merges[rank], made.merger_));
  }
  if (vocabulary.add_bos) made.bos_ = vocabulary.bos;
  made.eos_ = vocabulary.eos;
  made.eot_ = vocabulary.eot;
  return made;
}

Result<void> Tokenizer::encode_text(std::string_view text, std::vector<int>& ids) const {
  if (spm_) {
    spm_->encode(text, ids);
    return {};
  }
  MODEL_TRY(const std::vector<std::string_view> pieces, splitter_->split(text));
  std::vector<int> row;
  for (const std::string_view piece : pieces) {
    if (!whole_.empty()) {
      if (const auto found = whole_.find(std::string(piece)); found != whole_.end()) {
        ids.push_back(found->second);
        continue;
      }
    }
    row.clear();
    for (const char byte : piece) {
      const int id = id_of_byte_[static_cast<unsigned char>(byte)];
      if (id >= 0) row.push_back(id);
    }
    merger_.merge(row, ids);
  }
  return {};
}

Result<std::vector<int>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::vector<int> ids;
  if (options.bos && bos_ >= 0) ids.push_back(bos_);
  std::size_t begin = 0;  // of the text since the last special token
  std::size_t at = options.parse_special ? 0 : text.size();
  while (at < text.size()) {
    std::size_t size = 0;
    if (special_first_[static_cast<unsigned char>(text[at])]) {
      for (const std::size_t candidate : special_sizes_) {
        if (candidate > text.size() - at) continue;
        const auto found = special_.find(std::string(text.substr(at, candidate)));
        if (found == special_.end()) continue;
        size = candidate;
        MODEL_CHECK(encode_text(text.substr(begin, at - begin), ids));
        ids.push_back(found->second);
        break;
      }
    }
    at += std::max<std::size_t>(size, 1);
    if (size > 0) begin = at;
  }
  MODEL_CHECK(encode_text(text.substr(begin), ids));
  return ids;
}

Result<std::string> Tokenizer::decode(std::span<const int> ids, bool show_control) const {
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= size()) {
      return Error{ErrorCode::out_of_range,
                   fmt::format("decode: id {} at {} of {} is outside the vocabulary of {}", ids[i],
                               i, ids.size(), size())};
    }
    const auto id = static_cast<std::size_t>(ids[i]);
    if (show_control || !control_[id]) text += bytes_[id];
  }
  return text;
}

bool Tokenizer::has_all_bytes() const {
  return std::find(id_of_byte_.begin(), id_of_byte_.end(), -1) == id_of_byte_.end();
}

int Tokenizer::find_special(std::string_view text) const {
  const auto found = special_.find(std::string(text));
  return found == special_.end() ? -1 : found->second;
}

}  // namespace quire::model
