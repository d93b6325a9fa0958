// A run table is what one sequence shows of one group: an ordered list of runs.
//
// A run is a slice of a page with its place in the history. Runs lie in chunks of up to
// kChunkRuns; chunks are shared between tables and counted, so copying a table (a fork) costs one
// count per chunk, and an edit copies only the chunks it touches. An edit works on a copy and is
// swapped in when nothing can fail any more:
//
//     RunTable cut = table;   // shares every chunk
//     cut.cut_tail(ordinal);  // may throw MemoryError; `table` is untouched
//     table.swap(cut);        // cannot fail
//
// An entry's `shift` is added to the turn of all its runs: moving all later tokens touches entries,
// not runs. Runs that show nothing (count 0) stand only at the front: pages that a window has
// hidden but that are still open or whose rows are still needed.
//
// Positions never decrease along a table, ordinals increase.
//
// Thread-safety: the store's lock. A step's own table is read without it: nobody else changes it.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <optional>
#include <vector>

#include "page/page.h"

namespace quire {

struct Run {
  Page* page = nullptr;
  std::int64_t ordinal = 0;  // of slot `first`
  std::int64_t turn = 0;     // position minus the one recorded in the page, less the entry's shift
  std::int16_t first = 0;    // slots shown: [first, first + count)
  std::int16_t count = 0;
  bool rows = false;  // counts in the page's row_refs

  std::int64_t end_ordinal() const noexcept { return ordinal + count; }
};

// A chunk is then just under 2 KiB, a power of two as its memory is.
inline constexpr int kChunkRuns = 63;

struct Chunk {
  std::uint32_t refs = 1;
  std::uint32_t seen = 0;  // scratch of walks that count references
  int count = 0;
  Run runs[kChunkRuns];
};

class RunTable {
 public:
  explicit RunTable(PagePool& pool);
  RunTable(const RunTable& other);  // Throws MemoryError. Cost: one count per chunk.
  RunTable(RunTable&& other) noexcept;
  RunTable& operator=(const RunTable&) = delete;
  ~RunTable();
  void swap(RunTable& other) noexcept;
  void clear() noexcept;

  struct Entry {
    Chunk* chunk = nullptr;
    std::int64_t shift = 0;
  };
  // A run and where it stands.
  struct Place {
    std::size_t entry = 0;
    int run = 0;
  };

  std::int64_t tokens() const noexcept { return tokens_; }  // shown
  bool has_runs() const noexcept { return !entries_.empty(); }
  const std::pmr::vector<Entry>& entries() const noexcept { return entries_; }
  const Run& last() const noexcept;              // Requires: has_runs()
  std::int64_t first_position() const noexcept;  // Requires: tokens() > 0
  std::int64_t last_position() const noexcept;   // Requires: tokens() > 0
  // The n-th shown token, counted from the end (0 is the last). Requires: it exists.
  struct Spot {
    std::int64_t ordinal = 0;
    std::int64_t position = 0;
  };
  Spot from_end(std::int64_t n) const noexcept;
  // The first shown token at `position` or later.
  std::optional<Spot> spot_at(std::int64_t position) const noexcept;
  // The run that shows the first token at `position` or later.
  std::optional<Place> find(std::int64_t position) const noexcept;

  // Calls f(run, shift) for every run, oldest first, from the chunk that shows `position` on.
  template <typename F>
  void for_each(F&& f, std::int64_t position = INT64_MIN) const {
    for (std::size_t e = entry_of(position); e < entries_.size(); ++e) {
      const Chunk& chunk = *entries_[e].chunk;
      for (int i = 0; i < chunk.count; ++i) f(chunk.runs[i], entries_[e].shift);
    }
  }

  // Edits. Those that may throw MemoryError leave a table that can only be destroyed.

  // Shows slots [slot, slot + count) of `page` after everything else, at the positions recorded in
  // it; holds its rows if it has any. Grows the last run where it can.
  void append(Page& page, int slot, int count, std::int64_t ordinal);
  // Makes the last chunk, and all chunks with runs that hold rows past `head_end`, this table's
  // own, so that let_go, cut_tail of new tokens and remap cannot fail.
  void own_tail(std::int64_t head_end);
  // Makes runs at the end that show `from` show `to` instead, and hold its rows. Requires:
  // own_tail.
  void remap_tail(const Page& from, Page& to) noexcept;
  // Replaces the page of all runs around `place` that show `from`; rows are held as before.
  void replace_page(Place place, const Page& from, Page& to);
  // Adds a run as it is; its turn is the whole turn. Counts its page, and rows if it holds them.
  void push(const Run& run);

  // Drops tokens with ordinals >= `ordinal`.
  void cut_tail(std::int64_t ordinal);
  // Stops showing tokens with ordinals below `ordinal`. Runs left empty stay, hidden, while their
  // page ends after `keep_from`.
  void cut_front(std::int64_t ordinal, std::int64_t keep_from);
  // Makes the chunks that cut_front(ordinal, keep_from) would change this table's own, so that it
  // cannot fail. Shows the same as before, also when it throws.
  void own_front(std::int64_t ordinal, std::int64_t keep_from);
  // Drops tokens at positions [begin, end) and moves later ones down by `move`.
  void remove(std::int64_t begin, std::int64_t end, std::int64_t move);
  // Lets rows go of pages that end in (head_end, ordinal], and hidden runs with them.
  // Requires: own_tail.
  void let_go(std::int64_t ordinal, std::int64_t head_end) noexcept;

  // Keeps every chunk of a table, so that what it showed stays readable without the lock. Made and
  // destroyed under it.
  class Pin {
   public:
    explicit Pin(const RunTable& table);
    ~Pin();
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;

   private:
    PagePool* pool_;
    std::vector<Chunk*> chunks_;
  };

  // Ordinal at which the page of a run ends in the history.
  std::int64_t page_end(const Run& run) const noexcept {
    return (run.ordinal - (run.count == 0 ? 1 : 0)) / pool_->page_tokens() * pool_->page_tokens() +
           pool_->page_tokens();
  }
  std::int64_t position(const Run& run, int slot, std::int64_t shift) const noexcept {
    return run.page->positions[slot] + run.turn + shift;
  }
  PagePool& pool() const noexcept { return *pool_; }

 private:
  Chunk* make_chunk();
  void retain_run(const Run& run) noexcept;
  void release_run(const Run& run) noexcept { release_run(*pool_, run); }
  void release_chunk(Chunk* chunk) noexcept { release_chunk(*pool_, chunk); }
  static void release_run(PagePool& pool, const Run& run) noexcept;
  static void release_chunk(PagePool& pool, Chunk* chunk) noexcept;
  Chunk& own(std::size_t entry);        // the entry's chunk, copied first if shared
  void push_entry(const Entry& entry);  // shares the chunk
  std::size_t entry_of(std::int64_t position) const noexcept;
  std::int64_t last_position_of(const Entry& entry) const noexcept;
  // Leading entries, and runs of the entry after them, that cut_front drops whole.
  Place useless_front(std::int64_t ordinal, std::int64_t keep_from) const noexcept;
  void erase_runs(std::size_t entry, int begin, int end) noexcept;  // Requires: owned chunk

  PagePool* pool_;
  std::pmr::vector<Entry> entries_;
  std::int64_t tokens_ = 0;
};

}  // namespace quire
