#include "model/tokenizer_spm.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "model/error.h"
#include "model/tokenizer_utf8.h"

namespace quire::model {
namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581
constexpr std::size_t kNone = static_cast<std::size_t>(-1);

// "<0xE2>" as 0xE2.
std::optional<unsigned char> byte_named(std::string_view token) {
  unsigned value = 0;
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const auto [stop, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (error != std::errc() || stop != token.data() + 5) return std::nullopt;
  return static_cast<unsigned char>(value);
}

std::string with_marks(std::string_view text, bool add_space) {
  std::string marked(add_space ? kSpace : std::string_view());
  for (const char byte : text) {
    if (byte == ' ') {
      marked += kSpace;
    } else {
      marked += byte;
    }
  }
  return marked;
}

// A part of the text. Joined to the one before it, it is empty.
struct Symbol {
  std::string_view text;
  std::size_t before, after;
  bool is_defined;
};

// Neighbours that could be joined when they were seen; they still are if they have the same size.
struct Candidate {
  float score;
  std::size_t left, right;
  std::size_t bytes;
};

// A heap has its largest in front: the candidate whose turn it is must be the largest.
bool waits_for(const Candidate& a, const Candidate& b) {
  return a.score != b.score ? a.score < b.score : a.left > b.left;
}

}  // namespace

Result<SpmEncoder> SpmEncoder::create(const Vocabulary& vocabulary) {
  if (vocabulary.scores.size() != vocabulary.tokens.size()) {
    return refuse("tokenizer: {} scores for {} tokens", vocabulary.scores.size(),
                  vocabulary.tokens.size());
  }
  SpmEncoder made;
  made.id_of_byte_.fill(-1);
  made.add_space_ = vocabulary.add_space;
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::string& text = vocabulary.tokens[i];
    const int type = vocabulary.types.empty() ? kNormal : vocabulary.types[i];
    const Piece piece{static_cast<int>(i), vocabulary.scores[i]};
    if (std::isnan(piece.score)) return refuse("tokenizer: the score of token {} is no number", i);
    if (text.empty()) continue;
    if (type == kNormal) {
      made.pieces_.emplace(text, piece);
    } else if (type == kUserDefined) {
      made.defined_.emplace(text, piece);
      made.longest_defined_ = std::max(made.longest_defined_, text.size());
    } else if (type == kUnknown && made.unknown_ < 0) {
      made.unknown_ = piece.id;
    } else if (const auto byte = byte_named(text); type == kByte && byte) {
      made.id_of_byte_[*byte] = piece.id;
    }
  }
  return made;
}

// The size of the longest token defined by hand at the front of a text; 0: none.
std::size_t SpmEncoder::defined_at(std::string_view text) const {
  for (std::size_t size = std::min(longest_defined_, text.size()); size > 0; --size) {
    if (defined_.contains(text.substr(0, size))) return size;
  }
  return 0;
}

void SpmEncoder::encode(std::string_view text, std::vector<int>& ids) const {
  if (text.empty()) return;
  const std::string marked = with_marks(text, add_space_);
  std::vector<Symbol> symbols;
  for (std::string_view rest = marked; !rest.empty();) {
    const std::size_t defined = defined_at(rest);
    const Utf8Front front = utf8_front(rest);
    const std::size_t bytes = defined > 0 ? defined : front.kind == Utf8::whole ? front.bytes : 1;
    const std::size_t index = symbols.size();
    symbols.push_back({rest.substr(0, bytes), index - 1, index + 1, defined > 0});
    rest.remove_prefix(bytes);
  }
  symbols.back().after = kNone;

  std::vector<Candidate> heap;
  const auto consider = [&](std::size_t left, std::size_t right) {
    if (left == kNone || right == kNone) return;
    const Symbol &a = symbols[left], &b = symbols[right];
    if (a.is_defined || b.is_defined) return;
    const std::size_t bytes = a.text.size() + b.text.size();
    const auto found = pieces_.find(std::string_view(a.text.data(), bytes));
    if (found == pieces_.end()) return;
    heap.push_back({found->second.score, left, right, bytes});
    std::push_heap(heap.begin(), heap.end(), waits_for);
  };
  for (std::size_t i = 1; i < symbols.size(); ++i) consider(i - 1, i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), waits_for);
    const Candidate next = heap.back();
    heap.pop_back();
    Symbol &left = symbols[next.left], &right = symbols[next.right];
    if (left.text.empty() || right.text.empty() ||
        left.text.size() + right.text.size() != next.bytes) {
      continue;
    }
    left.text = {left.text.data(), next.bytes};
    right.text = {};
    left.after = right.after;
    if (left.after != kNone) symbols[left.after].before = next.left;
    consider(left.before, next.left);
    consider(next.left, left.after);
  }

  for (const Symbol& symbol : symbols) {
    if (symbol.text.empty()) continue;
    const Pieces& known = symbol.is_defined ? defined_ : pieces_;
    if (const auto found = known.find(symbol.text); found != known.end()) {
      ids.push_back(found->second.id);
      continue;
    }
    const bool has_bytes = std::all_of(symbol.text.begin(), symbol.text.end(), [&](char byte) {
      return id_of_byte(static_cast<unsigned char>(byte)) >= 0;
    });
    if (has_bytes) {
      for (const char byte : symbol.text)
        ids.push_back(id_of_byte(static_cast<unsigned char>(byte)));
    } else if (unknown_ >= 0) {
      ids.push_back(unknown_);
    }
  }
}

std::string SpmEncoder::bytes_of(const std::string& token, int type) {
  if (type == kByte) {
    if (const auto byte = byte_named(token)) return std::string(1, static_cast<char>(*byte));
  }
  std::string bytes;
  for (std::string_view rest = token; !rest.empty();) {
    const bool is_space = rest.starts_with(kSpace);
    bytes += is_space ? ' ' : rest.front();
    rest.remove_prefix(is_space ? kSpace.size() : 1);
  }
  return bytes;
}

}  // namespace quire::model
