// The public Sequence: edits of its history, and reading it back.

#include <algorithm>

#include "base/error.h"
#include "base/numbers.h"
#include "cache/core.h"
#include "cache/read.h"
#include "cache/step.h"

namespace quire {
namespace {

// Runs `edit` on a copy of a sequence's history and installs it if all went well.
template <typename Edit>
Result<Cut> edited(const std::shared_ptr<CacheCore>& core, SequenceId id, const char* operation,
                   Edit&& edit) {
  if (core == nullptr) {
    return fail(ErrorCode::unknown_sequence, "{}: the handle is empty", operation);
  }
  return guarded(*core->store, operation, [&]() -> Result<Cut> {
    QUIRE_TRY(SequenceState * sequence, core->find_idle(id, operation));
    History next(sequence->history);
    Result<Cut> cut = edit(next);
    if (!cut) return cut;
    sequence->history.swap(next);
    return cut;
  });
}

// Answers a question about a sequence's history.
template <typename Answer>
auto asked(const std::shared_ptr<CacheCore>& core, SequenceId id, const char* operation,
           Answer&& answer) -> decltype(answer(std::declval<const History&>())) {
  if (core == nullptr) {
    return fail(ErrorCode::unknown_sequence, "{}: the handle is empty", operation);
  }
  return guarded(*core->store, operation,
                 [&]() -> decltype(answer(std::declval<const History&>())) {
                   QUIRE_TRY(const SequenceState* sequence, core->find(id));
                   return answer(sequence->history);
                 });
}

// Slices of a committed history that stay readable without the lock, because the chunks that hold
// their pages are counted.
class PinnedSlices {
 public:
  PinnedSlices(Store& store, const RunTable& table, std::int64_t first_position)
      : store_(store), pins_(), slices(collect_slices(table, first_position)) {
    pins_.emplace(table);
  }
  ~PinnedSlices() {
    const std::lock_guard lock(store_.mutex);
    pins_.reset();
  }
  PinnedSlices(const PinnedSlices&) = delete;
  PinnedSlices& operator=(const PinnedSlices&) = delete;

 private:
  Store& store_;
  std::optional<RunTable::Pin> pins_;

 public:
  const std::vector<PageSlice> slices;
};

struct Reading {
  const Layer* layer = nullptr;
  std::int64_t sealed_below = 0;
  std::unique_ptr<PinnedSlices> pinned;
};

Result<Reading> start_reading(const std::shared_ptr<CacheCore>& core, SequenceId id, int index,
                              std::int64_t first_position, const char* operation) {
  return asked(core, id, operation, [&](const History& history) -> Result<Reading> {
    Reading reading;
    QUIRE_TRY(reading.layer, layer_at(core->layout(), index, operation));
    reading.sealed_below = core->layout().sealed_below(history.end_ordinal);
    reading.pinned = std::make_unique<PinnedSlices>(
        *core->store, history.groups[static_cast<std::size_t>(reading.layer->group)].table,
        first_position);
    return reading;
  });
}

}  // namespace

// --- questions -------------------------------------------------------------------------------

Result<std::int64_t> Sequence::length() const {
  return asked(core_, id_, "length",
               [](const History& h) -> Result<std::int64_t> { return h.length(); });
}

Result<std::int64_t> Sequence::length(int layer) const {
  return asked(core_, id_, "length", [&](const History& h) -> Result<std::int64_t> {
    QUIRE_TRY(const Layer* found, layer_at(core_->layout(), layer, "length"));
    return h.groups[static_cast<std::size_t>(found->group)].table.tokens();
  });
}

Result<bool> Sequence::is_empty() const {
  return asked(core_, id_, "is_empty",
               [](const History& h) -> Result<bool> { return h.length() == 0; });
}

Result<std::int64_t> Sequence::first_position() const {
  return asked(core_, id_, "first_position", [](const History& h) -> Result<std::int64_t> {
    if (h.length() == 0) {
      return fail(ErrorCode::out_of_range, "first_position: the sequence is empty");
    }
    return h.longest().first_position();
  });
}

Result<std::int64_t> Sequence::first_position(int layer) const {
  return asked(core_, id_, "first_position", [&](const History& h) -> Result<std::int64_t> {
    QUIRE_TRY(const Layer* found, layer_at(core_->layout(), layer, "first_position"));
    const RunTable& table = h.groups[static_cast<std::size_t>(found->group)].table;
    if (table.tokens() == 0) {
      return fail(ErrorCode::out_of_range, "first_position: layer {} holds no token", layer);
    }
    return table.first_position();
  });
}

Result<std::int64_t> Sequence::next_position() const {
  return asked(core_, id_, "next_position",
               [](const History& h) -> Result<std::int64_t> { return h.next_position; });
}

Result<std::int64_t> Sequence::remaining() const {
  return asked(core_, id_, "remaining", [&](const History& h) -> Result<std::int64_t> {
    const auto& limit = core_->layout().spec.max_tokens;
    if (!limit) return INT64_MAX;
    return std::max<std::int64_t>(*limit - h.length_at(h.next_position), 0);
  });
}

Result<bool> Sequence::is_full() const {
  QUIRE_TRY(const std::int64_t left, remaining());
  return left == 0;
}

Result<bool> Sequence::has_cross() const {
  return asked(core_, id_, "has_cross",
               [](const History& h) -> Result<bool> { return h.has_cross(); });
}

Result<bool> Sequence::is_exact() const {
  return asked(core_, id_, "is_exact",
               [](const History& h) -> Result<bool> { return h.is_exact(); });
}

Result<Resume> Sequence::can_resume(std::int64_t position) const {
  return asked(core_, id_, "can_resume",
               [&](const History& h) -> Result<Resume> { return h.can_resume(position); });
}

Result<std::vector<Token>> Sequence::tokens() const {
  return asked(core_, id_, "tokens", [&](const History& h) -> Result<std::vector<Token>> {
    std::vector<Token> tokens;
    for (const PageSlice& slice : collect_slices(h.longest(), INT64_MIN)) {
      for (int slot = slice.first; slot < slice.first + slice.count; ++slot) {
        tokens.push_back({id_, slice.position(slot), slice.keys[slot]});
      }
    }
    return tokens;
  });
}

// --- edits -----------------------------------------------------------------------------------

Result<Sequence> Sequence::fork() const {
  QUIRE_TRY(Forked forked, fork(INT64_MAX));
  return forked.sequence;
}

Result<Forked> Sequence::fork(std::int64_t position) const {
  return asked(core_, id_, "fork", [&](const History& history) -> Result<Forked> {
    if (position < 0) return fail(ErrorCode::out_of_range, "fork: position {}", position);
    if (position >= history.next_position) {
      QUIRE_TRY(const SequenceId id, core_->open("fork", &history));
      return Forked{Sequence(core_, id), history.next_position};
    }
    History cut(history);
    const Cut at = cut.truncate(position);
    QUIRE_TRY(const SequenceId id, core_->open("fork", &cut));
    return Forked{Sequence(core_, id), at.at};
  });
}

Result<Cut> Sequence::truncate(std::int64_t position) const {
  return edited(core_, id_, "truncate", [&](History& history) -> Result<Cut> {
    if (position < 0) return fail(ErrorCode::out_of_range, "truncate: position {}", position);
    return history.truncate(position);
  });
}

Result<Cut> Sequence::keep_last(std::int64_t count) const {
  return edited(core_, id_, "keep_last", [&](History& history) -> Result<Cut> {
    if (count < 0) return fail(ErrorCode::out_of_range, "keep_last: {} tokens", count);
    return history.keep_last(count);
  });
}

Result<Cut> Sequence::shift_left(std::int64_t count) const {
  return edited(core_, id_, "shift_left", [&](History& history) -> Result<Cut> {
    if (count < 0) return fail(ErrorCode::out_of_range, "shift_left: {} tokens", count);
    return history.shift_left(count);
  });
}

Result<Cut> Sequence::remove(std::int64_t begin, std::int64_t end, bool leave_gap) const {
  return edited(core_, id_, "remove", [&](History& history) -> Result<Cut> {
    if (begin < 0) return fail(ErrorCode::out_of_range, "remove: position {}", begin);
    if (begin > end) {
      return fail(ErrorCode::invalid_argument, "remove: the range [{}, {}) is reversed", begin,
                  end);
    }
    if (begin == end) return Cut{false, begin};
    return history.remove(begin, end, leave_gap);
  });
}

Result<void> Sequence::close() const {
  if (core_ == nullptr) return fail(ErrorCode::unknown_sequence, "close: the handle is empty");
  return guarded(*core_->store, "close", [&]() -> Result<void> {
    QUIRE_TRY([[maybe_unused]] const SequenceState* sequence, core_->find_idle(id_, "close"));
    core_->data->sequences.erase(id_);
    if (core_->data->sequences.empty()) core_->forget_sequences();
    return {};
  });
}

namespace {

// Writes one token's row of one layer into a page that nobody else sees. Rows are rounded as put
// rounds them; sealed bytes follow.
Result<void> overwrite_slot(const LayerStore& store, Page& page, int slot, const TensorView& key,
                            const TensorView& value) {
  std::vector<std::byte> rounded;
  std::byte* rows = page.rows;
  if (rows == nullptr) {
    rounded.resize(store.rows_offset + store.rows_bytes);
    rows = rounded.data();
  }
  for (const Side side : {Side::key, Side::value}) {
    if (store.mla && side == Side::value) continue;
    QUIRE_CHECK(
        write_row(store, side, side == Side::key ? key : value, 0, rows, slot, "overwrite"));
    if (page.sealed != nullptr) {
      reseal(store, side, rows, page.rows != nullptr, page.slots, slot, 1, page.sealed);
    }
  }
  return {};
}

// A key as its page holds it: rotated for the position recorded there. Empty where that is the key
// as it is.
std::vector<float> turned_back(const Layer& layer, const TensorView& key, std::int64_t turn) {
  std::vector<float> turned;
  if (layer.math.rope == nullptr || turn == 0) return turned;
  turned.resize(static_cast<std::size_t>(key.heads * key.dim));
  const std::vector<float> angles = layer.math.rope->angles(-turn);
  const auto* data = static_cast<const std::byte*>(key.data);
  for (std::int64_t head = 0; head < key.heads; ++head) {
    float* row = turned.data() + head * key.dim;
    for (std::int64_t c = 0; c < key.dim; ++c) {
      row[c] = load_element(key.dtype, data, static_cast<std::size_t>(head * key.head_stride + c));
    }
    layer.math.rope->apply(angles, row);
  }
  return turned;
}

}  // namespace

Result<void> Sequence::overwrite(int index, std::int64_t position, const TensorView& key,
                                 const TensorView& value) const {
  if (core_ == nullptr) return fail(ErrorCode::unknown_sequence, "overwrite: the handle is empty");
  return guarded(*core_->store, "overwrite", [&]() -> Result<void> {
    QUIRE_TRY(SequenceState * sequence, core_->find_idle(id_, "overwrite"));
    QUIRE_TRY(const Layer* layer, layer_at(core_->layout(), index, "overwrite"));
    if (layer->owner != index) {
      return fail(ErrorCode::not_supported, "overwrite: layer {} reads layer {}", index,
                  layer->owner);
    }
    QUIRE_CHECK(check_rows(layer->store, Side::key, key, 1, "overwrite"));
    if (!layer->store.mla) {
      QUIRE_CHECK(check_rows(layer->store, Side::value, value, 1, "overwrite"));
    }
    const auto g = static_cast<std::size_t>(layer->group);
    History next(sequence->history);
    RunTable& table = next.groups[g].table;
    const std::optional<RunTable::Spot> spot = table.spot_at(position);
    if (!spot || spot->position != position) {
      return fail(ErrorCode::out_of_range, "overwrite: layer {} holds no token at position {}",
                  index, position);
    }
    const RunTable::Place place = *table.find(position);
    const Run run = table.entries()[place.entry].chunk->runs[place.run];
    PagePool& pool = table.pool();
    FreshPage fresh(pool, run.page->slots, run.page->first_ordinal);
    next.copy_page(g, run, *fresh);
    const int slot = run.first + static_cast<int>(spot->ordinal - run.ordinal);
    const std::int64_t turn = run.turn + table.entries()[place.entry].shift;
    const std::vector<float> turned = turned_back(*layer, key, turn);
    const TensorView stored =
        turned.empty() ? key : TensorView::dense(turned.data(), DType::f32, 1, key.heads, key.dim);
    QUIRE_CHECK(overwrite_slot(layer->store, *fresh, slot, stored, value));
    table.replace_page(place, *run.page, *fresh);
    next.inexact_from = std::min(next.inexact_from, spot->ordinal);
    sequence->history.swap(next);
    return {};
  });
}

// --- reading ---------------------------------------------------------------------------------

Result<std::int64_t> Sequence::read(int index, Side side, const ReadRange& range, float* out,
                                    std::int64_t out_elements) const {
  return shielded("read", [&]() -> Result<std::int64_t> {
    QUIRE_TRY(Reading reading, start_reading(core_, id_, index, range.begin, "read"));
    const LayerStore& store = reading.layer->store;
    if (range.head < -1 || range.head >= store.heads) {
      return fail(ErrorCode::out_of_range, "read: head {} of {}", range.head, store.heads);
    }
    if (range.begin > range.end) {
      return fail(ErrorCode::invalid_argument, "read: the range [{}, {}) is reversed", range.begin,
                  range.end);
    }
    const int dim = side == Side::key ? store.key_dim : store.value_dim;
    const int first_head = range.head < 0 ? 0 : range.head;
    const int heads = range.head < 0 ? store.heads : 1;
    std::int64_t tokens = 0;
    for (const PageSlice& slice : reading.pinned->slices) {
      for (int i = 0; i < slice.count && slice.position(slice.first + i) < range.end; ++i) ++tokens;
    }
    if (tokens == 0 && range.begin < range.end && range.begin + 1 == range.end) {
      return fail(ErrorCode::out_of_range, "read: layer {} holds no token at position {}", index,
                  range.begin);
    }
    const std::int64_t needed = tokens * heads * dim;
    if (out_elements < needed || (out == nullptr && needed > 0)) {
      return fail(ErrorCode::buffer_too_small,
                  "read: {} tokens need {} elements, the buffer has {}", tokens, needed,
                  out == nullptr ? 0 : out_elements);
    }
    std::int64_t left = tokens;
    for (const PageSlice& slice : reading.pinned->slices) {
      for (int i = 0; i < slice.count && left > 0; ++i, --left) {
        for (int head = first_head; head < first_head + heads; ++head, out += dim) {
          read_slice(store, reading.layer->math.rope, side, head, slice, reading.sealed_below,
                     slice.first + i, 1, out);
        }
      }
    }
    return tokens;
  });
}

Result<void> Sequence::for_each(int index, Side side, const RowFunction& f) const {
  return shielded("for_each", [&]() -> Result<void> {
    if (!f) return fail(ErrorCode::invalid_argument, "for_each: there is no function");
    QUIRE_TRY(Reading reading, start_reading(core_, id_, index, INT64_MIN, "for_each"));
    const LayerStore& store = reading.layer->store;
    const int dim = side == Side::key ? store.key_dim : store.value_dim;
    std::vector<float> row(static_cast<std::size_t>(store.heads) * static_cast<std::size_t>(dim));
    for (const PageSlice& slice : reading.pinned->slices) {
      for (int slot = slice.first; slot < slice.first + slice.count; ++slot) {
        for (int head = 0; head < store.heads; ++head) {
          read_slice(store, reading.layer->math.rope, side, head, slice, reading.sealed_below, slot,
                     1, row.data() + static_cast<std::ptrdiff_t>(head) * dim);
        }
        f(slice.position(slot), row.data());
      }
    }
    return {};
  });
}

namespace {

Result<Gathered> gather_committed(const std::shared_ptr<CacheCore>& core,
                                  const std::vector<SequenceId>& ids, int index,
                                  const GatherFormat& format, bool size_only, void* keys,
                                  std::int64_t key_elements, void* values,
                                  std::int64_t value_elements) {
  return shielded("gather", [&]() -> Result<Gathered> {
    if (ids.empty()) return fail(ErrorCode::invalid_argument, "gather: no sequences");
    std::vector<Reading> readings;  // pinned until all is written
    std::vector<GatherSource> sources;
    for (const SequenceId id : ids) {
      QUIRE_TRY(Reading reading, start_reading(core, id, index, INT64_MIN, "gather"));
      sources.push_back({reading.pinned->slices, reading.sealed_below});
      readings.push_back(std::move(reading));
    }
    return gather_sources(*readings.front().layer, sources, format, size_only, keys, key_elements,
                          values, value_elements);
  });
}

}  // namespace

Result<Gathered> Sequence::gather_size(int layer, const GatherFormat& format) const {
  return gather_committed(core_, {id_}, layer, format, true, nullptr, 0, nullptr, 0);
}

Result<Gathered> Sequence::gather(int layer, const GatherFormat& format, void* keys,
                                  std::int64_t key_elements, void* values,
                                  std::int64_t value_elements) const {
  return gather_committed(core_, {id_}, layer, format, false, keys, key_elements, values,
                          value_elements);
}

Result<Gathered> Cache::gather_size(int layer, const std::vector<SequenceId>& sequences,
                                    const GatherFormat& format) const {
  return gather_committed(core_, sequences, layer, format, true, nullptr, 0, nullptr, 0);
}

Result<Gathered> Cache::gather(int layer, const std::vector<SequenceId>& sequences,
                               const GatherFormat& format, void* keys, std::int64_t key_elements,
                               void* values, std::int64_t value_elements) const {
  return gather_committed(core_, sequences, layer, format, false, keys, key_elements, values,
                          value_elements);
}

Result<std::vector<RunView>> Sequence::runs(int index) const {
  return shielded("runs", [&]() -> Result<std::vector<RunView>> {
    QUIRE_TRY(Reading reading, start_reading(core_, id_, index, INT64_MIN, "runs"));
    return lend_runs(*reading.layer, reading.pinned->slices, reading.sealed_below);
  });
}

}  // namespace quire
