#include "cache/history.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "cache/visible.h"

namespace quire {

History::History(const CacheLayout& layout, std::vector<std::unique_ptr<PagePool>>& pools,
                 Memory& memory)
    : groups(&memory), spans(&memory), layout_(&layout) {
  groups.reserve(pools.size());
  for (const auto& pool : pools) groups.push_back({RunTable(*pool), kNoFloor});
}

History::History(const History& other)
    : groups(other.groups, other.groups.get_allocator()),
      spans(other.spans, other.spans.get_allocator()),
      end_ordinal(other.end_ordinal),
      next_position(other.next_position),
      origin(other.origin),
      inexact_from(other.inexact_from),
      cross_length(other.cross_length),
      cross_owner(other.cross_owner),
      layout_(other.layout_) {}

void History::swap(History& other) noexcept {
  groups.swap(other.groups);
  spans.swap(other.spans);
  std::swap(end_ordinal, other.end_ordinal);
  std::swap(next_position, other.next_position);
  std::swap(origin, other.origin);
  std::swap(inexact_from, other.inexact_from);
  std::swap(cross_length, other.cross_length);
  std::swap(cross_owner, other.cross_owner);
}

const RunTable& History::longest() const noexcept {
  const RunTable* best = nullptr;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (layout_->is_cross(static_cast<int>(g))) continue;
    if (best == nullptr || groups[g].table.tokens() > best->tokens()) best = &groups[g].table;
  }
  return *best;
}

std::int64_t History::length_at(std::int64_t first) const noexcept {
  std::int64_t most = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (layout_->is_cross(static_cast<int>(g))) continue;
    const std::int64_t kept = kept_below(layout_->groups[g].pattern, layout_->spec.rollback);
    const RunTable& table = groups[g].table;
    std::int64_t left = table.tokens();
    if (kept != INT64_MAX) {
      left = 0;
      const auto count_run = [&](const Run& run, std::int64_t shift) {
        const std::int64_t* begin = run.page->positions + run.first;
        const std::int64_t* end = begin + run.count;
        left += end - std::lower_bound(begin, end, first - kept - run.turn - shift);
      };
      table.for_each(count_run, first - kept);
    }
    most = std::max(most, left);
  }
  return most;
}

std::int64_t History::snap(std::int64_t position) const noexcept {
  for (const PositionRange& span : spans) {
    if (span.begin < position && position < span.end) return span.begin;
  }
  return position;
}

bool History::holds_any(std::int64_t begin, std::int64_t end) const noexcept {
  const std::optional<RunTable::Spot> spot = longest().spot_at(begin);
  return spot && spot->position < end;
}

void History::drop_cross_owned_by(std::int64_t begin, std::int64_t end) noexcept {
  const std::int64_t from = std::max({begin, cross_owner.begin, origin});
  const std::int64_t to = std::min({end, cross_owner.end, next_position});
  if (!has_cross() || from >= to) return;
  // Tokens that every window has let go of were there once, and still own it.
  const bool evicted = length() == 0 || from < longest().first_position();
  if (evicted || holds_any(from, to)) drop_cross();
}

bool History::is_exact_point(const GroupHistory& group, std::size_t g, std::int64_t ordinal) const {
  const Group& shape = layout_->groups[g];
  const std::int64_t sealed_below = layout_->sealed_below(ordinal);
  bool exact = true;
  bool open_page = ordinal % layout_->spec.page_tokens == 0;  // none is needed at a boundary
  const auto& entries = group.table.entries();
  for (std::size_t e = entries.size(); e-- > 0;) {
    const Chunk& chunk = *entries[e].chunk;
    for (int i = chunk.count; i-- > 0;) {
      const Run& run = chunk.runs[i];
      if (run.count > 0 && run.ordinal >= ordinal) {
        // Cut away whole, but its page may still be the one that the point lies in.
        continue;
      }
      if (group.table.page_end(run) <= sealed_below) return exact && open_page;
      if (run.page->covers(ordinal)) open_page = true;
      exact = exact && (run.rows || shape.lossless);
    }
  }
  return exact && open_page;
}

Resume History::can_resume(std::int64_t position) const {
  if (end_ordinal == 0 || position < 0 || position > next_position || snap(position) != position) {
    return Resume::no;
  }
  if (position <= origin) return Resume::exact;
  if (length() > 0 && position < longest().first_position()) return Resume::no;
  std::int64_t ordinal = end_ordinal;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (layout_->is_cross(static_cast<int>(g))) continue;
    const GroupHistory& group = groups[g];
    if (!is_held(layout_->groups[g].pattern, position, group.floor)) {
      return Resume::no;
    }
    if (const auto spot = group.table.spot_at(position)) ordinal = std::min(ordinal, spot->ordinal);
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (layout_->is_cross(static_cast<int>(g))) continue;
    if (!is_exact_point(groups[g], g, ordinal)) return Resume::coded;
  }
  return Resume::exact;
}

void History::reset_tokens() noexcept {
  drop_cross();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (layout_->is_cross(static_cast<int>(g))) continue;
    groups[g].table.clear();
    groups[g].floor = kNoFloor;
  }
  spans.clear();
  spans.shrink_to_fit();
  end_ordinal = 0;
  next_position = 0;
  origin = 0;
  inexact_from = INT64_MAX;
}

void History::drop_cross() noexcept {
  if (layout_->cross_group >= 0) {
    groups[static_cast<std::size_t>(layout_->cross_group)].table.clear();
  }
  cross_length = 0;
  cross_owner = {};
}

void History::add_span(PositionRange span) {
  if (spans.empty() || spans.back().end <= span.begin) {
    spans.push_back(span);
  } else {
    spans.back().end = std::max(spans.back().end, span.end);
  }
}

void History::cut_to(std::int64_t ordinal, std::int64_t position) {
  drop_cross_owned_by(position, INT64_MAX);
  bool exact = true;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (layout_->is_cross(static_cast<int>(g))) continue;
    groups[g].table.cut_tail(ordinal);
    exact = exact && is_exact_point(groups[g], g, ordinal);
  }
  end_ordinal = ordinal;
  next_position = length() > 0 ? longest().last_position() + 1 : std::min(next_position, position);
  // Gaps in and at the end of spans go with the token behind them: later tokens there are not
  // theirs.
  while (!spans.empty() && spans.back().begin >= next_position) spans.pop_back();
  if (!spans.empty()) spans.back().end = std::min(spans.back().end, next_position);
  if (!exact) {
    inexact_from = std::min(inexact_from, ordinal);
  } else if (ordinal <= inexact_from) {
    inexact_from = INT64_MAX;
  }
}

Cut History::truncate(std::int64_t position) {
  Cut cut{false, snap(position)};
  if (end_ordinal > 0 && cut.at <= origin) {
    reset_tokens();
    cut.removed = true;
    return cut;
  }
  std::optional<std::int64_t> ordinal;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (layout_->is_cross(static_cast<int>(g))) continue;
    const std::optional<RunTable::Spot> found = groups[g].table.spot_at(cut.at);
    if (found && (!ordinal || found->ordinal < *ordinal)) ordinal = found->ordinal;
  }
  if (!ordinal) return cut;
  cut.removed = true;
  cut_to(*ordinal, cut.at);
  // Among tokens that a window has let go of, the cut's true ordinal is not known any more.
  const bool evicted = std::any_of(groups.begin(), groups.end(), [&](const GroupHistory& group) {
    return group.floor != kNoFloor && group.floor > cut.at;
  });
  if (evicted) inexact_from = 0;
  return cut;
}

Cut History::keep_last(std::int64_t count) {
  const std::int64_t held = length();
  if (count >= held) return {false, held > 0 ? longest().first_position() : next_position};
  if (count == 0) {
    const std::int64_t at = next_position;
    reset_tokens();
    return {true, at};
  }
  const std::int64_t first_dropped = longest().from_end(held - 1).ordinal;
  const RunTable::Spot first = longest().from_end(count - 1);
  drop_cross_owned_by(INT64_MIN, first.position);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (layout_->is_cross(static_cast<int>(g))) continue;
    GroupHistory& group = groups[g];
    const std::int64_t before = group.table.tokens();
    group.table.cut_front(first.ordinal, layout_->floor_page(end_ordinal));
    if (group.table.tokens() < before) group.floor = std::max(group.floor, first.position);
  }
  std::erase_if(spans, [&](const PositionRange& span) { return span.end <= first.position; });
  if (!spans.empty()) spans.front().begin = std::max(spans.front().begin, first.position);
  inexact_from = std::min(inexact_from, first_dropped);
  return {true, first.position};
}

void History::own_for_keep_last(std::int64_t count) {
  if (count == 0 || count >= length()) return;
  const RunTable::Spot first = longest().from_end(count - 1);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (layout_->is_cross(static_cast<int>(g))) continue;
    groups[g].table.own_front(first.ordinal, layout_->floor_page(end_ordinal));
  }
}

Result<Cut> History::shift_left(std::int64_t count) {
  const std::int64_t held = length();
  const std::int64_t first = held > 0 ? longest().first_position() : next_position;
  if (count == 0 || held == 0) return Cut{false, first};
  if (count >= held) return truncate(first);
  return remove(first, longest().from_end(held - 1 - count).position, false);
}

int History::unmovable_layer(int group) const noexcept {
  for (const int owner : layout_->groups[static_cast<std::size_t>(group)].owners) {
    const Layer& layer = layout_->layers[static_cast<std::size_t>(owner)];
    if (layer.rotation == Rotation::Kind::unknown) return owner;
  }
  return -1;
}

Result<Cut> History::remove(std::int64_t begin, std::int64_t end, bool leave_gap) {
  const Cut cut{holds_any(begin, end), begin};
  const bool later = length() > 0 && longest().last_position() >= end;
  if (!later) return cut.removed ? truncate(begin) : cut;
  const std::int64_t move = leave_gap ? 0 : end - begin;
  if (move == 0 && !cut.removed) return cut;
  for (std::size_t g = 0; g < groups.size() && move > 0; ++g) {
    if (layout_->is_cross(static_cast<int>(g)) || layout_->groups[g].movable) continue;
    return fail(ErrorCode::not_supported,
                "remove: tokens from {} on would move down by {}, and layer {} has no rotary data; "
                "say how its keys are rotated (LayerSpec::rotation), or leave a gap",
                end, move, unmovable_layer(static_cast<int>(g)));
  }
  drop_cross_owned_by(begin, end);
  const auto moved = [&](std::int64_t position) {
    if (position < begin) return position;
    return position < end ? (leave_gap ? end : begin) : position - move;
  };
  // An end that lies in the removed range falls on its start either way.
  const auto moved_range = [&](const PositionRange& range) -> PositionRange {
    return {moved(range.begin), range.end >= begin && range.end < end ? begin : moved(range.end)};
  };
  std::int64_t first_changed = end_ordinal;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (layout_->is_cross(static_cast<int>(g))) continue;
    GroupHistory& group = groups[g];
    if (const auto spot = group.table.spot_at(begin)) {
      first_changed = std::min(first_changed, spot->ordinal);
    }
    const bool at_front = group.table.tokens() > 0 && group.table.first_position() >= begin;
    const std::int64_t before = group.table.tokens();
    group.table.remove(begin, end, move);
    if (group.floor != kNoFloor) group.floor = moved(group.floor);
    if (leave_gap && at_front && group.table.tokens() < before) {
      group.floor = std::max(group.floor, group.table.first_position());
    }
    if (move > 0 && layout_->groups[g].by_function) {
      QUIRE_CHECK(rotate_by_function(g, begin, move));
    }
  }
  for (PositionRange& span : spans) span = moved_range(span);
  std::erase_if(spans, [](const PositionRange& span) { return span.begin >= span.end; });
  cross_owner = moved_range(cross_owner);
  origin = moved(origin);
  next_position -= move;
  inexact_from = std::min(inexact_from, first_changed);
  return cut;
}

bool History::evictable() const noexcept {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::int64_t kept = kept_below(layout_->groups[g].pattern, layout_->spec.rollback);
    const RunTable& table = groups[g].table;
    if (kept != INT64_MAX && table.tokens() > 0 && table.first_position() < next_position - kept) {
      return true;
    }
  }
  return false;
}

void History::evict(std::int64_t first) {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::int64_t kept = kept_below(layout_->groups[g].pattern, layout_->spec.rollback);
    if (kept == INT64_MAX) continue;
    GroupHistory& group = groups[g];
    const std::int64_t limit = first - kept;
    if (group.table.tokens() == 0 || group.table.first_position() >= limit) continue;
    const std::optional<RunTable::Spot> spot = group.table.spot_at(limit);
    group.table.cut_front(spot ? spot->ordinal : end_ordinal, layout_->rows_from(end_ordinal));
    group.floor = std::max(group.floor, limit);
  }
}

void History::copy_page(std::size_t group, const Run& run, Page& to) const {
  const Page& from = *run.page;
  PagePool& pool = groups[group].table.pool();
  std::copy_n(from.positions, pool.page_tokens(), to.positions);
  std::copy_n(from.keys, pool.page_tokens(), to.keys);
  const std::int64_t page_end = from.first_ordinal + from.slots;
  if (run.rows) {
    pool.add_rows(to);
    const auto filled = static_cast<int>(std::min(end_ordinal, page_end) - from.first_ordinal);
    for (const int owner : layout_->groups[group].owners) {
      copy_rows(layout_->layers[static_cast<std::size_t>(owner)].store, from.rows, filled, to.rows);
    }
  }
  // A page that is open here has no codes of its own: another sequence may be sealing it.
  const bool open = run.rows && page_end > end_ordinal;
  if (from.sealed != nullptr && !open) {
    pool.add_sealed(to);
    std::memcpy(to.sealed, from.sealed, pool.sealed_bytes());
  }
}

void History::let_go() noexcept {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (layout_->is_cross(static_cast<int>(g))) continue;
    groups[g].table.let_go(layout_->rows_from(end_ordinal), layout_->head_end);
  }
  // Spans that no group shows any more can no longer be cut.
  if (spans.empty() || length() == 0) return;
  const std::int64_t first = longest().first_position();
  std::erase_if(spans, [&](const PositionRange& span) { return span.end <= first; });
}

}  // namespace quire
