// Moving tokens of layers whose keys a caller's function rotates: their pages are made anew, with
// the keys of those layers rewritten and everything else copied as it is.

#include <algorithm>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/numbers.h"
#include "cache/history.h"

namespace quire {
namespace {

// The present keys of `count` slots, [head][slot][dim] in f32, from rows if there are any.
std::vector<float> read_keys(const LayerStore& store, const Page& page, bool rows, int first,
                             int count) {
  const std::size_t head_floats =
      static_cast<std::size_t>(count) * static_cast<std::size_t>(store.key_dim);
  std::vector<float> keys(static_cast<std::size_t>(store.heads) * head_floats);
  float* to = keys.data();
  for (int head = 0; head < store.heads; ++head, to += head_floats) {
    if (rows) {
      read_rows(store, Side::key, head, page.rows, first, count, to);
    } else {
      read_sealed(store, Side::key, head, page.sealed, first, count, to);
    }
  }
  // Codes may stand for a little more than the rows they were made of.
  const float most = largest_finite(store.row_type);
  for (float& key : keys) key = std::clamp(key, -most, most);
  return keys;
}

// Rewrites the keys of the slots that `runs` show of one page, which is encoded once. rotate(run,
// slot, keys) moves those of one slot, [head][dim].
template <class Rotate>
Result<void> rewrite_keys(const LayerStore& store, std::span<const Run> runs, Page& page,
                          const Rotate& rotate) {
  int first = runs.front().first;
  int end = first;
  for (const Run& run : runs) {
    first = std::min<int>(first, run.first);
    end = std::max<int>(end, run.first + run.count);
  }
  const int count = end - first;
  const bool has_rows = runs.front().rows;
  const std::vector<float> before = read_keys(store, page, has_rows, first, count);
  std::vector<std::byte> rounded;
  std::byte* rows = page.rows;
  if (!has_rows) {
    rounded.resize(store.rows_offset + store.rows_bytes);
    rows = rounded.data();
  }
  const std::ptrdiff_t dim = store.key_dim;
  std::vector<float> keys(static_cast<std::size_t>(store.heads * dim));
  for (int slot = first; slot < end; ++slot) {
    for (int head = 0; head < store.heads; ++head) {
      std::copy_n(before.data() + (head * count + slot - first) * dim, dim,
                  keys.data() + head * dim);
    }
    const auto run = std::find_if(runs.begin(), runs.end(), [&](const Run& r) {
      return slot >= r.first && slot < r.first + r.count;
    });
    // Slots between runs were removed; they go along as they are.
    if (run != runs.end()) rotate(*run, slot, keys.data());
    const auto view = TensorView::dense(keys.data(), DType::f32, 1, store.heads, dim);
    QUIRE_CHECK(write_row(store, Side::key, view, 0, rows, slot));
  }
  if (page.sealed != nullptr) {
    reseal(store, Side::key, rows, has_rows, page.slots, first, count, page.sealed);
  }
  return {};
}

}  // namespace

Result<void> History::rotate_by_function(std::size_t g, std::int64_t from, std::int64_t move) {
  const Group& shape = layout_->groups[g];
  RunTable& table = groups[g].table;
  PagePool& pool = table.pool();
  RunTable result(pool);
  Page* made = nullptr;  // the copy of `source`, kept alive by `result`
  const Page* source = nullptr;
  std::vector<Run> moving;  // of `made`: their keys are as they were
  const auto move_keys = [&]() -> Result<void> {
    if (moving.empty()) return {};
    for (const int owner : shape.owners) {
      const Layer& layer = layout_->layers[static_cast<std::size_t>(owner)];
      if (layer.rotation != Rotation::Kind::function) continue;
      const LayerStore& store = layer.store;
      const RotateFunction& rotate =
          layout_->spec.layers[static_cast<std::size_t>(owner)].rotation.function;
      QUIRE_CHECK(rewrite_keys(store, moving, *made, [&](const Run& run, int slot, float* keys) {
        const std::int64_t to = made->positions[slot] + run.turn;
        rotate(owner, keys, store.heads, store.key_dim, to + move, to);
      }));
    }
    moving.clear();
    return {};
  };
  Result<void> failure;
  table.for_each([&](const Run& run, std::int64_t shift) {
    if (!failure.ok()) return;
    Run moved = run;
    moved.turn += shift;
    if (run.count == 0 || run.page->positions[run.first] + moved.turn < from) {
      result.push(moved);
      return;
    }
    if (run.page == source) {
      moved.page = made;
      result.push(moved);
    } else {
      failure = move_keys();
      if (!failure.ok()) return;
      source = run.page;
      FreshPage fresh(pool, source->slots, source->first_ordinal);
      copy_page(g, run, *fresh);  // all of it: later runs may show the page too
      made = &*fresh;
      moved.page = made;
      // What stays where it is of the same page goes along: a place in the history is one page, to
      // be sealed as a whole.
      if (result.has_runs() && result.last().page == source) {
        const std::size_t last = result.entries().size() - 1;
        result.replace_page({last, result.entries()[last].chunk->count - 1}, *source, *made);
      }
      result.push(moved);  // holds it from here on
    }
    moving.push_back(moved);
  });
  if (failure.ok()) failure = move_keys();
  if (!failure.ok()) return failure;
  table.swap(result);
  return {};
}

}  // namespace quire
