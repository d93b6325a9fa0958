// A splitter cuts text into the pieces inside which a byte-level tokenizer merges.
//
// Each model family has rules of its own, written as regular expressions over Unicode classes. A
// rule is a list of expressions: the first cuts the text into its matches and what lies between
// them, the next one cuts those pieces further, each piece as a text of its own.
//
// Expressions see valid UTF-8 only. Bytes that are none end the text before them, begin a new one
// after them, and each run of them is a piece. So any bytes can be split, and the pieces in order
// are the text.
//
// Thread-safety: a splitter is read-only after it was made; copies share the compiled expressions.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quire/result.hpp"

namespace quire::model {

class Splitter {
 public:
  // By the name that model files give their rules: "smollm", "llama-bpe" (also "llama3"), "qwen2",
  // "gpt-2" (also "default" and none). Others are refused: wrong pieces would give tokens that the
  // model never saw, and no error.
  static Result<Splitter> create(const std::string& name);

  // The pieces of a text, as views into it. Cost: linear in the text.
  Result<std::vector<std::string_view>> split(std::string_view text) const;

 private:
  struct Expression;
  std::vector<std::shared_ptr<const Expression>> expressions_;
};

}  // namespace quire::model
