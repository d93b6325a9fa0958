// What a query sees, by pattern: the one place where patterns become ranges.
#pragma once

#include <cstdint>

#include "quire/spec.hpp"

namespace quire {

// The lowest position that a query at `position` sees; INT64_MIN where nothing bounds it.
inline std::int64_t first_visible(const Pattern& pattern, std::int64_t position) noexcept {
  switch (pattern.kind) {
    case Pattern::Kind::window:
      return position - pattern.size + 1;
    case Pattern::Kind::chunked:
      return position - position % pattern.size;
    case Pattern::Kind::causal:
    case Pattern::Kind::cross:
      break;
  }
  return INT64_MIN;
}

// Whether all that a query at `position` sees is there when positions below `floor` are not.
inline bool is_held(const Pattern& pattern, std::int64_t position, std::int64_t floor) noexcept {
  if (pattern.kind != Pattern::Kind::window && pattern.kind != Pattern::Kind::chunked) return true;
  const std::int64_t first = first_visible(pattern, position);
  return (first > 0 ? first : 0) >= floor;
}

// What a query may see past itself, as ordinals of the batch's end.
struct Beyond {
  std::int64_t span_end = 0;      // the end of the span it lies in, or 0
  std::int64_t sequence_end = 0;  // the end of its sequence if it is an exception, or 0
};

struct Visible {
  std::int64_t first_position;  // seen from this position on
  std::int64_t end_ordinal;     // and below this ordinal
};

// Order is by ordinals: itself and all before; windows and chunks are by positions.
inline Visible visible(const Pattern& pattern, std::int64_t position, std::int64_t ordinal,
                       const Beyond& beyond) noexcept {
  if (pattern.kind == Pattern::Kind::cross) return {INT64_MIN, INT64_MAX};
  std::int64_t end = ordinal + 1;
  if (beyond.span_end > end) end = beyond.span_end;
  if (beyond.sequence_end > end) end = beyond.sequence_end;
  return {first_visible(pattern, position), end};
}

// Positions below the first token of a step that a window keeps when it commits: what the window
// remembers, and what `rollback` may undo. INT64_MAX where nothing is evicted.
inline std::int64_t kept_below(const Pattern& pattern, std::int64_t rollback) noexcept {
  return pattern.kind == Pattern::Kind::window ? pattern.memory - 1 + rollback : INT64_MAX;
}

}  // namespace quire
