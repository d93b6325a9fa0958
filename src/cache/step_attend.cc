// What a step answers: attention, scores, gathered tensors, masks, lent runs.

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>
#include <thread>

#include "attend/block_walk.h"
#include "base/error.h"
#include "base/numbers.h"
#include "cache/read.h"
#include "cache/shelf.h"
#include "cache/step.h"
#include "cache/visible.h"

namespace quire {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

float sink_of(const Layer& layer, int query_head) {
  return layer.sinks.empty() ? kMinusInfinity : layer.sinks[static_cast<std::size_t>(query_head)];
}

}  // namespace

// --- what queries see ------------------------------------------------------------------------

std::vector<Query> StepCore::make_queries(const StepPart& part, int group) const {
  const Pattern& pattern = layout().groups[static_cast<std::size_t>(group)].pattern;
  const auto count = static_cast<std::int64_t>(part.rows.size());
  const std::int64_t end = part.first_ordinal + count;
  const auto token = [&](std::int64_t i) -> const Token& {
    return data->tokens[static_cast<std::size_t>(part.rows[static_cast<std::size_t>(i)])];
  };
  std::vector<Query> queries(static_cast<std::size_t>(count));
  auto span = part.next.spans.begin();
  std::int64_t span_last = 0;  // the first token behind the span at hand
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t ordinal = part.first_ordinal + i;
    const std::int64_t position = token(i).position;
    const std::int64_t row = part.rows[static_cast<std::size_t>(i)];
    Beyond beyond;
    if (data->exceptions[static_cast<std::size_t>(row)]) beyond.sequence_end = end;
    // Spans and tokens both ascend, so one walk along both finds each token's span.
    while (span != part.next.spans.end() && span->end <= position) ++span;
    if (span != part.next.spans.end() && span->begin <= position) {
      while (span_last < count && (span_last <= i || token(span_last).position < span->end)) {
        ++span_last;
      }
      beyond.span_end = part.first_ordinal + span_last;
    }
    const Visible seen = visible(pattern, position, ordinal, beyond);
    queries[static_cast<std::size_t>(i)] = {
        row, position, seen.first_position, seen.end_ordinal, layout().sealed_below(ordinal), row};
  }
  return queries;
}

StepCore::Sight& StepCore::sight_of(const StepPart& part, int group) {
  const std::size_t groups = layout().groups.size();
  sights.resize(data->parts.size() * groups);
  return sights[static_cast<std::size_t>(&part - data->parts.data()) * groups +
                static_cast<std::size_t>(group)];
}

const std::vector<Query>& StepCore::queries_of(const StepPart& part, const Layer& layer) {
  Sight& sight = sight_of(part, layer.group);
  if (sight.queries.empty()) sight.queries = make_queries(part, layer.group);
  return sight.queries;
}

const std::vector<PageSlice>& StepCore::slices_of(const StepPart& part, const Layer& layer) {
  const auto g = static_cast<std::size_t>(layer.group);
  Sight& sight = sight_of(part, layer.group);
  if (sight.slices.empty()) {
    const std::int64_t first = data->tokens[static_cast<std::size_t>(part.rows.front())].position;
    // Bounds never decrease along a batch, so what the first query sees is where the columns start.
    sight.slices =
        collect_slices(part.next.groups[g].table, first_visible(layout().groups[g].pattern, first));
  }
  return sight.slices;
}

std::int64_t StepCore::columns_of(const StepPart& part, const Layer& layer) {
  return count_slots(slices_of(part, layer));
}

Result<const Layer*> StepCore::readable_layer(const char* operation, int index) const {
  QUIRE_CHECK(check_open(operation));
  QUIRE_TRY(const Layer* layer, layer_at(layout(), index, operation));
  const bool nothing_to_put = layout().is_cross(layer->group) && data->cross_rows == 0;
  if (!nothing_to_put && !data->put[static_cast<std::size_t>(layer->owner)]) {
    return fail(ErrorCode::wrong_state, "{}: layer {} was not put in this step yet", operation,
                layer->owner);
  }
  return layer;
}

Result<void> StepCore::check_query(const char* operation, int index, const Layer& layer,
                                   const TensorView& q) const {
  if (q.data == nullptr) {
    return fail(ErrorCode::invalid_argument, "{}: layer {}: queries are null", operation, index);
  }
  if (!is_known(q.dtype)) {
    return fail(ErrorCode::mismatch, "{}: layer {}: queries have the unknown dtype {}", operation,
                index, static_cast<int>(q.dtype));
  }
  const auto tokens = static_cast<std::int64_t>(data->tokens.size());
  if (q.tokens != tokens || q.dim != layer.store.key_dim) {
    return fail(ErrorCode::mismatch,
                "{}: layer {}: queries are [{}][{}][{}], expected [{} tokens][heads][{}]",
                operation, index, q.tokens, q.heads, q.dim, tokens, layer.store.key_dim);
  }
  const bool known = layer.query_heads > 0;
  if (q.heads < 1 || (known ? q.heads != layer.query_heads : q.heads % layer.store.heads != 0)) {
    return fail(ErrorCode::mismatch, "{}: layer {}: {} query heads, expected {}{}", operation,
                index, q.heads, known ? "" : "a multiple of ",
                known ? layer.query_heads : layer.store.heads);
  }
  return {};
}

Result<void> StepCore::set_exceptions(const std::vector<std::int64_t>& tokens) {
  const std::lock_guard lock(mutex);
  QUIRE_CHECK(check_open("set_exceptions"));
  const auto count = static_cast<std::int64_t>(data->tokens.size());
  for (const std::int64_t token : tokens) {
    if (token < 0 || token >= count) {
      return fail(ErrorCode::out_of_range, "set_exceptions: token {} of {}", token, count);
    }
  }
  std::fill(data->exceptions.begin(), data->exceptions.end(), char{0});
  for (const std::int64_t token : tokens) data->exceptions[static_cast<std::size_t>(token)] = 1;
  for (Sight& sight : sights) sight.queries.clear();
  return {};
}

// --- attention -------------------------------------------------------------------------------

namespace {

// An object from a shelf, until it is left there again.
template <typename T>
class Lent {
 public:
  explicit Lent(Shelf<T>& shelf) : shelf_(shelf), object_(shelf.take()) {}
  ~Lent() { shelf_.leave(std::move(object_)); }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  T& operator*() const noexcept { return *object_; }

 private:
  Shelf<T>& shelf_;
  std::unique_ptr<T> object_;
};

// States of [rows][heads][dim], in one piece.
StateView states_in(Scratch& scratch, std::int64_t rows, std::int64_t heads, std::int64_t dim) {
  float* floats = scratch.take_floats(static_cast<std::size_t>(rows * heads * (dim + 2)));
  return {floats, floats + rows * heads * dim, floats + rows * heads * (dim + 1), rows, heads, dim};
}

// The attention of one sequence's queries, as tasks that write different states, so that their
// order is free. Many queries are cut into blocks, a head each. Few are cut into the work items of
// the history, and those into ranges of heads; the last to finish a range of heads merges the
// states of the items, in order.
class SequenceWork {
 public:
  // `wanted`: tasks that all threads need to be busy; what comes out does not depend on it.
  SequenceWork(const Layer& layer, const std::vector<PageSlice>& slices,
               const std::vector<Query>& queries, const TensorView& q, const StateView& out,
               std::size_t wanted, Shelf<WalkRoom>& rooms, Shelf<Scratch>& scratch)
      : rooms_(rooms),
        states_scratch_(scratch),
        slices_(slices),
        queries_(queries),
        task_{&layer.store, layer.math, slices_, queries_, q},
        out_(out) {
    const std::size_t block = block_queries(task_);
    for (std::size_t at = 0; at < queries_.size(); at += block) {
      blocks_.push_back(task_.queries.subspan(at, std::min(block, queries_.size() - at)));
    }
    if (blocks_.size() == 1) cut_items();
    const auto heads = static_cast<std::size_t>(layer.store.heads);
    const std::size_t ranges =
        blocks_.size() > 1 ? heads
                           : std::clamp((wanted + pieces() - 1) / pieces(), std::size_t{1}, heads);
    const std::size_t per_range = (heads + ranges - 1) / ranges;
    for (std::size_t at = 0; at < heads; at += per_range) {
      ranges_.push_back({static_cast<int>(at), static_cast<int>(std::min(heads, at + per_range))});
    }
    left_ = std::vector<std::atomic<std::size_t>>(ranges_.size());
    walks_ = std::vector<Shelf<Walker>>(items_.empty() ? 0 : ranges_.size());
    for (auto& left : left_) left = items_.size();
  }

  std::size_t tasks() const noexcept { return ranges_.size() * pieces(); }

  void run(std::size_t index) {
    // Blocks of queries inside heads, whose pages are then near. But ranges of heads inside items:
    // threads that go on in step then keep to a range each, and so to what a walker has prepared.
    const bool in_items = !items_.empty();
    const std::size_t range = in_items ? index % ranges_.size() : index / pieces();
    const std::size_t piece = in_items ? index / ranges_.size() : index % pieces();
    AttendTask task = task_;
    if (items_.empty()) {
      task.queries = blocks_[piece];
      const Lent<WalkRoom> room(rooms_);
      attend_states(task, ranges_[range], out_, *room);
      return;
    }
    task.queries = item_queries_;
    std::unique_ptr<Walker> walker =
        walks_[range].take([&] { return std::make_unique<Walker>(task, ranges_[range], rooms_); });
    walker->walk.run(items_[piece], item_states(piece));
    walks_[range].leave(std::move(walker));
    if (left_[range].fetch_sub(1) == 1) merge(ranges_[range]);
  }

 private:
  struct Walker {
    Walker(const AttendTask& task, HeadRange heads, Shelf<WalkRoom>& rooms)
        : room(rooms), walk(task, heads, *room) {}
    Lent<WalkRoom> room;
    BlockWalk walk;
  };

  std::size_t pieces() const noexcept { return std::max(items_.size(), blocks_.size()); }

  void cut_items() {
    for (std::size_t at = 0; at < slices_.size();) {
      std::size_t end = at + 1;
      const std::int64_t item = item_of(slices_[at], *task_.store);
      while (end < slices_.size() && item_of(slices_[end], *task_.store) == item) ++end;
      items_.push_back(task_.slices.subspan(at, end - at));
      at = end;
    }
    if (items_.size() < 2) {
      items_.clear();
      return;
    }
    item_queries_.assign(queries_.begin(), queries_.end());
    for (std::size_t i = 0; i < queries_.size(); ++i) {
      item_queries_[i].out_row = static_cast<std::int64_t>(i);
    }
    states_ =
        states_in(*states_scratch_, static_cast<std::int64_t>(items_.size() * queries_.size()),
                  out_.heads, out_.dim);
  }

  StateView item_states(std::size_t item) const noexcept {
    const StateView& all = states_;
    const auto rows = static_cast<std::int64_t>(queries_.size());
    const std::int64_t first = static_cast<std::int64_t>(item) * rows * all.heads;
    return {all.o + first * all.dim, all.m + first, all.l + first, rows, all.heads, all.dim};
  }

  void merge(HeadRange range) {
    const std::int64_t group = out_.heads / task_.store->heads;
    const std::int64_t first = range.begin * group;
    const std::int64_t count = (range.end - range.begin) * group;
    for (std::size_t i = 0; i < queries_.size(); ++i) {
      const std::int64_t to = queries_[i].out_row * out_.heads + first;
      const std::int64_t from = static_cast<std::int64_t>(i) * out_.heads + first;
      state_clear(out_.o + to * out_.dim, out_.m + to, out_.l + to, count, out_.dim);
      for (std::size_t item = 0; item < items_.size(); ++item) {
        const StateView states = item_states(item);
        state_merge(out_.o + to * out_.dim, out_.m + to, out_.l + to, states.o + from * out_.dim,
                    states.m + from, states.l + from, count, out_.dim);
      }
    }
  }

  Shelf<WalkRoom>& rooms_;
  Lent<Scratch> states_scratch_;
  std::span<const PageSlice> slices_;
  std::span<const Query> queries_;
  AttendTask task_;
  StateView out_;
  std::vector<std::span<const Query>> blocks_;
  std::vector<std::span<const PageSlice>> items_;  // empty: not cut into them
  std::vector<Query> item_queries_;                // queries_ with rows of an item's states
  StateView states_{};                             // [item][query]
  std::vector<HeadRange> ranges_;
  std::vector<Shelf<Walker>> walks_;            // [range]: those of threads between two items
  std::vector<std::atomic<std::size_t>> left_;  // [range]: items not done
};

}  // namespace

Result<void> StepCore::run_states(int index, const TensorView& q, const StateView& out) {
  QUIRE_TRY(const Layer* layer, readable_layer("attend", index));
  QUIRE_CHECK(check_query("attend", index, *layer, q));
  if (out.o == nullptr || out.m == nullptr || out.l == nullptr) {
    return fail(ErrorCode::invalid_argument, "attend: layer {}: the output is null", index);
  }
  if (out.tokens != q.tokens || out.heads != q.heads || out.dim != layer->store.value_dim) {
    return fail(ErrorCode::mismatch,
                "attend: layer {}: the output is [{}][{}][{}], expected [{}][{}][{}]", index,
                out.tokens, out.heads, out.dim, q.tokens, q.heads, layer->store.value_dim);
  }
  if (data->parts.empty()) return {};
  std::vector<std::unique_ptr<SequenceWork>> works;
  std::vector<std::size_t> ends;  // of each one's tasks
  static const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const std::size_t wanted = (8 * cores + data->parts.size() - 1) / data->parts.size();
  for (const StepPart& part : data->parts) {
    works.push_back(std::make_unique<SequenceWork>(*layer, slices_of(part, *layer),
                                                   queries_of(part, *layer), q, out, wanted,
                                                   walk_rooms, state_scratch));
    ends.push_back((ends.empty() ? 0 : ends.back()) + works.back()->tasks());
  }
  std::atomic<bool> out_of_memory = false;  // tasks must not throw
  cache->store->executor->run(ends.back(), [&](std::size_t task) {
    const auto end = std::upper_bound(ends.begin(), ends.end(), task);
    const auto at = static_cast<std::size_t>(end - ends.begin());
    try {
      works[at]->run(task - (*end - works[at]->tasks()));
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    }
  });
  if (out_of_memory) throw std::bad_alloc();
  return {};
}

Result<void> StepCore::attend_state(int index, const TensorView& q, const StateView& out) {
  const std::lock_guard lock(mutex);
  return run_states(index, q, out);
}

Result<void> StepCore::attend(int index, const TensorView& q, const OutputView& out) {
  const std::lock_guard lock(mutex);
  QUIRE_TRY(const Layer* layer, readable_layer("attend", index));
  QUIRE_CHECK(check_query("attend", index, *layer, q));
  if (out.data == nullptr) {
    return fail(ErrorCode::invalid_argument, "attend: layer {}: the output is null", index);
  }
  const int dim = layer->store.value_dim;
  if (out.tokens != q.tokens || out.heads != q.heads || out.dim != dim) {
    return fail(ErrorCode::mismatch,
                "attend: layer {}: the output is [{}][{}][{}], expected [{}][{}][{}]", index,
                out.tokens, out.heads, out.dim, q.tokens, q.heads, dim);
  }
  const auto states = static_cast<std::size_t>(q.tokens * q.heads);
  std::vector<float> o(states * static_cast<std::size_t>(dim));
  std::vector<float> m(states);
  std::vector<float> l(states);
  QUIRE_CHECK(run_states(index, q, {o.data(), m.data(), l.data(), q.tokens, q.heads, dim}));
  for (std::int64_t t = 0; t < q.tokens; ++t) {
    for (std::int64_t h = 0; h < q.heads; ++h) {
      const auto s = static_cast<std::size_t>(t * q.heads + h);
      state_finish(out.data + t * out.token_stride + h * out.head_stride,
                   o.data() + s * static_cast<std::size_t>(dim), m[s], l[s],
                   sink_of(*layer, static_cast<int>(h)), dim);
    }
  }
  return {};
}

Result<void> StepCore::scores(int index, const TensorView& q, float* out, std::int64_t elements,
                              bool probabilities) {
  const std::lock_guard lock(mutex);
  const char* operation = probabilities ? "probabilities" : "scores";
  QUIRE_TRY(const Layer* layer, readable_layer(operation, index));
  QUIRE_CHECK(check_query(operation, index, *layer, q));
  std::int64_t columns = 0;
  for (const StepPart& part : data->parts) columns = std::max(columns, columns_of(part, *layer));
  const std::int64_t needed = q.tokens * q.heads * columns;
  if (elements < needed || (out == nullptr && needed > 0)) {
    return fail(ErrorCode::buffer_too_small, "{}: layer {}: {} elements needed, the buffer has {}",
                operation, index, needed, out == nullptr ? 0 : elements);
  }
  for (const StepPart& part : data->parts) {
    const std::vector<PageSlice>& slices = slices_of(part, *layer);
    const std::vector<Query>& queries = queries_of(part, *layer);
    for (int head = 0; head < layer->store.heads; ++head) {
      attend_logits({&layer->store, layer->math, slices, queries, q}, head, out, columns);
    }
  }
  for (std::int64_t row = 0; probabilities && row < q.tokens * q.heads; ++row) {
    logits_to_probabilities(out + row * columns, columns,
                            sink_of(*layer, static_cast<int>(row % q.heads)));
  }
  return {};
}

// --- for engines with their own attention ----------------------------------------------------

Result<Gathered> StepCore::gather(int index, const std::vector<SequenceId>& sequences,
                                  const GatherFormat& format, bool size_only, void* keys,
                                  std::int64_t key_elements, void* values,
                                  std::int64_t value_elements) {
  const std::lock_guard lock(mutex);
  QUIRE_TRY(const Layer* layer, readable_layer("gather", index));
  if (sequences.empty()) return fail(ErrorCode::invalid_argument, "gather: no sequences");
  std::vector<GatherSource> sources;
  for (const SequenceId id : sequences) {
    const auto part = std::find_if(data->parts.begin(), data->parts.end(),
                                   [&](const StepPart& p) { return p.sequence->id == id; });
    if (part == data->parts.end()) {
      return fail(ErrorCode::unknown_sequence, "gather: sequence {} is not in this step",
                  static_cast<std::uint64_t>(id));
    }
    // As the first query reads: no query then reads anything coarser than attend would give it.
    sources.push_back({slices_of(*part, *layer), layout().sealed_below(part->first_ordinal)});
  }
  return gather_sources(*layer, sources, format, size_only, keys, key_elements, values,
                        value_elements);
}

Result<std::int64_t> StepCore::mask(int index, DType dtype, std::int64_t pad, bool size_only,
                                    void* out, std::int64_t elements) {
  const std::lock_guard lock(mutex);
  QUIRE_TRY(const Layer* layer, readable_layer("mask", index));
  if (dtype != DType::f32 && dtype != DType::f16) {
    return fail(ErrorCode::invalid_argument, "mask: dtype {}, expected f32 or f16",
                static_cast<int>(dtype));
  }
  if (pad < 1 || pad > kMaxPadding) {
    return fail(ErrorCode::invalid_argument, "mask: pad_tokens_to must be in [1, 2^24], not {}",
                pad);
  }
  std::int64_t columns = 0;
  for (const StepPart& part : data->parts) columns = std::max(columns, columns_of(part, *layer));
  columns = padded(columns, pad);
  if (size_only) return columns;
  const std::int64_t needed = static_cast<std::int64_t>(data->tokens.size()) * columns;
  if (elements < needed || (out == nullptr && needed > 0)) {
    return fail(ErrorCode::buffer_too_small,
                "mask: layer {}: {} elements needed, the buffer has {}", index, needed,
                out == nullptr ? 0 : elements);
  }
  auto* bytes = static_cast<std::byte*>(out);
  for (std::int64_t i = 0; i < needed; ++i) {
    store_element(dtype, bytes, static_cast<std::size_t>(i), kMinusInfinity);
  }
  for (const StepPart& part : data->parts) {
    const std::vector<PageSlice>& slices = slices_of(part, *layer);
    for (const Query& query : queries_of(part, *layer)) {
      std::int64_t column = query.row * columns;
      for (const PageSlice& slice : slices) {
        for (int i = 0; i < slice.count; ++i, ++column) {
          if (slice.position(slice.first + i) >= query.first_position &&
              slice.ordinal + i < query.end_ordinal) {
            store_element(dtype, bytes, static_cast<std::size_t>(column), 0.0f);
          }
        }
      }
    }
  }
  return columns;
}

Result<std::vector<RunView>> StepCore::runs(int index, SequenceId sequence) {
  const std::lock_guard lock(mutex);
  QUIRE_TRY(const Layer* layer, readable_layer("runs", index));
  for (const StepPart& part : data->parts) {
    if (part.sequence->id == sequence) {
      return lend_runs(*layer, slices_of(part, *layer), layout().sealed_below(part.first_ordinal));
    }
  }
  return fail(ErrorCode::unknown_sequence, "runs: sequence {} is not in this step",
              static_cast<std::uint64_t>(sequence));
}

}  // namespace quire
