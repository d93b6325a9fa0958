// How errors are made and passed on inside the library.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "quire/result.hpp"

namespace quire {

// An Error with a formatted text: what was asked, what was found, what bounds it.
template <typename... Args>
Error fail(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
  return {code, fmt::format(text, std::forward<Args>(args)...)};
}

}  // namespace quire

#define QUIRE_JOIN2(a, b) a##b
#define QUIRE_JOIN(a, b) QUIRE_JOIN2(a, b)

// QUIRE_TRY(const Layer* layer, find_layer(i)) declares `layer`, or returns the error.
#define QUIRE_TRY(declaration, expression)                                               \
  auto QUIRE_JOIN(try_, __LINE__) = (expression);                                        \
  if (!QUIRE_JOIN(try_, __LINE__)) return std::move(QUIRE_JOIN(try_, __LINE__)).error(); \
  declaration = std::move(*QUIRE_JOIN(try_, __LINE__))

// QUIRE_CHECK(validate(batch)) returns the error of a Result<void>, or goes on.
#define QUIRE_CHECK(expression)                                                   \
  do {                                                                            \
    if (auto checked = (expression); !checked) return std::move(checked).error(); \
  } while (false)
