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

// What stays when every sequence with tokens and without an open step is cut to nothing: pages and
// chunks that open steps, clones or readers hold too, and all that is no page.
std::size_t least_bytes(const CacheCore& cache) {
  Store& store = *cache.store;
  std::size_t freed = store.memory.bytes_free();
  const auto for_each_table = [&](auto&& f) {
    for (const auto& [id, sequence] : cache.data->sequences) {
      // A sequence that shows nothing, only open pages behind a window, is not cut either.
      if (sequence.step != nullptr || sequence.history.length() == 0) continue;
      for (const GroupHistory& group : sequence.history.groups) f(group.table);
    }
  };
  for_each_table([](const RunTable& table) {
    for (const RunTable::Entry& entry : table.entries()) {
      entry.chunk->seen = 0;
      for (int i = 0; i < entry.chunk->count; ++i) entry.chunk->runs[i].page->seen = 0;
    }
  });
  // A chunk goes when all its references are these tables', a page when all its are such chunks'.
  for_each_table([&](const RunTable& table) {
    const PagePool& pool = table.pool();
    if (table.entries().capacity() > 0) {
      freed += Memory::table_bytes(table.entries().capacity() * sizeof(RunTable::Entry));
    }
    for (const RunTable::Entry& entry : table.entries()) {
      Chunk& chunk = *entry.chunk;
      if (++chunk.seen < chunk.refs) continue;
      freed += Memory::table_bytes(sizeof(Chunk));
      for (int i = 0; i < chunk.count; ++i) {
        Page& page = *chunk.runs[i].page;
        if (++page.seen < page.refs) continue;
        freed += pool.header_bytes() + (page.rows != nullptr ? pool.rows_bytes() : 0) +
                 (page.sealed != nullptr ? pool.sealed_bytes() : 0);
      }
    }
  });
  return store.memory.bytes_held() - freed;
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
  for (const auto& entry : cache.data->sequences) {
    const History& history = entry.second.history;
    stats.tokens += history.length();
    for (std::size_t g = 0; g < layout.groups.size(); ++g) {
      const PagePool& pool = *store.pools[g];
      const std::size_t per_token = values_per_token(layout, layout.groups[g]);
      history.groups[g].table.for_each([&](const Run& run, std::int64_t) {
        Page& page = *run.page;
        if (page.mark < base) {
          page.mark = mark;
          bytes += (page.rows != nullptr ? pool.rows_bytes() : 0) +
                   (page.sealed != nullptr ? pool.sealed_bytes() : 0);
          // An open page is filled up to the end of the history.
          const bool whole =
              layout.is_cross(static_cast<int>(g)) || page.first_ordinal == Page::kNoOrdinal;
          const std::int64_t written = history.end_ordinal - page.first_ordinal;
          const std::int64_t filled =
              whole ? page.slots : std::min<std::int64_t>(page.slots, written);
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
  for (const std::shared_ptr<StepCore>& step : cache.steps) step->data->kept.clear();
  memory.shrink();
  if (held() <= bytes) return false;
  // `least` counts the ballast where there is one, so it fits again after.
  const std::size_t aim = cache.ballast != nullptr ? bytes - cache.ballast_bytes() : bytes;
  cache.give_ballast();
  bool cut = false;
  Result<void> outcome;
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
  if (held() <= bytes && bytes - held() >= cache.ballast_bytes()) cache.take_ballast();
  if (!outcome) return outcome.error();
  return cut;
}

}  // namespace quire
