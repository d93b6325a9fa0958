#include "page/table.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

namespace quire {
namespace {

// Below every position, and far enough from the end of its type to be shifted.
constexpr std::int64_t kFar = INT64_MAX / 2;

std::int64_t tokens_of(const Chunk& chunk) noexcept {
  std::int64_t tokens = 0;
  for (int i = 0; i < chunk.count; ++i) tokens += chunk.runs[i].count;
  return tokens;
}

}  // namespace

RunTable::RunTable(PagePool& pool) : pool_(&pool), entries_(&pool.memory()) {}

RunTable::RunTable(const RunTable& other)
    : pool_(other.pool_), entries_(other.entries_, &other.pool_->memory()), tokens_(other.tokens_) {
  for (const Entry& entry : entries_) ++entry.chunk->refs;
}

RunTable::RunTable(RunTable&& other) noexcept
    : pool_(other.pool_),
      entries_(std::move(other.entries_)),
      tokens_(std::exchange(other.tokens_, 0)) {
  other.entries_.clear();
}

RunTable::~RunTable() { clear(); }

void RunTable::swap(RunTable& other) noexcept {
  std::swap(pool_, other.pool_);
  entries_.swap(other.entries_);
  std::swap(tokens_, other.tokens_);
}

void RunTable::clear() noexcept {
  for (const Entry& entry : entries_) release_chunk(entry.chunk);
  entries_.clear();
  entries_.shrink_to_fit();  // an emptied sequence takes no more than a new one
  tokens_ = 0;
}

// --- chunks and runs -------------------------------------------------------------------------

Chunk* RunTable::make_chunk() {
  return new (pool_->memory().allocate(sizeof(Chunk), alignof(Chunk))) Chunk;
}

void RunTable::release_chunk(PagePool& pool, Chunk* chunk) noexcept {
  if (--chunk->refs > 0) return;
  for (int i = 0; i < chunk->count; ++i) release_run(pool, chunk->runs[i]);
  pool.memory().deallocate(chunk, sizeof(Chunk), alignof(Chunk));
}

void RunTable::retain_run(const Run& run) noexcept {
  pool_->retain(*run.page);
  if (run.rows) pool_->retain_rows(*run.page);
}

void RunTable::release_run(PagePool& pool, const Run& run) noexcept {
  if (run.rows) pool.release_rows(*run.page);
  pool.release(*run.page);
}

RunTable::Pin::Pin(const RunTable& table) : pool_(table.pool_) {
  chunks_.reserve(table.entries_.size());
  for (const Entry& entry : table.entries_) {
    ++entry.chunk->refs;
    chunks_.push_back(entry.chunk);
  }
}

RunTable::Pin::~Pin() {
  for (Chunk* chunk : chunks_) release_chunk(*pool_, chunk);
}

Chunk& RunTable::own(std::size_t entry) {
  Chunk*& chunk = entries_[entry].chunk;
  if (chunk->refs == 1) return *chunk;
  Chunk* copy = make_chunk();
  copy->count = chunk->count;
  for (int i = 0; i < chunk->count; ++i) {
    copy->runs[i] = chunk->runs[i];
    retain_run(copy->runs[i]);
  }
  --chunk->refs;
  chunk = copy;
  return *copy;
}

void RunTable::erase_runs(std::size_t entry, int begin, int end) noexcept {
  Chunk& chunk = *entries_[entry].chunk;
  assert(chunk.refs == 1);
  for (int i = begin; i < end; ++i) {
    tokens_ -= chunk.runs[i].count;
    release_run(chunk.runs[i]);
  }
  std::copy(chunk.runs + end, chunk.runs + chunk.count, chunk.runs + begin);
  chunk.count -= end - begin;
}

// --- looking ---------------------------------------------------------------------------------

const Run& RunTable::last() const noexcept {
  const Chunk& chunk = *entries_.back().chunk;
  return chunk.runs[chunk.count - 1];
}

std::int64_t RunTable::last_position_of(const Entry& entry) const noexcept {
  const Run& run = entry.chunk->runs[entry.chunk->count - 1];
  if (run.count == 0) return -kFar;
  return position(run, run.first + run.count - 1, entry.shift);
}

std::size_t RunTable::entry_of(std::int64_t position) const noexcept {
  const auto found =
      std::partition_point(entries_.begin(), entries_.end(),
                           [&](const Entry& entry) { return last_position_of(entry) < position; });
  return static_cast<std::size_t>(found - entries_.begin());
}

std::optional<RunTable::Place> RunTable::find(std::int64_t position_wanted) const noexcept {
  for (std::size_t e = entry_of(position_wanted); e < entries_.size(); ++e) {
    const Chunk& chunk = *entries_[e].chunk;
    for (int i = 0; i < chunk.count; ++i) {
      const Run& run = chunk.runs[i];
      if (run.count > 0 &&
          position(run, run.first + run.count - 1, entries_[e].shift) >= position_wanted) {
        return Place{e, i};
      }
    }
  }
  return std::nullopt;
}

std::optional<RunTable::Spot> RunTable::spot_at(std::int64_t position_wanted) const noexcept {
  const std::optional<Place> place = find(position_wanted);
  if (!place) return std::nullopt;
  const Entry& entry = entries_[place->entry];
  const Run& run = entry.chunk->runs[place->run];
  const std::int64_t turn = run.turn + entry.shift;
  const std::int64_t* begin = run.page->positions + run.first;
  const std::int64_t* found = std::lower_bound(begin, begin + run.count, position_wanted - turn);
  return Spot{run.ordinal + (found - begin), *found + turn};
}

std::int64_t RunTable::first_position() const noexcept {
  assert(tokens_ > 0);
  return spot_at(-kFar)->position;
}

std::int64_t RunTable::last_position() const noexcept {
  assert(tokens_ > 0);
  return last_position_of(entries_.back());
}

RunTable::Spot RunTable::from_end(std::int64_t n) const noexcept {
  for (std::size_t e = entries_.size(); e-- > 0;) {
    const Chunk& chunk = *entries_[e].chunk;
    for (int i = chunk.count; i-- > 0;) {
      const Run& run = chunk.runs[i];
      if (n < run.count) {
        const int slot = run.count - 1 - static_cast<int>(n);
        return {run.ordinal + slot, position(run, run.first + slot, entries_[e].shift)};
      }
      n -= run.count;
    }
  }
  assert(false && "fewer tokens than asked for");
  return {};
}

// --- growing ---------------------------------------------------------------------------------

void RunTable::push(const Run& run) {
  const bool fits = !entries_.empty() && entries_.back().chunk->refs == 1 &&
                    entries_.back().chunk->count < kChunkRuns;
  if (!fits) {
    if (entries_.size() == entries_.capacity()) entries_.reserve(2 * entries_.size() + 2);
    entries_.push_back({make_chunk(), 0});
  }
  const Entry& entry = entries_.back();
  Run& added = entry.chunk->runs[entry.chunk->count++];
  added = run;
  added.turn -= entry.shift;
  retain_run(added);
  tokens_ += run.count;
}

void RunTable::push_entry(const Entry& entry) {
  entries_.push_back(entry);
  ++entry.chunk->refs;
  tokens_ += tokens_of(*entry.chunk);
}

void RunTable::append(Page& page, int slot, int count, std::int64_t ordinal) {
  if (!entries_.empty()) {
    const Run& run = last();
    if (run.page == &page && run.first + run.count == slot && run.end_ordinal() == ordinal &&
        run.turn + entries_.back().shift == 0 && run.rows == (page.rows != nullptr)) {
      Chunk& chunk = own(entries_.size() - 1);
      Run& grown = chunk.runs[chunk.count - 1];
      grown.count = static_cast<std::int16_t>(grown.count + count);
      tokens_ += count;
      return;
    }
  }
  Run run;
  run.page = &page;
  run.ordinal = ordinal;
  run.first = static_cast<std::int16_t>(slot);
  run.count = static_cast<std::int16_t>(count);
  run.rows = page.rows != nullptr;
  push(run);
}

// --- ownership and rows ----------------------------------------------------------------------

void RunTable::own_tail(std::int64_t head_end) {
  for (std::size_t e = entries_.size(); e-- > 0;) {
    const Chunk& chunk = *entries_[e].chunk;
    const bool needed = e + 1 == entries_.size() ||
                        std::any_of(chunk.runs, chunk.runs + chunk.count, [&](const Run& run) {
                          return run.rows && page_end(run) > head_end;
                        });
    if (!needed) return;
    own(e);
  }
}

void RunTable::remap_tail(const Page& from, Page& to) noexcept {
  for (std::size_t e = entries_.size(); e-- > 0;) {
    Chunk& chunk = *entries_[e].chunk;
    for (int i = chunk.count; i-- > 0;) {
      Run& run = chunk.runs[i];
      if (run.page != &from || chunk.refs != 1) return;
      Run moved = run;
      moved.page = &to;
      moved.rows = true;
      retain_run(moved);
      release_run(run);
      run = moved;
    }
  }
}

void RunTable::replace_page(Place place, const Page& from, Page& to) {
  // Runs of one page stand next to each other, perhaps across a chunk's end.
  const auto shows = [&](std::size_t e) {
    const Chunk& chunk = *entries_[e].chunk;
    return std::any_of(chunk.runs, chunk.runs + chunk.count,
                       [&](const Run& run) { return run.page == &from; });
  };
  std::size_t begin = place.entry;
  while (begin > 0 && shows(begin - 1)) --begin;
  for (std::size_t e = begin; e < entries_.size() && shows(e); ++e) {
    Chunk& chunk = own(e);
    for (int i = 0; i < chunk.count; ++i) {
      if (chunk.runs[i].page != &from) continue;
      Run moved = chunk.runs[i];
      moved.page = &to;
      retain_run(moved);
      release_run(chunk.runs[i]);
      chunk.runs[i] = moved;
    }
  }
}

void RunTable::let_go(std::int64_t ordinal, std::int64_t head_end) noexcept {
  for (std::size_t e = entries_.size(); e-- > 0;) {
    Chunk& chunk = *entries_[e].chunk;
    if (chunk.refs != 1) break;
    for (int i = 0; i < chunk.count; ++i) {
      Run& run = chunk.runs[i];
      if (run.rows && page_end(run) <= ordinal && page_end(run) > head_end) {
        run.rows = false;
        pool_->release_rows(*run.page);
      }
    }
  }
  // Hidden runs stand at the front; those whose page has ended are of no more use.
  while (!entries_.empty() && entries_.front().chunk->refs == 1) {
    Chunk& chunk = *entries_.front().chunk;
    int hidden = 0;
    while (hidden < chunk.count && chunk.runs[hidden].count == 0 &&
           page_end(chunk.runs[hidden]) <= ordinal) {
      ++hidden;
    }
    erase_runs(0, 0, hidden);
    if (chunk.count > 0) break;
    release_chunk(&chunk);
    entries_.erase(entries_.begin());
  }
}

// --- cutting ---------------------------------------------------------------------------------

void RunTable::cut_tail(std::int64_t ordinal) {
  while (!entries_.empty()) {
    const std::size_t e = entries_.size() - 1;
    // Runs from `keep` on start at or after the cut; the one before may reach across it.
    const Chunk& seen = *entries_[e].chunk;
    int keep = seen.count;
    while (keep > 0) {
      const Run& run = seen.runs[keep - 1];
      const bool hidden_page_remains = run.count == 0 && run.ordinal - ordinal < run.first;
      if (run.ordinal < ordinal || (run.ordinal == ordinal && run.count == 0) ||
          hidden_page_remains) {
        break;
      }
      --keep;
    }
    if (keep == 0) {
      tokens_ -= tokens_of(seen);
      release_chunk(entries_[e].chunk);
      entries_.pop_back();
      continue;
    }
    const Run& across = seen.runs[keep - 1];
    if (keep == seen.count && across.end_ordinal() <= ordinal) return;
    Chunk& chunk = own(e);
    erase_runs(e, keep, chunk.count);
    Run& run = chunk.runs[keep - 1];
    if (run.end_ordinal() > ordinal) {
      const auto beyond = static_cast<std::int16_t>(run.end_ordinal() - ordinal);
      if (run.count > 0) {
        run.count = static_cast<std::int16_t>(run.count - beyond);
        tokens_ -= beyond;
      } else {
        run.first = static_cast<std::int16_t>(run.first - beyond);
        run.ordinal = ordinal;
      }
    }
    return;
  }
}

RunTable::Place RunTable::useless_front(std::int64_t ordinal,
                                        std::int64_t keep_from) const noexcept {
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    const Chunk& chunk = *entries_[e].chunk;
    int run = 0;
    while (run < chunk.count && chunk.runs[run].end_ordinal() <= ordinal &&
           page_end(chunk.runs[run]) <= keep_from) {
      ++run;
    }
    if (run < chunk.count) return {e, run};
  }
  return {entries_.size(), 0};
}

void RunTable::own_front(std::int64_t ordinal, std::int64_t keep_from) {
  const Place kept = useless_front(ordinal, keep_from);
  for (std::size_t e = kept.entry; e < entries_.size(); ++e) {
    const Chunk& chunk = *entries_[e].chunk;
    const bool cut = std::any_of(chunk.runs, chunk.runs + chunk.count, [&](const Run& run) {
      return run.count > 0 && run.ordinal < ordinal;
    });
    if (!cut && (e > kept.entry || kept.run == 0)) return;
    own(e);
  }
}

void RunTable::cut_front(std::int64_t ordinal, std::int64_t keep_from) {
  const Place kept = useless_front(ordinal, keep_from);
  for (std::size_t e = 0; e < kept.entry; ++e) {
    tokens_ -= tokens_of(*entries_[e].chunk);
    release_chunk(entries_[e].chunk);
  }
  entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(kept.entry));
  if (entries_.empty()) return;
  if (kept.run > 0) {
    own(0);
    erase_runs(0, 0, kept.run);
  }
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    for (int i = 0; i < entries_[e].chunk->count; ++i) {
      const Run& run = entries_[e].chunk->runs[i];
      if (run.count == 0) continue;
      if (run.ordinal >= ordinal) return;
      const auto gone =
          static_cast<std::int16_t>(std::min<std::int64_t>(run.count, ordinal - run.ordinal));
      Run& trimmed = own(e).runs[i];
      trimmed.first = static_cast<std::int16_t>(trimmed.first + gone);
      trimmed.count = static_cast<std::int16_t>(trimmed.count - gone);
      trimmed.ordinal += gone;
      tokens_ -= gone;
    }
  }
}

void RunTable::remove(std::int64_t begin, std::int64_t end, std::int64_t move) {
  RunTable result(*pool_);
  result.entries_.reserve(entries_.size() + 2);
  for (const Entry& entry : entries_) {
    const Chunk& chunk = *entry.chunk;
    const Run& first = chunk.runs[0];
    if (last_position_of(entry) < begin) {
      result.push_entry(entry);
      continue;
    }
    if (first.count > 0 && position(first, first.first, entry.shift) >= end) {
      result.push_entry({entry.chunk, entry.shift - move});
      continue;
    }
    for (int i = 0; i < chunk.count; ++i) {
      Run run = chunk.runs[i];
      run.turn += entry.shift;
      if (run.count == 0) {
        result.push(run);
        continue;
      }
      const std::int64_t* slots = run.page->positions + run.first;
      const auto left = static_cast<std::int16_t>(
          std::lower_bound(slots, slots + run.count, begin - run.turn) - slots);
      const auto right = static_cast<std::int16_t>(
          std::lower_bound(slots, slots + run.count, end - run.turn) - slots);
      Run before = run;
      before.count = left;
      if (before.count > 0) result.push(before);
      Run after = run;
      after.first = static_cast<std::int16_t>(run.first + right);
      after.count = static_cast<std::int16_t>(run.count - right);
      after.ordinal += right;
      after.turn -= move;
      if (after.count > 0) result.push(after);
    }
  }
  swap(result);
}

}  // namespace quire
