// Pieces of text as SentencePiece finds them in its byte-pair mode: the tokenizers of the first
// Llamas, of Mistral and of Gemma.
//
// Spaces become U+2581 ("▁"), and one is put first where the model wants it. The text then is a row
// of characters, of which neighbours are joined as long as any two make a token together: those of
// the highest score first, the leftmost of equals. A character that is left and is no token is
// written as the tokens of its bytes ("<0xE2>"), or as the unknown token where there are none.
// Tokens that the model's makers defined by hand are found first, the longest, and never joined.
// Text is not normalised otherwise, as in the models named. Bytes that are no UTF-8 are characters
// of their own.
//
// Thread-safety: read-only after it was made.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/vocabulary.h"
#include "quire/result.hpp"

namespace quire::model {

class SpmEncoder {
 public:
  // Refused: not a score for each token, or one that is no number.
  static Result<SpmEncoder> create(const Vocabulary& vocabulary);

  // Appends the ids of a text. Cost: n log n.
  void encode(std::string_view text, std::vector<int>& ids) const;

  // The bytes that a token stands for: spaces are spaces again, "<0xE2>" is a byte.
  static std::string bytes_of(const std::string& token, int type);
  // -1: there is none.
  int id_of_byte(unsigned char byte) const { return id_of_byte_[byte]; }

 private:
  struct Piece {
    int id;
    float score;
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  using Pieces = std::unordered_map<std::string, Piece, Hash, std::equal_to<>>;

  std::size_t defined_at(std::string_view text) const;

  Pieces pieces_;   // that may be made by joining, and characters
  Pieces defined_;  // by hand
  std::size_t longest_defined_ = 0;
  std::array<int, 256> id_of_byte_{};
  int unknown_ = -1;
  bool add_space_ = true;
};

}  // namespace quire::model
