#include "model/tokenizer_split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>

#include "model/error.h"
#include "model/tokenizer_utf8.h"

namespace quire::model {
namespace {

// The property White_Space. PCRE2's own \s adds U+180E, which is none since Unicode 6.3.
#define SPACES \
  R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"

// Spaces before a word belong to it up to one; the others are a piece.
constexpr const char* kSpaceRuns = "[" SPACES "]+(?![^" SPACES "])|[" SPACES "]+";

constexpr const char* kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^)" SPACES R"(\p{L}\p{N}]+|)";

// Numbers stand between the two halves: groups of up to three in Llama 3, digits in Qwen 2.
constexpr const char* kLlama3Words = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)";
constexpr const char* kLlama3Rest =
    "| ?[^" SPACES R"(\p{L}\p{N}]+[\r\n]*|[)" SPACES R"(]*[\r\n]+|)";
#undef SPACES

struct Rule {
  const char* name;
  std::vector<std::string> expressions;
};

std::vector<Rule> rules() {
  const std::string gpt2 = std::string(kGpt2Words) + kSpaceRuns;
  const auto llama3 = [](const char* numbers) {
    return std::string(kLlama3Words) + numbers + kLlama3Rest + kSpaceRuns;
  };
  return {
      {"", {gpt2}},
      {"default", {gpt2}},
      {"gpt-2", {gpt2}},
      {"smollm", {R"(\p{N})", gpt2}},
      {"llama-bpe", {llama3(R"(\p{N}{1,3})")}},
      {"llama3", {llama3(R"(\p{N}{1,3})")}},
      {"qwen2", {llama3(R"(\p{N})")}},
  };
}

Error error_of(const char* what, int number) {
  char text[256] = "";
  pcre2_get_error_message(number, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
  return {ErrorCode::internal, fmt::format("splitter: {}: {}", what, text)};
}

}  // namespace

struct Splitter::Expression {
  explicit Expression(const std::string& text) {
    int number = 0;
    PCRE2_SIZE offset = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), PCRE2_UTF, &number,
                         &offset, nullptr);
    // Where there is no such compiler the expression is interpreted.
    if (code != nullptr) pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  }
  ~Expression() { pcre2_code_free(code); }
  Expression(const Expression&) = delete;
  Expression& operator=(const Expression&) = delete;

  // Appends the matches in `text`, and what lies between them, to `pieces`.
  // Requires: `text` is valid UTF-8.
  Result<void> split(std::string_view text, std::vector<std::string_view>& pieces) const;

  pcre2_code* code = nullptr;
};

Result<void> Splitter::Expression::split(std::string_view text,
                                         std::vector<std::string_view>& pieces) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(code, nullptr), pcre2_match_data_free);
  if (!match) return Error{ErrorCode::out_of_memory, "splitter: no memory for a match"};
  std::size_t done = 0;
  while (done < text.size()) {
    const int found = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                  done, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) return error_of("match", found);
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
    if (range[0] > done) pieces.push_back(text.substr(done, range[0] - done));
    pieces.push_back(text.substr(range[0], range[1] - range[0]));
    done = range[1];
  }
  if (done < text.size()) pieces.push_back(text.substr(done));
  return {};
}

Result<Splitter> Splitter::create(const std::string& name) {
  std::string known;
  for (const Rule& rule : rules()) {
    if (rule.name != name) {
      if (*rule.name != '\0') known += fmt::format(" {}", rule.name);
      continue;
    }
    Splitter splitter;
    for (const std::string& text : rule.expressions) {
      splitter.expressions_.push_back(std::make_shared<const Expression>(text));
      if (splitter.expressions_.back()->code == nullptr) {
        return Error{ErrorCode::internal, "splitter: no expression from " + text};
      }
    }
    return splitter;
  }
  return Error{ErrorCode::not_supported,
               fmt::format("tokenizer: the rules \"{}\" for splitting text are unknown; known:{}",
                           name, known)};
}

Result<std::vector<std::string_view>> Splitter::split(std::string_view text) const {
  std::vector<std::string_view> pieces;
  std::vector<std::string_view> coarse, fine;
  const auto split_valid = [&](std::string_view valid) -> Result<void> {
    coarse = {valid};
    for (const auto& expression : expressions_) {
      fine.clear();
      for (const std::string_view piece : coarse) {
        MODEL_CHECK(expression->split(piece, fine));
      }
      coarse.swap(fine);
    }
    pieces.insert(pieces.end(), coarse.begin(), coarse.end());
    return {};
  };
  const auto end_of = [&](std::size_t at, bool valid) {
    while (at < text.size()) {
      const Utf8Front front = utf8_front(text.substr(at));
      if ((front.kind == Utf8::whole) != valid) break;
      at += front.bytes;
    }
    return at;
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t invalid = end_of(at, true);
    if (invalid > at) MODEL_CHECK(split_valid(text.substr(at, invalid - at)));
    at = end_of(invalid, false);
    if (at > invalid) pieces.push_back(text.substr(invalid, at - invalid));
  }
  return pieces;
}

}  // namespace quire::model
