// Moving tokens of layers whose keys a caller's function rotates: their pages are made anew, with
// the keys of those layers rewritten and everything else copied as it is.

#include <vector>

#include "base/error.h"
#include "cache/history.h"

namespace quire {
namespace {

// The present keys of one slot, [head][dim] in f32, from rows if there are any.
void read_slot(const LayerStore& store, const Page& page, bool rows, int slot, float* out) {
  for (int head = 0; head < store.heads; ++head) {
    float* row = out + static_cast<std::ptrdiff_t>(head) * store.key_dim;
    if (rows) {
      read_rows(store, Side::key, head, page.rows, slot, 1, row);
    } else {
      read_sealed(store, Side::key, head, page.sealed, slot, 1, row);
    }
  }
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
      std::vector<float> keys(static_cast<std::size_t>(store.heads) *
                              static_cast<std::size_t>(store.key_dim));
      std::vector<std::byte> rounded(store.rows_offset + store.rows_bytes);
      for (int slot = run.first; slot < run.first + run.count; ++slot) {
        const std::int64_t to = run.page->positions[slot] + moved.turn;
        read_slot(store, *made, run.rows, slot, keys.data());
        rotate(owner, keys.data(), store.heads, store.key_dim, to + move, to);
        const auto view = TensorView::dense(keys.data(), DType::f32, 1, store.heads, store.key_dim);
        failure = write_row(store, Side::key, view, 0, rounded.data(), 0);
        if (!failure.ok()) return;
        if (run.rows) failure = write_row(store, Side::key, view, 0, made->rows, slot);
        if (made->sealed != nullptr) {
          reseal_slot(store, Side::key, rounded.data(), made->slots, slot, made->sealed);
        }
      }
    }
  });
  if (!failure.ok()) return failure;
  table.swap(result);
  return {};
}

}  // namespace quire
