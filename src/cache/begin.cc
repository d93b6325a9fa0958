// Beginning a step: finding a place for every token, or leaving everything as it was.

#include <algorithm>
#include <new>
#include <optional>

#include "base/error.h"
#include "cache/step.h"

namespace quire {
namespace {

// How a group goes on at the end of a history.
struct TailPlan {
  enum class Open {
    none,      // a new page begins
    in_place,  // the open page is this sequence's alone
    copy,      // its rows are copied: others see the page, or it is sealed
    rebuild,   // its rows are decoded from lossless codes
  };
  Open open = Open::none;
  Page* page = nullptr;
  int slot = 0;         // of the next token in it
  int first_slots = 0;  // slots of the first new page: fewer than a whole page after a coded cut
};

// Whether only this table's last chunk shows `page`.
bool is_sole_owner(const RunTable& table, const Page& page) {
  const Chunk& chunk = *table.entries().back().chunk;
  std::uint32_t own = 0;
  for (int i = chunk.count; i-- > 0 && chunk.runs[i].page == &page;) ++own;
  return chunk.refs == 1 && page.refs == own;
}

// Requires: `table` is a sequence's committed one.
TailPlan plan_tail(const CacheLayout& layout, const Group& group, const RunTable& table,
                   std::int64_t ordinal) {
  const int page_tokens = layout.spec.page_tokens;
  TailPlan plan;
  plan.first_slots = page_tokens - static_cast<int>(ordinal % page_tokens);
  if (!table.has_runs()) return plan;
  const Run& last = table.last();
  if (!last.page->covers(ordinal)) return plan;
  if (last.rows) {
    const bool in_place = last.page->sealed == nullptr && is_sole_owner(table, *last.page);
    plan.open = in_place ? TailPlan::Open::in_place : TailPlan::Open::copy;
  } else if (group.lossless && last.page->sealed != nullptr) {
    plan.open = TailPlan::Open::rebuild;
  } else {
    return plan;
  }
  plan.page = last.page;
  plan.slot = static_cast<int>(ordinal - last.page->first_ordinal);
  plan.first_slots = page_tokens;
  return plan;
}

// Calls f(page slots, first slot, count, opens a new page) for each page that `count` tokens go to.
template <typename F>
void for_each_piece(const TailPlan& plan, int page_tokens, std::int64_t count, F&& f) {
  if (plan.page != nullptr) {
    const std::int64_t room = plan.page->slots - plan.slot;
    const auto taken = static_cast<int>(std::min(room, count));
    f(plan.page->slots, plan.slot, taken, false);
    count -= taken;
  }
  int slots = plan.first_slots;
  while (count > 0) {
    const auto taken = static_cast<int>(std::min<std::int64_t>(slots, count));
    f(slots, 0, taken, true);
    count -= taken;
    slots = page_tokens;
  }
}

void copy_slots_of(const Page& from, Page& to, int count) {
  std::copy_n(from.positions, count, to.positions);
  std::copy_n(from.keys, count, to.keys);
}

// Gives a group's table a place for every token of a part.
void place_tokens(CacheCore& cache, StepData& data, StepPart& part, std::size_t g,
                  const TailPlan& plan) {
  const CacheLayout& layout = cache.layout();
  const Group& shape = layout.groups[g];
  PagePool& pool = *cache.store->pools[g];
  RunTable& table = part.next.groups[g].table;
  GroupPart& group = part.groups[g];
  table.own_tail(layout.head_end);
  std::optional<FreshPage> open;
  Page* page = plan.page;
  if (plan.open == TailPlan::Open::copy || plan.open == TailPlan::Open::rebuild) {
    open.emplace(pool, plan.page->slots, plan.page->first_ordinal);
    page = &**open;
    pool.add_rows(*page);
    copy_slots_of(*plan.page, *page, plan.slot);
    for (const int owner : shape.owners) {
      const LayerStore& store = layout.layers[static_cast<std::size_t>(owner)].store;
      if (plan.open == TailPlan::Open::copy) {
        copy_rows(store, plan.page->rows, plan.slot, page->rows);
      } else {
        unseal(store, plan.page->sealed, plan.slot, page->rows);
      }
    }
    table.remap_tail(*plan.page, *page);
  }
  std::int64_t token = 0;
  const auto count = static_cast<std::int64_t>(part.rows.size());
  for_each_piece(
      plan, layout.spec.page_tokens, count, [&](int slots, int slot, int taken, bool is_new) {
        const std::int64_t ordinal = part.first_ordinal + token;
        std::optional<FreshPage> fresh;
        if (is_new) {
          fresh.emplace(pool, slots, ordinal);
          page = &**fresh;
          pool.add_rows(*page);
        }
        for (int i = 0; i < taken; ++i) {
          const auto row = static_cast<std::size_t>(part.rows[static_cast<std::size_t>(token + i)]);
          page->positions[slot + i] = data.tokens[row].position;
          page->keys[slot + i] = data.tokens[row].key;
        }
        table.append(*page, slot, taken, ordinal);
        group.segments.push_back({page, slot, taken, token});
        const std::int64_t page_end = table.page_end(table.last());
        if (slot + taken == slots && page_end > layout.head_end) {
          group.sealing.push_back(page);
          pool.add_sealed(*page);
        }
        token += taken;
      });
}

void place_cross(CacheCore& cache, StepPart& part, const CrossEntry& entry) {
  const CacheLayout& layout = cache.layout();
  const auto g = static_cast<std::size_t>(layout.cross_group);
  PagePool& pool = *cache.store->pools[g];
  RunTable& table = part.next.groups[g].table;
  table.clear();
  for (std::int64_t done = 0; done < entry.length;) {
    const auto count =
        static_cast<int>(std::min<std::int64_t>(layout.spec.page_tokens, entry.length - done));
    FreshPage page(pool, count, done);
    pool.add_sealed(*page);
    for (int i = 0; i < count; ++i) page->positions[i] = done + i;
    table.append(*page, 0, count, done);
    part.groups[g].segments.push_back({&*page, 0, count, done});
    done += count;
  }
  part.next.cross_length = entry.length;
  part.next.cross_owner = {entry.owner_begin, entry.owner_end};
  part.brings_cross = true;
}

void make_part(CacheCore& cache, StepData& data, const PartRequest& request) {
  Memory& memory = cache.store->memory;
  const CacheLayout& layout = cache.layout();
  // Who owns an open page is seen before the part's tables share it.
  const History& committed = request.sequence->history;
  std::vector<TailPlan> tails;
  for (std::size_t g = 0; g < layout.groups.size(); ++g) {
    tails.push_back(
        plan_tail(layout, layout.groups[g], committed.groups[g].table, committed.end_ordinal));
  }
  data.parts.emplace_back(*request.sequence, memory);
  StepPart& part = data.parts.back();
  part.rows.assign(request.rows.begin(), request.rows.end());
  part.groups.reserve(layout.groups.size());
  for (std::size_t g = 0; g < layout.groups.size(); ++g) part.groups.emplace_back(memory);
  History& next = part.next;
  part.first_ordinal = next.end_ordinal;
  const std::int64_t first = data.tokens[static_cast<std::size_t>(part.rows.front())].position;
  next.evict(first);
  for (std::size_t g = 0; g < layout.groups.size(); ++g) {
    if (!layout.is_cross(static_cast<int>(g))) place_tokens(cache, data, part, g, tails[g]);
  }
  for (const PositionRange& span : request.spans) next.add_span(span);
  if (next.end_ordinal == 0) next.origin = first;
  next.end_ordinal += static_cast<std::int64_t>(part.rows.size());
  next.next_position = data.tokens[static_cast<std::size_t>(part.rows.back())].position + 1;
  if (request.cross != nullptr) place_cross(cache, part, *request.cross);
}

std::size_t round_page(std::int64_t tokens, std::int64_t page_tokens) {
  return static_cast<std::size_t>((tokens + page_tokens - 1) / page_tokens);
}

}  // namespace

void abandon(StepPart& part) noexcept {
  for (std::size_t g = 0; g < part.groups.size(); ++g) {
    PagePool& pool = part.next.groups[g].table.pool();
    for (Page* page : part.groups[g].sealing) pool.drop_sealed(*page);
    part.groups[g].sealing.clear();
  }
}

std::shared_ptr<StepCore> begin_step(CacheCore& cache, const Batch& batch,
                                     const std::vector<PartRequest>& requests) {
  Memory& memory = cache.store->memory;
  auto step = std::make_shared<StepCore>(cache.shared_from_this());
  cache.steps.reserve(cache.steps.size() + 1);
  Memory::Draw draw(memory);
  auto* data = new (memory.allocate(sizeof(StepData), alignof(StepData))) StepData(memory);
  try {
    data->tokens.assign(batch.tokens.begin(), batch.tokens.end());
    data->put.assign(cache.layout().layers.size(), 0);
    data->exceptions.assign(batch.tokens.size(), 0);
    data->part_of.resize(batch.tokens.size());
    data->parts.reserve(requests.size());
    for (const PartRequest& request : requests) {
      for (const std::int64_t row : request.rows) {
        data->part_of[static_cast<std::size_t>(row)] =
            static_cast<std::int64_t>(data->parts.size());
      }
      make_part(cache, *data, request);
    }
    for (const CrossEntry& entry : batch.cross) {
      for (StepPart& part : data->parts) {
        if (part.sequence->id == entry.sequence) part.cross_row = data->cross_rows;
      }
      data->cross_rows += entry.length;
    }
    data->kept = draw.release_kept();
  } catch (...) {
    for (StepPart& part : data->parts) abandon(part);
    data->~StepData();
    memory.deallocate(data, sizeof(StepData), alignof(StepData));
    memory.restore_kept(draw.release_kept());
    throw;
  }
  step->data = data;
  for (StepPart& part : data->parts) part.sequence->step = step.get();
  cache.steps.push_back(step);
  return step;
}

Plan plan_step(const CacheCore& cache, const Batch& batch,
               const std::vector<PartRequest>& requests) {
  const CacheLayout& layout = cache.layout();
  Plan plan;
  std::vector<std::int64_t> widest(layout.groups.size(), 0);
  for (const PartRequest& request : requests) {
    const History& history = request.sequence->history;
    const auto count = static_cast<std::int64_t>(request.rows.size());
    for (std::size_t g = 0; g < layout.groups.size(); ++g) {
      const PagePool& pool = *cache.store->pools[g];
      std::size_t headers = 0, rows = 0, sealed = 0;
      std::int64_t columns = 0;
      if (layout.is_cross(static_cast<int>(g))) {
        columns = request.cross != nullptr ? request.cross->length : history.cross_length;
        if (request.cross != nullptr) {
          headers = sealed = round_page(columns, layout.spec.page_tokens);
        }
      } else {
        const RunTable& table = history.groups[g].table;
        const TailPlan tail = plan_tail(layout, layout.groups[g], table, history.end_ordinal);
        if (tail.open == TailPlan::Open::copy || tail.open == TailPlan::Open::rebuild) {
          headers = rows = 1;
        }
        std::int64_t ordinal = history.end_ordinal;
        for_each_piece(
            tail, layout.spec.page_tokens, count, [&](int slots, int slot, int taken, bool is_new) {
              if (is_new) headers += 1, rows += 1;
              const std::int64_t page_end = layout.floor_page(ordinal) + layout.spec.page_tokens;
              if (slot + taken == slots && page_end > layout.head_end) ++sealed;
              ordinal += taken;
            });
        columns = table.tokens() + count;
      }
      plan.pages += static_cast<std::int64_t>(headers);
      plan.bytes_rows += rows * pool.rows_bytes();
      plan.bytes_sealed += sealed * pool.sealed_bytes();
      plan.bytes += headers * pool.header_bytes();
      widest[g] = std::max(widest[g], columns);
    }
  }
  plan.bytes += plan.bytes_rows + plan.bytes_sealed;
  for (const Layer& layer : layout.layers) {
    const auto columns = static_cast<std::size_t>(widest[static_cast<std::size_t>(layer.group)]);
    const auto heads = static_cast<std::size_t>(layer.store.heads);
    const auto dim = static_cast<std::size_t>(std::max(layer.store.key_dim, layer.store.value_dim));
    plan.gather_bytes =
        std::max(plan.gather_bytes, requests.size() * columns * heads * dim * sizeof(float));
    plan.mask_bytes = std::max(plan.mask_bytes, batch.tokens.size() * columns * sizeof(float));
  }
  return plan;
}

void reserve_step(CacheCore& cache, const BatchSize& size) {
  const CacheLayout& layout = cache.layout();
  const std::int64_t page = layout.spec.page_tokens;
  const auto sequences = static_cast<std::size_t>(size.sequences);
  const auto tokens = static_cast<std::size_t>(size.tokens);
  // Pages: a copy of each open page, and new ones, of which each sequence may begin and end one
  // that is not whole. Runs whose rows are held span exact_tail and rollback.
  const std::size_t new_pages = static_cast<std::size_t>(size.tokens / page) + 2 * sequences;
  const auto tail_pages =
      static_cast<std::size_t>((layout.spec.exact_tail + layout.spec.rollback) / page + 2);
  std::size_t longest_table = 0;
  std::size_t most_spans = 0;
  for (const auto& [id, sequence] : cache.data->sequences) {
    most_spans = std::max(most_spans, sequence.history.spans.size());
    for (const GroupHistory& group : sequence.history.groups) {
      longest_table = std::max(longest_table, group.table.entries().size());
    }
  }
  Memory::KeepList keep;
  const std::size_t cross_pages =
      round_page(size.cross_tokens, page) + static_cast<std::size_t>(size.cross_entries);
  for (std::size_t g = 0; g < layout.groups.size(); ++g) {
    const PagePool& pool = *cache.store->pools[g];
    const bool cross = layout.is_cross(static_cast<int>(g));
    const std::size_t pages = cross ? cross_pages : new_pages + sequences;
    keep.add(pool.header_class(), pages);
    keep.add(pool.sealed_class(), cross ? cross_pages : new_pages);
    if (!cross) {
      keep.add(pool.rows_class(), pages);
    }
    // Chunks: the tail's, the front's where a window cuts it, and those of new runs. Tables may
    // grow from one power of two to the next while runs are added.
    const std::size_t owned = std::min(longest_table, tail_pages) + 4;
    keep.add_table(sizeof(Chunk), sequences * owned + pages / kChunkRuns + sequences);
    for (std::size_t entries = 1; entries <= 4 * (longest_table + pages / kChunkRuns + 4);
         entries *= 2) {
      keep.add_table(entries * sizeof(RunTable::Entry), sequences);
    }
    // Segments and sealing lists, which grow by doubling.
    for (std::size_t count = 1; count <= 2 * (pages + 1); count *= 2) {
      keep.add_table(count * sizeof(Segment), sequences);
      keep.add_table(count * sizeof(Page*), sequences);
    }
  }
  keep.add_table(layout.groups.size() * sizeof(GroupHistory), sequences);
  keep.add_table(layout.groups.size() * sizeof(GroupPart), sequences);
  for (std::size_t count = 1; count <= 2 * (most_spans + tokens); count *= 2) {
    keep.add_table(count * sizeof(PositionRange), sequences);
  }
  for (std::size_t count = 1; count <= 2 * tokens; count *= 2) {
    keep.add_table(count * sizeof(std::int64_t), sequences);
  }
  keep.add_table(sizeof(StepData), 1);
  keep.add_table(sequences * sizeof(StepPart), 1);
  keep.add_table(tokens * sizeof(Token), 1);
  keep.add_table(tokens * sizeof(std::int64_t), 1);
  keep.add_table(tokens, 1);
  keep.add_table(layout.layers.size(), 1);
  cache.store->memory.keep(keep);
}

}  // namespace quire
