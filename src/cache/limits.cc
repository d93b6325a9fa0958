#include "cache/limits.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.h"
#include "cache/step.h"

namespace quire {
namespace {

// K and V numbers of one token in one group.
std::size_t values_per_token(const CacheLayout& layout, const Group& group) {
  std::size_t values = 0;
  for (const int owner : group.owners) {
    const LayerStore& store = layout.layers[static_cast<std::size_t>(owner)].store;
    const auto channels =
        static_cast<std::size_t>(store.key_dim + (store.mla ? 0 : store.value_dim));
    values += static_cast<std::size_t>(store.heads) * channels;
  }
  return values;
}

// What cannot be cut: the cache's own data, its sequences without tokens, and all that sequences
// with open steps hold. An estimate from below.
std::size_t least_bytes(const CacheCore& cache) {
  Store& store = *cache.store;
  const std::uint64_t mark = store.next_mark++;
  std::size_t bytes = Memory::table_bytes(sizeof(CacheData)) + cache.ballast_bytes();
  const std::size_t noted = cache.data->may_evict.capacity() * sizeof(SequenceId);
  if (noted > 0) bytes += Memory::table_bytes(noted);
  const auto add_pages = [&](const History& history) {
    for (std::size_t g = 0; g < history.groups.size(); ++g) {
      const PagePool& pool = *store.pools[g];
      history.groups[g].table.for_each([&](const Run& run, std::int64_t) {
        Page& page = *run.page;
        if (page.mark == mark) return;
        page.mark = mark;
        bytes += pool.header_bytes() + (page.rows != nullptr ? pool.rows_bytes() : 0) +
                 (page.sealed != nullptr ? pool.sealed_bytes() : 0);
      });
    }
  };
  for (const auto& [id, sequence] : cache.data->sequences) {
    // A node of the map has three links and a colour besides.
    bytes += Memory::table_bytes(sizeof(SequenceMap::value_type) + 4 * sizeof(void*)) +
             Memory::table_bytes(sequence.history.groups.size() * sizeof(GroupHistory));
    if (sequence.step != nullptr) add_pages(sequence.history);
  }
  for (const std::shared_ptr<StepCore>& step : cache.steps) {
    for (const StepPart& part : step->data->parts) add_pages(part.next);
  }
  return bytes;
}

}  // namespace

Stats count_stats(const CacheCore& cache) {
  const CacheLayout& layout = cache.layout();
  Store& store = *cache.store;
  const Memory& memory = store.memory;
  Stats stats;
  stats.bytes = memory.bytes_held();
  stats.bytes_limit = memory.bytes_limit();
  stats.bytes_free = memory.bytes_free();
  stats.bytes_tables = memory.bytes_used_tables();
  for (const auto& pool : store.pools) {
    stats.bytes_sealed += memory.bytes_used(pool->sealed_class());
    stats.bytes_rows += memory.bytes_used(pool->rows_class());
    stats.bytes_tables += memory.bytes_used(pool->header_class());
    stats.pages_used += static_cast<std::int64_t>(memory.blocks_used(pool->header_class()));
    stats.pages_free += static_cast<std::int64_t>(memory.blocks_free(pool->header_class()));
  }
  stats.pages_total = stats.pages_used + stats.pages_free;
  stats.open_steps = static_cast<std::int64_t>(cache.steps.size());
  if (cache.data == nullptr) return stats;
  stats.sequences = static_cast<std::int64_t>(cache.data->sequences.size());
  // A page's mark says which sequence of this walk came to it first, or that it was counted as
  // shared: marks of earlier walks are all smaller.
  const std::uint64_t base = store.next_mark;
  const std::uint64_t shared = base + cache.data->sequences.size();
  store.next_mark = shared + 1;
  std::size_t bytes = 0;
  std::size_t values = 0;
  std::uint64_t mark = base;
  for (const auto& [id, sequence] : cache.data->sequences) {
    stats.tokens += sequence.history.length();
    for (std::size_t g = 0; g < layout.groups.size(); ++g) {
      const PagePool& pool = *store.pools[g];
      const std::size_t per_token = values_per_token(layout, layout.groups[g]);
      sequence.history.groups[g].table.for_each([&](const Run& run, std::int64_t) {
        Page& page = *run.page;
        if (page.mark < base) {
          page.mark = mark;
          bytes += (page.rows != nullptr ? pool.rows_bytes() : 0) +
                   (page.sealed != nullptr ? pool.sealed_bytes() : 0);
          // An open page is filled up to its last run; a sealed one whole.
          const int filled = page.sealed != nullptr ? page.slots : run.first + run.count;
          values += per_token * static_cast<std::size_t>(filled);
        } else if (page.mark != mark && page.mark != shared) {
          page.mark = shared;
          ++stats.pages_shared;
        }
      });
    }
    ++mark;
  }
  if (values > 0) {
    stats.bits_per_value = 8.0 * static_cast<double>(bytes) / static_cast<double>(values);
    stats.compression_ratio = 16.0 / stats.bits_per_value;
  }
  return stats;
}

Result<bool> enforce_limit(CacheCore& cache, std::size_t bytes, const char* operation) {
  if (cache.data == nullptr) {
    return fail(ErrorCode::unknown_sequence, "{}: the cache is closed", operation);
  }
  Memory& memory = cache.store->memory;
  const std::size_t least = least_bytes(cache);
  if (bytes < least) {
    return fail(cache.steps.empty() ? ErrorCode::over_limit : ErrorCode::busy,
                "{}: {} bytes asked for; with {} sequences cut to nothing and {} open steps the "
                "cache takes {}",
                operation, bytes, cache.data->sequences.size(), cache.steps.size(), least);
  }
  const auto held = [&] { return memory.bytes_held(); };
  memory.shrink();
  if (held() <= bytes) return false;
  memory.forget_kept();
  memory.shrink();
  if (held() <= bytes) return false;
  cache.give_ballast();
  bool cut = false;
  Result<void> outcome;
  const auto aim = bytes - cache.ballast_bytes();
  for (memory.shrink(); held() > aim; memory.shrink()) {
    SequenceState* longest = nullptr;
    for (auto& [id, sequence] : cache.data->sequences) {
      if (sequence.step != nullptr || sequence.history.length() == 0) continue;
      if (longest == nullptr || sequence.history.length() > longest->history.length()) {
        longest = &sequence;
      }
    }
    if (longest == nullptr) {
      const bool steps = !cache.steps.empty();
      outcome = fail(steps ? ErrorCode::busy : ErrorCode::over_limit,
                     "{}: {} bytes are still held with nothing left to cut, {} asked for{}",
                     operation, held(), bytes, steps ? " (steps are open)" : "");
      break;
    }
    std::int64_t kept = longest->history.length() * 3 / 4;
    try {
      longest->history.own_for_keep_last(kept);
    } catch (const MemoryError& error) {
      if (error.code == ErrorCode::out_of_memory) {
        outcome = error.to_error(operation);
        break;
      }
      kept = 0;  // many share what is to be cut, and the limit has no room for one more copy
    }
    longest->history.keep_last(kept);
    cut = true;
  }
  cache.take_ballast();
  if (!outcome) return outcome.error();
  return cut;
}

// --- compaction ------------------------------------------------------------------------------

namespace {

// A sealed page that only this table shows, less than half of it, without rows.
bool is_sparse(const RunTable& table, const Chunk& chunk, int run) {
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
          codec.copy_slot(store.tile(side), from.data, from.scales, run.first + i, into.data,
                          into.scales, slot + i);
        }
      }
    }
  }
}

// A table that shows the same, with sparse pages put together.
RunTable compacted(const CacheLayout& layout, const Group& group, const RunTable& table) {
  PagePool& pool = table.pool();
  RunTable result(pool);
  Page* target = nullptr;
  int filled = 0;
  for (const RunTable::Entry& entry : table.entries()) {
    for (int i = 0; i < entry.chunk->count; ++i) {
      Run run = entry.chunk->runs[i];
      run.turn += entry.shift;
      if (!is_sparse(table, *entry.chunk, i)) {
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
      std::int64_t sparse = 0;
      for (const RunTable::Entry& entry : table.entries()) {
        for (int i = 0; i < entry.chunk->count; ++i) sparse += is_sparse(table, *entry.chunk, i);
      }
      if (sparse < 2) continue;
      RunTable made = compacted(layout, layout.groups[g], table);
      table.swap(made);
    }
    after += used();
  }
  return before - after;
}

}  // namespace quire
