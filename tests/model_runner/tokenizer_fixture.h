// Where tokenizer and chat tests get their vocabularies and the truth from.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/gguf.h"
#include "model/tokenizer.h"

namespace quire::model::test {

using Json = nlohmann::json;

// The lines of a fixture that tokenizer_truth.py wrote.
inline std::vector<Json> truth(const std::string& name) {
  std::ifstream file(std::filesystem::path(QUIRE_FIXTURES) / name);
  std::vector<Json> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(Json::parse(line));
  EXPECT_FALSE(rows.empty()) << name << " is missing";
  return rows;
}

// The default model's file: QUIRE_MODEL, or its place in the cache folder. Nothing when it is not
// there.
inline std::optional<std::string> default_model() {
  if (const char* path = std::getenv("QUIRE_MODEL")) return path;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache == nullptr && home == nullptr) return std::nullopt;
  const auto folder =
      cache != nullptr ? std::filesystem::path(cache) : std::filesystem::path(home) / ".cache";
  const auto path = folder / "quire" / "SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path.string();
}

inline constexpr const char* kNoModel =
    "needs the default model: fetch it into the cache folder, or set QUIRE_MODEL to its path";

inline Vocabulary vocabulary_of(const std::string& path) {
  return read_vocabulary(Gguf::open(path).value()).value();
}

// All bytes, a few words and two special tokens. Ids 0 to 255 are the bytes.
struct SmallVocabulary : Vocabulary {
  SmallVocabulary() {
    model = "gpt2";
    pre = "gpt-2";
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
      add(utf8(printable ? byte : next++), 1);
    }
    for (const char* merge : {"h e", "l l", "he ll", "hell o", "Ġ hello", "l o", "Ġ Ġ"}) {
      add_merge(merge);
    }
    eos = add("<|end|>", 3);
    eot = add("<|turn|>", 3);
    user = add("<user>", 4);
  }

  int add(const std::string& text, int type) {
    tokens.push_back(text);
    types.push_back(type);
    return static_cast<int>(tokens.size()) - 1;
  }
  void add_merge(const std::string& merge) {
    merges.push_back(merge);
    std::string joined = merge;
    joined.erase(joined.find(' '), 1);
    add(joined, 1);
  }
  int id_of(const std::string& text) const {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] == text) return static_cast<int>(i);
    }
    return -1;
  }

  int user = -1;

 private:
  static std::string utf8(char32_t character) {
    if (character < 0x80) return {static_cast<char>(character)};
    return {static_cast<char>(0xc0 | character >> 6), static_cast<char>(0x80 | (character & 0x3f))};
  }
};

// The same with the marks of ChatML.
struct ChatVocabulary : SmallVocabulary {
  ChatVocabulary() {
    add("<|im_start|>", 3);
    eos = add("<|im_end|>", 3);
  }
};

}  // namespace quire::model::test
