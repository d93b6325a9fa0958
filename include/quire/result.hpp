// Errors as values: every fallible call of the C++ surface returns a Result<T>.
//
// A Result holds either a value or an Error, never both. Reading the value of a failed Result
// throws ResultError; nothing else in the public surface throws, prints, aborts or exits.
//
//     Result<Cache> cache = Cache::create(spec);
//     if (!cache) { log(cache.error().text); return; }
//     cache->open();
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "quire/export.h"

namespace quire {

// Stable numbers: they are the error numbers of the C ABI too and never change meaning.
enum class ErrorCode : int {
  ok = 0,
  invalid_spec = 1,        // a number or a combination in the CacheSpec is impossible
  out_of_range = 2,        // a layer, head, position or count outside what exists
  mismatch = 3,            // shape or dtype differs from the spec; keys and values told apart
  non_finite = 4,          // a value that is not finite, or not finite in its row type or scale
  unknown_sequence = 5,    // no such sequence in this cache (or the cache was closed)
  duplicate_position = 6,  // the position is taken in its sequence
  full = 7,                // past max_tokens, max_sequences or max_batch
  over_limit = 8,          // the byte limit does not allow it
  not_supported = 9,       // the spec does not allow this operation
  not_resumable = 10,      // would need tokens that a window has evicted
  busy = 11,               // a step is open on the sequence
  internal = 12,           // a fault of Quire's own
  out_of_memory = 13,      // the memory source has no more, below the byte limit
  wrong_state = 14,        // too early, too late or twice: attend before put, put twice, commit
                           // with a layer missing, any call on a finished step
  buffer_too_small = 15,   // the text names the size needed
  invalid_argument = 16,   // empty batch, null pointer, reversed range
};

// The name of a code as written above, for logs ("over_limit").
QUIRE_API const char* error_name(ErrorCode code) noexcept;

// What was asked, what was found and what bounds it, in one line.
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string text;
};

// Thrown by Result::value() on a failed Result only.
class QUIRE_API ResultError : public std::runtime_error {
 public:
  explicit ResultError(const Error& error)
      : std::runtime_error(std::string(error_name(error.code)) + ": " + error.text),
        code(error.code) {}
  ErrorCode code;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : held_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : held_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const noexcept { return held_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  // The value. Throws ResultError when there is none. Taken from a temporary it is moved out, so
  // that `for (const Token& token : sequence.tokens().value())` is safe.
  T& value() & { return require(), *std::get_if<0>(&held_); }
  const T& value() const& { return require(), *std::get_if<0>(&held_); }
  T value() && { return require(), std::move(*std::get_if<0>(&held_)); }

  // Requires: ok().
  T& operator*() & noexcept { return *std::get_if<0>(&held_); }
  const T& operator*() const& noexcept { return *std::get_if<0>(&held_); }
  T operator*() && noexcept { return std::move(*std::get_if<0>(&held_)); }
  T* operator->() noexcept { return std::get_if<0>(&held_); }
  const T* operator->() const noexcept { return std::get_if<0>(&held_); }

  // Requires: !ok().
  const Error& error() const& noexcept { return *std::get_if<1>(&held_); }
  Error&& error() && noexcept { return std::move(*std::get_if<1>(&held_)); }

  ErrorCode code() const noexcept { return ok() ? ErrorCode::ok : error().code; }

 private:
  void require() const {
    if (!ok()) throw ResultError(error());
  }
  std::variant<T, Error> held_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const noexcept { return !error_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  void value() const {
    if (error_) throw ResultError(*error_);
  }
  const Error& error() const& noexcept { return *error_; }
  Error&& error() && noexcept { return std::move(*error_); }
  ErrorCode code() const noexcept { return ok() ? ErrorCode::ok : error_->code; }

 private:
  std::optional<Error> error_;
};

}  // namespace quire
