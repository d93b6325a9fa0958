// How errors are made and passed on inside the runner, which sees only the public headers of Quire.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "quire/result.hpp"

namespace quire::model {

// An Error with a formatted text: what was asked, what was found, what bounds it.
template <typename... Args>
Error refuse(fmt::format_string<Args...> text, Args&&... args) {
  return {ErrorCode::invalid_argument, fmt::format(text, std::forward<Args>(args)...)};
}

}  // namespace quire::model

#define MODEL_JOIN2(a, b) a##b
#define MODEL_JOIN(a, b) MODEL_JOIN2(a, b)

// MODEL_TRY(const std::int64_t layers, file.integer(key)) declares `layers`, or returns the error.
#define MODEL_TRY(declaration, expression)                                               \
  auto MODEL_JOIN(try_, __LINE__) = (expression);                                        \
  if (!MODEL_JOIN(try_, __LINE__)) return std::move(MODEL_JOIN(try_, __LINE__)).error(); \
  declaration = std::move(*MODEL_JOIN(try_, __LINE__))

// MODEL_CHECK(step.commit()) returns the error, or goes on.
#define MODEL_CHECK(expression)                                                   \
  do {                                                                            \
    if (auto checked = (expression); !checked) return std::move(checked).error(); \
  } while (false)
