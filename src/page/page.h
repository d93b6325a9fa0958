// A page is the tokens of one stretch of a history, for all layers of a group: where they stand,
// their exact rows, and their sealed bytes.
//
// A page is open while it has rows and no sealed bytes; sealing adds them. A sealed page never
// changes: what must change becomes a new page. Runs count the page in `refs`, and in `row_refs`
// when they also need its rows; rows go when nobody needs them, the page when nobody shows it.
//
// Thread-safety: counts and pointers change under the store's lock. Bytes of slots that a run shows
// never change while it shows them, so readers that hold a reference need no lock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/memory.h"

namespace quire {

struct Page {
  std::uint32_t refs = 0;
  std::uint32_t row_refs = 0;
  int slots = 0;                   // tokens this page is made for; fewer than a whole page after
                                   // a cut that left no rows
  std::int64_t first_ordinal = 0;  // of slot 0; kNoOrdinal when slots are not in ordinal order
  std::byte* rows = nullptr;
  std::byte* sealed = nullptr;
  std::int64_t* positions = nullptr;  // [page_tokens], those the keys were rotated for
  std::uint64_t* keys = nullptr;      // [page_tokens], token keys
  std::uint64_t mark = 0;             // scratch of walks that count each page once
  std::uint32_t seen = 0;             // scratch of walks that count references

  static constexpr std::int64_t kNoOrdinal = INT64_MIN / 2;

  bool covers(std::int64_t ordinal) const noexcept {
    return ordinal >= first_ordinal && ordinal < first_ordinal + slots;
  }
};

// Makes and frees the pages of one group. All of a page's memory counts in `Memory`.
class PagePool {
 public:
  PagePool(Memory& memory, int page_tokens, std::size_t rows_bytes, std::size_t sealed_bytes);

  // A page without references, without blocks. Throws MemoryError.
  Page* make(int slots, std::int64_t first_ordinal);
  // Adds a block, uninitialised. Requires: the page has none. Throws MemoryError.
  void add_rows(Page& page);
  void add_sealed(Page& page);
  void drop_rows(Page& page) noexcept;
  void drop_sealed(Page& page) noexcept;

  void retain(Page& page) noexcept { ++page.refs; }
  void release(Page& page) noexcept;  // frees the page with the last reference
  void retain_rows(Page& page) noexcept { ++page.row_refs; }
  void release_rows(Page& page) noexcept;
  // For a page that was made but never referenced.
  void discard(Page& page) noexcept;

  int page_tokens() const noexcept { return page_tokens_; }
  std::size_t rows_bytes() const noexcept { return rows_bytes_; }
  std::size_t sealed_bytes() const noexcept { return sealed_bytes_; }
  std::size_t header_bytes() const noexcept { return header_bytes_; }
  Memory& memory() const noexcept { return memory_; }

  BlockClass header_class() const noexcept { return header_class_; }
  BlockClass rows_class() const noexcept { return rows_class_; }
  BlockClass sealed_class() const noexcept { return sealed_class_; }

 private:
  Memory& memory_;
  int page_tokens_;
  std::size_t rows_bytes_;
  std::size_t sealed_bytes_;
  std::size_t header_bytes_;
  BlockClass header_class_;
  BlockClass rows_class_;
  BlockClass sealed_class_;
};

// A page just made: goes back to its pool unless a run has come to hold it.
class FreshPage {
 public:
  FreshPage(PagePool& pool, int slots, std::int64_t first_ordinal)
      : pool_(pool), page_(pool.make(slots, first_ordinal)) {}
  FreshPage(const FreshPage&) = delete;
  FreshPage& operator=(const FreshPage&) = delete;
  ~FreshPage() {
    if (page_->refs == 0) pool_.discard(*page_);
  }
  Page& operator*() const noexcept { return *page_; }
  Page* operator->() const noexcept { return page_; }

 private:
  PagePool& pool_;
  Page* page_;
};

}  // namespace quire
