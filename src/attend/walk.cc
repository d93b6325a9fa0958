#include "attend/walk.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attend/block_walk.h"
#include "attend/seen.h"

namespace quire {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Rows of a block: as many as keep queries, logits and sums near the core while a page is used.
constexpr std::int64_t kBlockRows = 192;

}  // namespace

std::size_t block_queries(const AttendTask& task) noexcept {
  const std::int64_t heads = task.q.heads / task.store->heads;
  return static_cast<std::size_t>(std::max<std::int64_t>(1, kBlockRows / heads));
}

std::int64_t item_of(const PageSlice& slice, const LayerStore& store) noexcept {
  return (slice.page_end - 1) / store.page_tokens / kItemPages;
}

std::vector<WorkItem> cut_items(std::span<const PageSlice> slices, const LayerStore& store) {
  std::vector<WorkItem> items;
  while (!slices.empty()) {
    std::size_t count = 1;
    const std::int64_t item = item_of(slices[0], store);
    while (count < slices.size() && item_of(slices[count], store) == item) ++count;
    items.push_back(slices.first(count));
    slices = slices.subspan(count);
  }
  return items;
}

void attend_states(const AttendTask& task, HeadRange heads, const StateView& out) {
  WalkRoom room;
  attend_states(task, heads, out, room);
}

void attend_states(const AttendTask& task, HeadRange heads, const StateView& out, WalkRoom& room) {
  const std::size_t block = block_queries(task);
  for (std::size_t at = 0; at < task.queries.size(); at += block) {
    AttendTask part = task;
    part.queries = task.queries.subspan(at, std::min(block, task.queries.size() - at));
    BlockWalk(part, heads, room).run(task.slices, heads, out);
  }
}

void attend_logits(const AttendTask& task, int kv_head, float* out, std::int64_t columns) {
  const HeadGroup group = group_of(task, kv_head);
  const auto line = [&](const Query& query, std::int64_t head) {
    return out + (query.row * task.q.heads + group.first + head) * columns;
  };
  for (const Query& query : task.queries) {
    for (std::int64_t h = 0; h < group.count; ++h) std::fill_n(line(query, h), columns, kNothing);
  }
  const int slots = tile_ceil(task.store->page_tokens);
  const std::size_t block = block_queries(task);
  Scratch scratch;
  QueryRoom room;
  const Readers readers(*task.store, Side::key, kv_head, task.isa);
  Operand keys;
  for (std::size_t at = 0; at < task.queries.size(); at += block) {
    const std::span<const Query> queries =
        task.queries.subspan(at, std::min(block, task.queries.size() - at));
    const auto rows = static_cast<std::int64_t>(queries.size()) * group.count;
    QueryBlock rows_of_block(task, group, queries, room);
    float* logits = scratch.take_floats(static_cast<std::size_t>(rows * slots));
    std::int64_t column = 0;
    std::vector<Seen> seen(queries.size());
    std::vector<Stretch> stretches;
    for (const PageSlice& slice : task.slices) {
      for (std::size_t i = 0; i < queries.size(); ++i) seen[i] = seen_by(slice, queries[i]);
      stretches.clear();
      add_stretches(seen, stretches);
      for (const Stretch& stretch : stretches) {
        keys.make(readers.of(stretch.sealed), bytes_of_page(slice), slice.first + slice.count,
                  static_cast<std::size_t>(rows) >= task.many_rows);
        const auto first_row = static_cast<std::int64_t>(stretch.first) * group.count;
        keys.products().scores(
            keys.side(), stretch.first_slot, stretch.end_slot,
            rows_of_block.prepared(keys, slice.turn, first_row,
                                   static_cast<std::int64_t>(stretch.count) * group.count),
            logits + first_row * slots, slots, {});
        for (std::size_t i = stretch.first; i < stretch.first + stretch.count; ++i) {
          float* from = logits + static_cast<std::int64_t>(i) * group.count * slots;
          shape_logits(task.math, group, slice, queries[i], seen[i].begin, seen[i].end, from,
                       slots);
          const float scale = scale_left(task.math);
          for (std::int64_t h = 0; h < group.count; ++h, from += slots) {
            float* to = line(queries[i], h) + column - slice.first;
            for (int t = seen[i].begin; t < seen[i].end; ++t) to[t] = from[t] * scale;
          }
        }
      }
      column += slice.count;
    }
  }
}

void logits_to_probabilities(float* logits, std::int64_t columns, float sink) noexcept {
  float top = sink;
  for (std::int64_t j = 0; j < columns; ++j) top = logits[j] <= top ? top : logits[j];
  if (top == kNothing) {
    std::fill_n(logits, columns, 0.0f);
    return;
  }
  // The sum is kept in double: columns may be many, and each must be divided by the same number
  // whatever columns of zeros stand between.
  double sum = std::exp2(static_cast<double>((sink - top) * kLog2E));
  for (std::int64_t j = 0; j < columns; ++j) {
    logits[j] = std::exp2((logits[j] - top) * kLog2E);
    sum += static_cast<double>(logits[j]);
  }
  for (std::int64_t j = 0; j < columns; ++j) {
    logits[j] = static_cast<float>(static_cast<double>(logits[j]) / sum);
  }
}

void read_slice(const LayerStore& store, const RopeTurner* rope, Side side, int head,
                const PageSlice& slice, std::int64_t sealed_below, int first, int count,
                float* out) {
  if (slice.reads_sealed(sealed_below)) {
    read_sealed(store, side, head, slice.sealed, first, count, out);
  } else {
    read_rows(store, side, head, slice.rows, first, count, out);
  }
  if (side != Side::key || rope == nullptr || slice.turn == 0) return;
  const std::vector<float> angles = rope->angles(slice.turn);
  for (int t = 0; t < count; ++t)
    rope->apply(angles, out + static_cast<std::ptrdiff_t>(t) * store.key_dim);
}

}  // namespace quire
