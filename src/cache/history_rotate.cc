// Moving tokens of layers whose keys a caller's function rotates: their pages are made anew, with
// the keys of those layers rewritten and everything else copied as it is.

#include <algorithm>
#include <vector>

#include "base/error.h"
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
  return keys;
}

// Rewrites the keys of the slots that a run shows. `rotate` moves one slot's keys, [head][dim].
template <class Rotate>
Result<void> rewrite_keys(const LayerStore& store, const Run& run, Page& page,
                          const Rotate& rotate) {
  const std::vector<float> before = read_keys(store, page, run.rows, run.first, run.count);
  std::vector<std::byte> rounded;
  std::byte* rows = page.rows;
  if (!run.rows) {
    rounded.resize(store.rows_offset + store.rows_bytes);
    rows = rounded.data();
  }
  const std::ptrdiff_t dim = store.key_dim;
  std::vector<float> keys(static_cast<std::size_t>(store.heads * dim));
  for (int i = 0; i < run.count; ++i) {
    for (int head = 0; head < store.heads; ++head) {
      std::copy_n(before.data() + (head * run.count + i) * dim, dim, keys.data() + head * dim);
    }
    rotate(run.first + i, keys.data());
    const auto view = TensorView::dense(keys.data(), DType::f32, 1, store.heads, dim);
    QUIRE_CHECK(write_row(store, Side::key, view, 0, rows, run.first + i));
  }
  if (page.sealed != nullptr) {
    reseal(store, Side::key, rows, run.rows, page.slots, run.first, run.count, page.sealed);
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
  Result<void> failure;
  table.for_each([&](const Run& run, std::int64_t shift) {
    if (!failure.ok()) return;
    Run moved = run;
    moved.turn += shift;
    if (run.count == 0 || run.page->positions[run.first] + moved.turn < from) {
      result.push(moved);
      return;
    }
    if (run.page != source) {
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
      result.push(moved);
    } else {
      moved.page = made;
      result.push(moved);
    }
    for (const int owner : shape.owners) {
      const Layer& layer = layout_->layers[static_cast<std::size_t>(owner)];
      if (layer.rotation != Rotation::Kind::function) continue;
      const LayerStore& store = layer.store;
      const RotateFunction& rotate =
          layout_->spec.layers[static_cast<std::size_t>(owner)].rotation.function;
      failure = rewrite_keys(store, run, *made, [&](int slot, float* keys) {
        const std::int64_t to = run.page->positions[slot] + moved.turn;
        rotate(owner, keys, store.heads, store.key_dim, to + move, to);
      });
      if (!failure.ok()) return;
    }
  });
  if (!failure.ok()) return failure;
  table.swap(result);
  return {};
}

}  // namespace quire
