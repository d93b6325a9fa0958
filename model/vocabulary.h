// A vocabulary is what a model file says about its tokens, as plain data.
//
// The GGUF reader fills it, the tokenizer is made from it. Ids are indices of `tokens`; an id of -1
// means that the model has no such token.
#pragma once

#include <string>
#include <vector>

namespace quire::model {

// The numbers are those of the file format.
enum TokenType : int { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6 };

struct Vocabulary {
  std::vector<std::string> tokens;  // the text of each id, in the file's own spelling
  std::vector<int> types;           // per id: a TokenType, or another number
  std::vector<std::string> merges;  // "left right", best first
  std::vector<float> scores;        // per id, of SentencePiece models: which pairs come first
  std::string model;                // the algorithm: "gpt2" for byte-level pairs, "llama", ...
  std::string pre;                  // how text is split before merging: "smollm", "qwen2", ...
  int bos = -1;
  int eos = -1;
  int eot = -1;  // ends a turn of a chat
  int pad = -1;
  bool add_bos = false;
  bool add_space = true;  // SentencePiece models: a text begins with a space
  std::string chat_template;
};

}  // namespace quire::model
