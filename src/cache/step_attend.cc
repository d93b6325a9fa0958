// What a step answers: attention, scores, gathered tensors, masks, lent runs.

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>

#include "base/error.h"
#include "base/numbers.h"
#include "cache/attend_work.h"
#include "cache/read.h"
#include "cache/step.h"
#include "cache/visible.h"

namespace quire {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Threads that may help with works that have items. Those of the caller's own executor may be more
// than cores; one too many finds nothing to do.
std::size_t most_helpers(const Store& store) noexcept {
  return store.executor != &store.threads ? 4 * store.run_threads : store.run_threads - 1;
}

// With all works, beginning at another for each helper.
void help(std::span<AttendWork* const> works, std::size_t helper) {
  for (std::size_t i = 0; i < works.size(); ++i) works[(helper + i) % works.size()]->help();
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

const std::vector<WorkItem>& StepCore::items_of(const StepPart& part, const Layer& layer) {
  const std::vector<PageSlice>& slices = slices_of(part, layer);
  Sight& sight = sight_of(part, layer.group);
  if (sight.items.empty()) sight.items = cut_items(slices, layer.store);
  return sight.items;
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
  for (Sight& sight : sights) {
    sight.queries.clear();
    sight.work.reset();
  }
  return {};
}

// --- attention -------------------------------------------------------------------------------

Result<void> StepCore::run_states(const Layer& layer, const TensorView& q, const StateView& to,
                                  const OutputView* out) {
  std::vector<AttendWork*> works;
  std::vector<std::size_t> ends;  // of each one's tasks
  works.reserve(data->parts.size());
  ends.reserve(data->parts.size());
  std::size_t helpers = 0;
  const std::size_t threads = cache->store->run_threads;
  for (const StepPart& part : data->parts) {
    const AttendJob job = {
        &layer, slices_of(part, layer), items_of(part, layer), queries_of(part, layer), q, to, out};
    std::unique_ptr<AttendWork>& work = sight_of(part, layer.group).work;
    if (work == nullptr || !work->begin_again(job)) {
      work =
          std::make_unique<AttendWork>(job, threads, data->parts.size(), walk_rooms, item_scratch);
    }
    works.push_back(work.get());
    ends.push_back((ends.empty() ? 0 : ends.back()) + works.back()->tasks());
    helpers += works.back()->helpers();
  }
  if (works.empty()) return {};
  helpers = std::min(helpers, most_helpers(*cache->store));
  std::atomic<bool> out_of_memory = false;  // tasks must not throw
  cache->store->executor->run(ends.back() + helpers, [&](std::size_t task) {
    if (out_of_memory.load(std::memory_order_relaxed)) return;
    try {
      // Helpers come last: a work has one thread while there are works that have none.
      if (task >= ends.back()) return help(works, task - ends.back());
      const auto end = std::upper_bound(ends.begin(), ends.end(), task);
      const auto at = static_cast<std::size_t>(end - ends.begin());
      works[at]->run(task - (*end - works[at]->tasks()));
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    }
  });
  if (out_of_memory) throw std::bad_alloc();
  return {};
}

// What attend writes: a tensor or states.
template <typename View>
Result<const Layer*> StepCore::attended_layer(int index, const TensorView& q, const View& out,
                                              bool is_null) const {
  QUIRE_TRY(const Layer* layer, readable_layer("attend", index));
  QUIRE_CHECK(check_query("attend", index, *layer, q));
  if (is_null) {
    return fail(ErrorCode::invalid_argument, "attend: layer {}: the output is null", index);
  }
  const int dim = layer->store.value_dim;
  if (out.tokens != q.tokens || out.heads != q.heads || out.dim != dim) {
    return fail(ErrorCode::mismatch,
                "attend: layer {}: the output is [{}][{}][{}], expected [{}][{}][{}]", index,
                out.tokens, out.heads, out.dim, q.tokens, q.heads, dim);
  }
  return layer;
}

Result<void> StepCore::attend_state(int index, const TensorView& q, const StateView& out) {
  const std::lock_guard lock(mutex);
  const bool is_null = out.o == nullptr || out.m == nullptr || out.l == nullptr;
  QUIRE_TRY(const Layer* layer, attended_layer(index, q, out, is_null));
  return run_states(*layer, q, out, nullptr);
}

Result<void> StepCore::attend(int index, const TensorView& q, const OutputView& out) {
  const std::lock_guard lock(mutex);
  QUIRE_TRY(const Layer* layer, attended_layer(index, q, out, out.data == nullptr));
  return run_states(*layer, q, states_in(states, q.tokens, q.heads, out.dim), &out);
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
