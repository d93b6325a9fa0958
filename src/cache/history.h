// A history is all that a sequence holds: a run table per group, its ordinals and positions, its
// spans and its cross entry. It is a value: copying shares every page, edits work on a copy, and
// what a step will commit is a history too.
//
// Edits may throw MemoryError or return an error; the history they were called on is then good for
// nothing but destruction, so callers edit a copy and swap:
//
//     History next = sequence.history;
//     QUIRE_TRY(Cut cut, next.truncate(position));
//     sequence.history.swap(next);
//
// Thread-safety: the store's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <vector>

#include "cache/layout.h"
#include "page/table.h"
#include "quire/cache.hpp"

namespace quire {

inline constexpr std::int64_t kNoFloor = INT64_MIN;

struct GroupHistory {
  RunTable table;
  // Tokens below this position were dropped while later ones stayed where they were.
  std::int64_t floor = kNoFloor;
};

struct PositionRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

class History {
 public:
  History(const CacheLayout& layout, std::vector<std::unique_ptr<PagePool>>& pools, Memory& memory);
  History(const History& other);
  History(History&& other) noexcept = default;
  History& operator=(const History&) = delete;
  void swap(History& other) noexcept;

  // --- reading
  std::int64_t length() const noexcept { return longest().tokens(); }
  // Tokens that are left when a step begins at `first` and windows evict.
  std::int64_t length_at(std::int64_t first) const noexcept;
  const RunTable& longest() const noexcept;  // the table of the group that shows most tokens
  Resume can_resume(std::int64_t position) const;
  // The point a cut at `position` falls on: down to the start of a span that it would split.
  std::int64_t snap(std::int64_t position) const noexcept;
  bool is_exact() const noexcept { return inexact_from == INT64_MAX; }
  bool has_cross() const noexcept { return cross_length > 0; }

  // --- editing
  Cut truncate(std::int64_t position);
  Cut keep_last(std::int64_t count);
  // Makes what keep_last(count) changes this history's own, so that it cannot fail when called on
  // the history itself. Holds the same as before, also when it throws.
  void own_for_keep_last(std::int64_t count);
  Result<Cut> shift_left(std::int64_t count);
  Result<Cut> remove(std::int64_t begin, std::int64_t end, bool leave_gap);
  void drop_cross() noexcept;
  // Hides what lies below the position each window keeps when a step starts at `first`.
  void evict(std::int64_t first);
  // Whether evict(next_position) would hide anything.
  bool evictable() const noexcept;
  // Adds a span behind the others; one that meets the last, where positions may repeat, joins it.
  void add_span(PositionRange span);
  // Keeps the first `ordinal` tokens of what a step added; cannot fail on a step's own history.
  void cut_to(std::int64_t ordinal, std::int64_t position);
  void let_go() noexcept;
  // Makes `to`, a page of its own, hold what this history has of the page that `run` shows.
  void copy_page(std::size_t group, const Run& run, Page& to) const;

  const CacheLayout& layout() const noexcept { return *layout_; }

  std::pmr::vector<GroupHistory> groups;  // the cross group's table is the entry
  std::pmr::vector<PositionRange> spans;  // disjoint, ascending
  std::int64_t end_ordinal = 0;           // of the next token
  std::int64_t next_position = 0;         // last + 1; 0 when as new
  std::int64_t origin = 0;                // position of the first token there ever was
  std::int64_t inexact_from = INT64_MAX;  // tokens from this ordinal on are outside the law
  std::int64_t cross_length = 0;          // 0: no entry
  PositionRange cross_owner;

 private:
  bool is_exact_point(const GroupHistory& group, std::size_t g, std::int64_t ordinal) const;
  bool holds_any(std::int64_t begin, std::int64_t end) const noexcept;
  // Drops the cross entry if a token that owns it lies in [begin, end).
  void drop_cross_owned_by(std::int64_t begin, std::int64_t end) noexcept;
  void reset_tokens() noexcept;
  int unmovable_layer(int group) const noexcept;
  Result<void> rotate_by_function(std::size_t g, std::int64_t from, std::int64_t move);

  const CacheLayout* layout_;
};

}  // namespace quire
