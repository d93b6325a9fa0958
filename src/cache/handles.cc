// The public Step and Cache, over what stands behind them.

#include <algorithm>

#include "base/error.h"
#include "base/isa.h"
#include "cache/core.h"
#include "cache/limits.h"
#include "cache/print.h"
#include "cache/step.h"

namespace quire {
namespace {

// Calls `body` with the step, if there is one.
template <typename Body>
auto on_step(const std::shared_ptr<StepCore>& step, const char* operation, Body&& body)
    -> decltype(body(*step)) {
  if (step == nullptr) return fail(ErrorCode::wrong_state, "{}: there is no step", operation);
  return shielded(operation, [&] { return body(*step); });
}

// Calls `body` with the cache under its lock, if there is one: a Cache that was moved from has
// none.
template <typename Body>
auto on_cache(const std::shared_ptr<CacheCore>& core, const char* operation, Body&& body)
    -> decltype(body(*core)) {
  if (core == nullptr) {
    return fail(ErrorCode::unknown_sequence, "{}: there is no cache", operation);
  }
  return guarded(*core->store, operation, [&] { return body(*core); });
}

}  // namespace

// --- Step ------------------------------------------------------------------------------------

Step::Step(Step&&) noexcept = default;

Step& Step::operator=(Step&& other) noexcept {
  if (this != &other) {
    drop();
    core_ = std::move(other.core_);
  }
  return *this;
}

Step::~Step() { drop(); }

void Step::drop() noexcept {
  if (core_ != nullptr) core_->drop();
}

bool Step::is_open() const noexcept { return core_ != nullptr && core_->is_open(); }

std::int64_t Step::tokens() const noexcept { return core_ != nullptr ? core_->tokens() : 0; }

Result<void> Step::put(int layer, const TensorView& keys, const TensorView& values) {
  return on_step(core_, "put", [&](StepCore& step) { return step.put(layer, keys, &values); });
}

Result<void> Step::put(int layer, const TensorView& latent) {
  return on_step(core_, "put", [&](StepCore& step) { return step.put(layer, latent, nullptr); });
}

Result<void> Step::attend(int layer, const TensorView& q, const OutputView& out) {
  return on_step(core_, "attend", [&](StepCore& step) { return step.attend(layer, q, out); });
}

Result<void> Step::attend_state(int layer, const TensorView& q, const StateView& state) {
  return on_step(core_, "attend",
                 [&](StepCore& step) { return step.attend_state(layer, q, state); });
}

Result<void> Step::scores(int layer, const TensorView& q, float* out, std::int64_t out_elements) {
  return on_step(core_, "scores",
                 [&](StepCore& step) { return step.scores(layer, q, out, out_elements, false); });
}

Result<void> Step::probabilities(int layer, const TensorView& q, float* out,
                                 std::int64_t out_elements) {
  return on_step(core_, "probabilities",
                 [&](StepCore& step) { return step.scores(layer, q, out, out_elements, true); });
}

Result<void> Step::set_exceptions(const std::vector<std::int64_t>& token_indices) {
  return on_step(core_, "set_exceptions",
                 [&](StepCore& step) { return step.set_exceptions(token_indices); });
}

Result<Gathered> Step::gather_size(int layer, const std::vector<SequenceId>& sequences,
                                   const GatherFormat& format) const {
  return on_step(core_, "gather", [&](StepCore& step) {
    return step.gather(layer, sequences, format, true, nullptr, 0, nullptr, 0);
  });
}

Result<Gathered> Step::gather(int layer, const std::vector<SequenceId>& sequences,
                              const GatherFormat& format, void* keys, std::int64_t key_elements,
                              void* values, std::int64_t value_elements) const {
  return on_step(core_, "gather", [&](StepCore& step) {
    return step.gather(layer, sequences, format, false, keys, key_elements, values, value_elements);
  });
}

Result<std::int64_t> Step::mask_columns(int layer, std::int64_t pad_tokens_to) const {
  return on_step(core_, "mask", [&](StepCore& step) {
    return step.mask(layer, DType::f32, pad_tokens_to, true, nullptr, 0);
  });
}

Result<std::int64_t> Step::mask(int layer, DType dtype, std::int64_t pad_tokens_to, void* out,
                                std::int64_t out_elements) const {
  return on_step(core_, "mask", [&](StepCore& step) {
    return step.mask(layer, dtype, pad_tokens_to, false, out, out_elements);
  });
}

Result<std::vector<RunView>> Step::runs(int layer, SequenceId sequence) const {
  return on_step(core_, "runs", [&](StepCore& step) { return step.runs(layer, sequence); });
}

Result<std::vector<Committed>> Step::commit() {
  return on_step(core_, "commit", [&](StepCore& step) { return step.commit(nullptr); });
}

Result<std::vector<Committed>> Step::commit(const std::vector<std::int64_t>& tokens_per_sequence) {
  return on_step(core_, "commit",
                 [&](StepCore& step) { return step.commit(&tokens_per_sequence); });
}

// --- Cache -----------------------------------------------------------------------------------

Cache::Cache(std::shared_ptr<CacheCore> core) noexcept : core_(std::move(core)) {}

Cache::Cache(Cache&&) noexcept = default;

Cache& Cache::operator=(Cache&& other) noexcept {
  if (this != &other) {
    close();
    core_ = std::move(other.core_);
  }
  return *this;
}

Cache::~Cache() { close(); }

void Cache::close() noexcept {
  if (core_ != nullptr) core_->close();
}

Result<Cache> Cache::create(const CacheSpec& spec) {
  return shielded("create", [&]() -> Result<Cache> {
    if (!asked_isa()) return asked_isa().error();
    QUIRE_TRY(std::unique_ptr<const CacheLayout> layout, make_layout(spec));
    auto store = std::make_shared<Store>(std::move(layout));
    return Cache(std::make_shared<CacheCore>(std::move(store)));
  });
}

const CacheSpec& Cache::spec() const noexcept {
  static const CacheSpec none;
  return core_ != nullptr ? core_->layout().spec : none;
}

Result<LayerInfo> Cache::layer_info(int index) const {
  if (core_ == nullptr) return fail(ErrorCode::unknown_sequence, "layer_info: there is no cache");
  const CacheLayout& layout = core_->layout();
  QUIRE_TRY(const Layer* found, layer_at(layout, index, "layer_info"));
  const Layer& layer = *found;
  const LayerStore& store = layer.store;
  LayerInfo info;
  info.group = layer.group;
  info.pattern = layout.groups[static_cast<std::size_t>(layer.group)].pattern;
  info.codec = {store.key_codec->name, store.value_codec->name};
  info.row_type = store.row_type;
  info.scale = layer.math.scale;
  info.kv_of = layer.owner;
  if (layer.owner == index) {
    const auto channels =
        static_cast<std::size_t>(store.key_dim + (store.mla ? 0 : store.value_dim));
    info.row_bytes_per_token =
        static_cast<std::size_t>(store.heads) * channels * bytes_of(store.row_type);
    info.sealed_bytes_per_page = store.sealed_bytes;
  }
  return info;
}

Result<Sequence> Cache::open() {
  return on_cache(core_, "open", [&](CacheCore& core) -> Result<Sequence> {
    QUIRE_TRY(const SequenceId id, core.open("open", nullptr));
    return Sequence(core_, id);
  });
}

Result<Sequence> Cache::find(SequenceId id) const {
  return on_cache(core_, "find", [&](CacheCore& core) -> Result<Sequence> {
    QUIRE_TRY([[maybe_unused]] const SequenceState* sequence, core.find(id));
    return Sequence(core_, id);
  });
}

std::vector<SequenceId> Cache::sequences() const {
  if (core_ == nullptr) return {};
  const std::lock_guard lock(core_->store->mutex);
  std::vector<SequenceId> ids;
  if (core_->data == nullptr) return ids;
  for (const auto& [id, sequence] : core_->data->sequences) ids.push_back(id);
  return ids;
}

Result<Cut> Cache::copy_prefix(SequenceId source, SequenceId target, std::int64_t position) {
  return on_cache(core_, "copy_prefix", [&](CacheCore& core) -> Result<Cut> {
    QUIRE_TRY(const SequenceState* from, core.find(source));
    QUIRE_TRY(SequenceState * to, core.find_idle(target, "copy_prefix"));
    if (position < 0) {
      return fail(ErrorCode::out_of_range, "copy_prefix: position {}", position);
    }
    History next(from->history);
    Cut cut = next.truncate(position);
    if (from != to) cut.removed = to->history.length() > 0;
    to->history.swap(next);
    core.note_evictable(*to);
    return cut;
  });
}

Result<Step> Cache::begin(const Batch& batch) {
  return on_cache(core_, "begin", [&](CacheCore& core) -> Result<Step> {
    QUIRE_TRY(const std::vector<PartRequest> requests, check_batch(core, batch, "begin"));
    try {
      return Step(begin_step(core, batch, requests));
    } catch (const MemoryError& error) {
      const Plan plan = plan_step(core, batch, requests);
      return error.to_error(
          fmt::format("begin: {} tokens need {} pages and {} bytes with their rows",
                      batch.tokens.size(), plan.pages, plan.bytes)
              .c_str());
    }
  });
}

Result<Plan> Cache::plan(const Batch& batch) const {
  return on_cache(core_, "plan", [&](CacheCore& core) -> Result<Plan> {
    QUIRE_TRY(const std::vector<PartRequest> requests, check_batch(core, batch, "plan"));
    return plan_step(core, batch, requests);
  });
}

Result<void> Cache::reserve(const BatchSize& size) {
  return on_cache(core_, "reserve", [&](CacheCore& core) -> Result<void> {
    if (core.data == nullptr) {
      return fail(ErrorCode::unknown_sequence, "reserve: the cache is closed");
    }
    constexpr std::int64_t kMost = std::int64_t{1} << 32;
    if (size.sequences < 1 || size.tokens < size.sequences || size.tokens > kMost ||
        size.cross_entries < 0 || size.cross_entries > size.sequences ||
        size.cross_tokens < size.cross_entries || size.cross_tokens > kMost) {
      return fail(ErrorCode::invalid_argument,
                  "reserve: {} tokens of {} sequences with {} cross tokens in {} entries",
                  size.tokens, size.sequences, size.cross_tokens, size.cross_entries);
    }
    reserve_step(core, size);
    return {};
  });
}

Result<void> Cache::clear() {
  return on_cache(core_, "clear", [&](CacheCore& core) -> Result<void> {
    if (core.data == nullptr) {
      return fail(ErrorCode::unknown_sequence, "clear: the cache is closed");
    }
    if (!core.steps.empty()) {
      return fail(ErrorCode::busy, "clear: {} steps are open", core.steps.size());
    }
    core.forget_sequences();
    return {};
  });
}

Result<Cache> Cache::clone() const {
  std::shared_ptr<CacheCore> copy;  // outlives the lock: closing it takes the lock again
  return on_cache(core_, "clone", [&](CacheCore& core) -> Result<Cache> {
    if (core.data == nullptr) {
      return fail(ErrorCode::unknown_sequence, "clone: the cache is closed");
    }
    copy = std::make_shared<CacheCore>(core.store);
    for (const auto& [id, sequence] : core.data->sequences) {
      const auto added = copy->data->sequences.try_emplace(copy->data->sequences.end(), id, id,
                                                           History(sequence.history));
      copy->note_evictable(added->second);
    }
    return Cache(copy);
  });
}

Result<void> Cache::assign(const Cache& other) {
  QUIRE_CHECK(on_cache(core_, "assign", [](CacheCore& core) -> Result<void> {
    if (core.steps.empty()) return {};
    return fail(ErrorCode::busy, "assign: {} steps are open", core.steps.size());
  }));
  QUIRE_TRY(Cache copy, other.clone());
  *this = std::move(copy);
  return {};
}

Result<std::int64_t> Cache::compact() {
  return on_cache(core_, "compact", [](CacheCore& core) { return compact_pages(core); });
}

Stats Cache::stats() const {
  if (core_ == nullptr) return {};
  const std::lock_guard lock(core_->store->mutex);
  return count_stats(*core_);
}

Result<bool> Cache::enforce_memory_limit(std::size_t bytes) {
  return on_cache(core_, "enforce_memory_limit", [&](CacheCore& core) {
    return enforce_limit(core, bytes, "enforce_memory_limit");
  });
}

Result<bool> Cache::resize(std::size_t bytes) {
  return on_cache(core_, "resize", [&](CacheCore& core) -> Result<bool> {
    QUIRE_TRY(const bool cut, enforce_limit(core, bytes, "resize"));
    core.store->memory.set_limit(bytes);
    return cut;
  });
}

std::size_t Cache::shrink() {
  if (core_ == nullptr) return 0;
  const std::lock_guard lock(core_->store->mutex);
  return core_->store->memory.shrink();
}

std::string Cache::text() const {
  if (core_ == nullptr) return {};
  const std::lock_guard lock(core_->store->mutex);
  return print_text(*core_);
}

std::string Cache::json() const {
  if (core_ == nullptr) return {};
  const std::lock_guard lock(core_->store->mutex);
  return print_json(*core_);
}

}  // namespace quire
