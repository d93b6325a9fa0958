// Compaction: tokens of sparsely used sealed pages are put together, undecoded.

#include <algorithm>

#include "base/error.h"
#include "cache/limits.h"

namespace quire {
namespace {

// A sealed page that only this table shows, less than half of it, without rows.
bool is_sparse(const RunTable& table, const Chunk& chunk, int run, std::int64_t inexact_from) {
  // Before that, the history can still be cut at exact points.
  if (chunk.runs[run].ordinal < inexact_from) return false;
  const Page& page = *chunk.runs[run].page;
  std::uint32_t refs = 0;
  int shown = 0;
  for (int i = 0; i < chunk.count; ++i) {
    if (chunk.runs[i].page != &page) continue;
    if (chunk.runs[i].rows) return false;
    ++refs;
    shown += chunk.runs[i].count;
  }
  return chunk.refs == 1 && refs == page.refs && page.sealed != nullptr && page.rows == nullptr &&
         shown > 0 && 2 * shown < table.pool().page_tokens();
}

void move_slots(const CacheLayout& layout, const Group& group, const Run& run, Page& to, int slot) {
  for (int i = 0; i < run.count; ++i) {
    to.positions[slot + i] = run.page->positions[run.first + i];
    to.keys[slot + i] = run.page->keys[run.first + i];
  }
  for (const int owner : group.owners) {
    const LayerStore& store = layout.layers[static_cast<std::size_t>(owner)].store;
    for (const Side side : {Side::key, Side::value}) {
      if (store.mla && side == Side::value) continue;
      const Codec& codec = side == Side::key ? *store.key_codec : *store.value_codec;
      for (int head = 0; head < store.heads; ++head) {
        const SealedPart from = sealed_part(store, side, head, run.page->sealed);
        const SealedPart into = sealed_part(store, side, head, to.sealed);
        for (int i = 0; i < run.count; ++i) {
          codec.copy_slot(store.tile(side, head), from.data, from.scales, run.first + i, into.data,
                          into.scales, slot + i);
        }
      }
    }
  }
}

// A table that shows the same, with sparse pages put together.
RunTable compacted(const CacheLayout& layout, const Group& group, const RunTable& table,
                   std::int64_t inexact_from) {
  PagePool& pool = table.pool();
  RunTable result(pool);
  Page* target = nullptr;
  int filled = 0;
  for (const RunTable::Entry& entry : table.entries()) {
    for (int i = 0; i < entry.chunk->count; ++i) {
      Run run = entry.chunk->runs[i];
      run.turn += entry.shift;
      if (!is_sparse(table, *entry.chunk, i, inexact_from)) {
        result.push(run);
        continue;
      }
      if (target == nullptr || filled + run.count > pool.page_tokens()) {
        FreshPage fresh(pool, 0, Page::kNoOrdinal);
        pool.add_sealed(*fresh);
        std::fill_n(fresh->sealed, pool.sealed_bytes(), std::byte{0});
        target = &*fresh;
        filled = 0;
        move_slots(layout, group, run, *target, filled);
        Run moved = run;
        moved.page = target;
        moved.first = 0;
        result.push(moved);
      } else {
        move_slots(layout, group, run, *target, filled);
        Run moved = run;
        moved.page = target;
        moved.first = static_cast<std::int16_t>(filled);
        result.push(moved);
      }
      filled += run.count;
      target->slots = filled;
    }
  }
  return result;
}

}  // namespace

Result<std::int64_t> compact_pages(CacheCore& cache) {
  if (cache.data == nullptr) {
    return fail(ErrorCode::unknown_sequence, "compact: the cache is closed");
  }
  const CacheLayout& layout = cache.layout();
  std::int64_t before = 0;
  std::int64_t after = 0;
  for (std::size_t g = 0; g < layout.groups.size(); ++g) {
    const PagePool& pool = *cache.store->pools[g];
    if (layout.is_cross(static_cast<int>(g)) || !layout.groups[g].copies_slots) continue;
    const auto used = [&] {
      return static_cast<std::int64_t>(cache.store->memory.blocks_used(pool.header_class()));
    };
    before += used();
    for (auto& [id, sequence] : cache.data->sequences) {
      if (sequence.step != nullptr) continue;
      RunTable& table = sequence.history.groups[g].table;
      const std::int64_t inexact_from = sequence.history.inexact_from;
      const Page* last = nullptr;
      int sparse = 0;  // pages
      for (const RunTable::Entry& entry : table.entries()) {
        for (int i = 0; i < entry.chunk->count; ++i) {
          const Page* page = entry.chunk->runs[i].page;
          if (page != last && is_sparse(table, *entry.chunk, i, inexact_from)) ++sparse;
          last = page;
        }
      }
      if (sparse < 2) continue;
      RunTable made = compacted(layout, layout.groups[g], table, inexact_from);
      table.swap(made);
    }
    after += used();
  }
  return before - after;
}

}  // namespace quire
