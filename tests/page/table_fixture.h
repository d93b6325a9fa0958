// Run tables beside what they must show: a plain list of tokens.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <ostream>
#include <set>
#include <vector>

#include "base/test_memory.h"
#include "page/table.h"

namespace quire::test {

struct Tok {
  std::int64_t ordinal = 0;
  std::int64_t position = 0;
  std::uint64_t key = 0;
  bool operator==(const Tok&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const Tok& token) {
  return out << "(" << token.ordinal << " at " << token.position << ", key " << token.key << ")";
}

using Tokens = std::vector<Tok>;

inline Tokens shown(const RunTable& table) {
  Tokens tokens;
  table.for_each([&](const Run& run, std::int64_t shift) {
    for (int i = 0; i < run.count; ++i) {
      tokens.push_back({run.ordinal + i, table.position(run, run.first + i, shift),
                        run.page->keys[run.first + i]});
    }
  });
  return tokens;
}

inline std::size_t count_runs(const RunTable& table, bool hidden = false) {
  std::size_t runs = 0;
  table.for_each([&](const Run& run, std::int64_t) { runs += (run.count == 0) == hidden; });
  return runs;
}

class TableTest : public testing::Test {
 protected:
  static constexpr int kPage = 4;

  TestMemory source;
  Memory memory{&source, SIZE_MAX};
  PagePool pool{memory, kPage, 64, 64};
  std::uint64_t next_key = 1;

  // Appends tokens at positions first, first + 1, ... in new pages that end where pages do.
  void extend(RunTable& table, std::int64_t& end, std::int64_t first, int count,
              bool with_rows = true) {
    while (count > 0) {
      const int room = kPage - static_cast<int>(end % kPage);
      const int taken = count < room ? count : room;
      FreshPage page(pool, room, end);
      if (with_rows) pool.add_rows(*page);
      for (int i = 0; i < taken; ++i) {
        page->positions[i] = first++;
        page->keys[i] = next_key++;
      }
      table.append(*page, 0, taken, end);
      end += taken;
      count -= taken;
    }
  }

  // A table of `count` tokens at positions 0, 1, ...
  RunTable make(int count, bool with_rows = true) {
    RunTable table(pool);
    std::int64_t end = 0;
    extend(table, end, 0, count, with_rows);
    return table;
  }

  // Every count must be what a walk over all tables finds.
  void check_counts(const std::vector<const RunTable*>& tables) {
    std::map<const Chunk*, std::uint32_t> chunks;
    for (const RunTable* table : tables) {
      std::int64_t tokens = 0;
      for (const RunTable::Entry& entry : table->entries()) {
        ++chunks[entry.chunk];
        for (int i = 0; i < entry.chunk->count; ++i) tokens += entry.chunk->runs[i].count;
      }
      ASSERT_EQ(table->tokens(), tokens);
    }
    std::map<const Page*, std::pair<std::uint32_t, std::uint32_t>> pages;
    for (const auto& [chunk, refs] : chunks) {
      ASSERT_EQ(chunk->refs, refs);
      ASSERT_GT(chunk->count, 0);
      for (int i = 0; i < chunk->count; ++i) {
        auto& [page_refs, row_refs] = pages[chunk->runs[i].page];
        ++page_refs;
        row_refs += chunk->runs[i].rows;
      }
    }
    for (const auto& [page, refs] : pages) {
      ASSERT_EQ(page->refs, refs.first);
      ASSERT_EQ(page->row_refs, refs.second);
      ASSERT_EQ(page->rows != nullptr, refs.second > 0);
    }
    ASSERT_EQ(memory.blocks_used(pool.header_class()), pages.size());
  }
};

}  // namespace quire::test
