// A tokenizer turns text into the token ids of a model, and ids into bytes.
//
// Most models use byte-level byte-pair encoding: text is split into pieces (tokenizer_split.h),
// each byte of a piece becomes the token of that byte, and neighbours merge by rank
// (tokenizer_merge.h). Tokens stand for bytes, so every text can be encoded, valid UTF-8 or not,
// and decoding gives its bytes back. The exception are vocabularies without a token for some byte
// (the default model lacks 21, among them 04 and those that UTF-8 never uses): such a byte is left
// out before merging, as Hugging Face's tokenizers does. has_all_bytes() tells.
//
// Others use SentencePiece's (tokenizer_spm.h). Decoding then gives back the space that encoding
// put first.
//
// Text is taken as it is: no Unicode normalisation. The Hugging Face tokenizer of Qwen composes
// characters (NFC) first; for text that is not composed already its ids differ from these.
//
// Control tokens ("<|im_end|>") are found in text only when asked for, so that text from outside
// cannot pose as the frame of a conversation. So are user-defined ones, except with SentencePiece,
// which always finds them.
//
// Thread-safety: a tokenizer is read-only after it was made.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/tokenizer_merge.h"
#include "model/tokenizer_split.h"
#include "model/tokenizer_spm.h"
#include "model/tokenizer_utf8.h"
#include "model/vocabulary.h"
#include "quire/result.hpp"

namespace quire::model {

struct EncodeOptions {
  bool parse_special = false;  // find control and user-defined tokens by their text
  bool bos = false;            // begin with the model's first token, if it wants one
};

class Tokenizer {
 public:
  // Refused are: an algorithm or splitting rules that are unknown, no tokens, types or special ids
  // that do not fit them, merges that name unknown tokens.
  static Result<Tokenizer> create(const Vocabulary& vocabulary);

  // Cost: linear in the text, but n log n in the size of a piece.
  Result<std::vector<int>> encode(std::string_view text, EncodeOptions options = {}) const;

  // The bytes of tokens. Control tokens are shown as their text, or left out. An id outside the
  // vocabulary is refused. For text that comes token by token see Utf8Stream.
  Result<std::string> decode(std::span<const int> ids, bool show_control = true) const;

  int size() const { return static_cast<int>(bytes_.size()); }
  bool has_all_bytes() const;
  // The id of a control or user-defined token by its text; -1: none.
  int find_special(std::string_view text) const;
  // Whether a model that produces this token has ended its turn.
  bool is_end(int id) const { return id >= 0 && (id == eos_ || id == eot_); }

 private:
  Tokenizer() = default;

  Result<void> encode_text(std::string_view text, std::vector<int>& ids) const;

  std::optional<SpmEncoder> spm_;  // what follows up to `whole_` is of byte-level vocabularies
  std::optional<Splitter> splitter_;
  Merger merger_;
  std::vector<std::string> bytes_;  // of each id
  std::vector<bool> control_;       // per id
  std::array<int, 256> id_of_byte_{};
  std::unordered_map<std::string, int> whole_;    // pieces that are tokens without merging
  std::unordered_map<std::string, int> special_;  // by text
  std::vector<std::size_t> special_sizes_;        // of their texts, longest first
  std::array<bool, 256> special_first_{};         // bytes that such texts begin with
  int bos_ = -1;                                  // -1 also when the model does not want it
  int eos_ = -1;
  int eot_ = -1;
};

}  // namespace quire::model
