#include "capi/convert.h"

namespace quire::capi {

static_assert(QUIRE_F32 == static_cast<int>(DType::f32));
static_assert(QUIRE_F16 == static_cast<int>(DType::f16));
static_assert(QUIRE_BF16 == static_cast<int>(DType::bf16));
static_assert(QUIRE_TOKEN_MAJOR == static_cast<int>(Layout::token_major));
static_assert(QUIRE_HEAD_MAJOR == static_cast<int>(Layout::head_major));
static_assert(QUIRE_KEY == static_cast<int>(Side::key));
static_assert(QUIRE_VALUE == static_cast<int>(Side::value));

Result<DType> to_dtype(const char* call, int dtype) {
  if (dtype >= QUIRE_F32 && dtype <= QUIRE_BF16) return static_cast<DType>(dtype);
  return fail(ErrorCode::invalid_argument, "{}: {} is no dtype (f32 0, f16 1, bf16 2)", call,
              dtype);
}

Result<Side> to_side(const char* call, int side) {
  if (side == QUIRE_KEY || side == QUIRE_VALUE) return static_cast<Side>(side);
  return fail(ErrorCode::invalid_argument, "{}: {} is no side (key 0, value 1)", call, side);
}

quire_pattern from_pattern(const Pattern& pattern) noexcept {
  return {static_cast<int>(pattern.kind), pattern.size, pattern.memory};
}

quire_token from_token(const Token& token) noexcept {
  return {from_id(token.sequence), token.position, token.key};
}

namespace {

// Refuses a shape whose elements cannot all be in memory, so that later products do not overflow.
// Negative sizes are left to the comparison with the spec, which names what it expected.
Result<void> check_shape(const char* call, const char* name, std::int64_t tokens,
                         std::int64_t heads, std::int64_t dim) {
  std::int64_t elements = 1;
  for (const std::int64_t size : {tokens, heads, dim}) {
    if (size < 0) return {};
    if (size > 0 && elements > kMaxCount / size) {
      return fail(ErrorCode::invalid_argument, "{}: {} has the shape [{}][{}][{}]", call, name,
                  tokens, heads, dim);
    }
    elements *= std::max<std::int64_t>(size, 1);
  }
  return {};
}

}  // namespace

Result<TensorView> to_tensor(const char* call, const char* name, const quire_tensor* tensor) {
  QUIRE_CHECK(require(call, name, tensor));
  QUIRE_TRY(const DType dtype, to_dtype(call, tensor->dtype));
  if (tensor->tokens != 0 && tensor->data == nullptr) {
    return fail(ErrorCode::invalid_argument, "{}: {}.data is a null pointer", call, name);
  }
  QUIRE_CHECK(check_shape(call, name, tensor->tokens, tensor->heads, tensor->dim));
  return TensorView{tensor->data,       dtype,       tensor->tokens,
                    tensor->heads,      tensor->dim, tensor->token_stride,
                    tensor->head_stride};
}

Result<OutputView> to_output(const char* call, const quire_output* out) {
  QUIRE_CHECK(require(call, "out", out));
  if (out->tokens != 0) QUIRE_CHECK(require(call, "out.data", out->data));
  QUIRE_CHECK(check_shape(call, "out", out->tokens, out->heads, out->dim));
  return OutputView{out->data, out->tokens,       out->heads,
                    out->dim,  out->token_stride, out->head_stride};
}

Result<StateView> to_state(const char* call, const char* name, const quire_state* state) {
  QUIRE_CHECK(require(call, name, state));
  if (state->tokens < 0 || state->heads < 0 || state->dim < 0) {
    return fail(ErrorCode::invalid_argument, "{}: {} has the shape [{}][{}][{}]", call, name,
                state->tokens, state->heads, state->dim);
  }
  QUIRE_CHECK(check_shape(call, name, state->tokens, state->heads, state->dim));
  if (state->tokens > 0 && state->heads > 0) {
    QUIRE_CHECK(require(call, "m", state->m));
    QUIRE_CHECK(require(call, "l", state->l));
  }
  if (state->tokens > 0 && state->heads > 0 && state->dim > 0) {
    QUIRE_CHECK(require(call, "o", state->o));
  }
  return StateView{state->o, state->m, state->l, state->tokens, state->heads, state->dim};
}

Result<GatherFormat> to_format(const char* call, const quire_gather_format* format) {
  if (format == nullptr) return GatherFormat{};
  const quire_gather_format defaults = QUIRE_GATHER_FORMAT_INIT;
  QUIRE_TRY(const quire_gather_format known, read_stamped(call, "format", format, defaults));
  QUIRE_TRY(const DType dtype, to_dtype(call, known.dtype));
  if (known.layout != QUIRE_TOKEN_MAJOR && known.layout != QUIRE_HEAD_MAJOR) {
    return fail(ErrorCode::invalid_argument, "{}: {} is no layout (token_major 0, head_major 1)",
                call, known.layout);
  }
  return GatherFormat{dtype, static_cast<Layout>(known.layout), known.transpose_values != 0,
                      known.pad_tokens_to};
}

Result<Batch> to_batch(const char* call, const quire_batch* batch) {
  const quire_batch defaults = QUIRE_BATCH_INIT;
  QUIRE_TRY(const quire_batch known, read_stamped(call, "batch", batch, defaults));
  QUIRE_CHECK(require_array(call, "batch.tokens", known.tokens, known.token_count, kMaxItems));
  QUIRE_CHECK(require_array(call, "batch.spans", known.spans, known.span_count, kMaxItems));
  QUIRE_CHECK(require_array(call, "batch.cross", known.cross, known.cross_count, kMaxItems));

  Batch out;
  out.tokens.reserve(static_cast<std::size_t>(known.token_count));
  for (std::int64_t i = 0; i < known.token_count; ++i) {
    const quire_token& token = known.tokens[i];
    out.tokens.push_back({to_id(token.sequence), token.position, token.key});
  }
  out.spans.reserve(static_cast<std::size_t>(known.span_count));
  for (std::int64_t i = 0; i < known.span_count; ++i) {
    const quire_span& span = known.spans[i];
    out.spans.push_back({to_id(span.sequence), span.begin, span.end});
  }
  out.cross.reserve(static_cast<std::size_t>(known.cross_count));
  for (std::int64_t i = 0; i < known.cross_count; ++i) {
    const quire_cross_entry& entry = known.cross[i];
    out.cross.push_back({to_id(entry.sequence), entry.length, entry.owner_begin, entry.owner_end});
  }
  return out;
}

Result<std::vector<SequenceId>> to_ids(const char* call, const quire_sequence_id* ids,
                                       std::int64_t count) {
  QUIRE_CHECK(require_array(call, "sequences", ids, count, kMaxItems));
  std::vector<SequenceId> out;
  out.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) out.push_back(to_id(ids[i]));
  return out;
}

void write_gathered(quire_gathered* out, const Gathered& gathered) {
  quire_gathered known = QUIRE_GATHERED_INIT;
  std::memcpy(&known, out, std::min(out->struct_size, sizeof(known)));
  known.columns = gathered.columns;
  known.key_elements = gathered.key_elements;
  known.value_elements = gathered.value_elements;
  if (known.lengths != nullptr) {
    std::copy(gathered.lengths.begin(), gathered.lengths.end(), known.lengths);
  }
  if (known.first_positions != nullptr) {
    std::copy(gathered.first_positions.begin(), gathered.first_positions.end(),
              known.first_positions);
  }
  write_stamped(out, known);
}

Result<void> write_runs(const char* call, const std::vector<RunView>& views, quire_run* runs,
                        std::int64_t run_capacity, std::int64_t* run_count, std::int64_t* positions,
                        std::int64_t position_capacity, std::int64_t* position_count) {
  QUIRE_CHECK(require_array(call, "runs", runs, run_capacity));
  QUIRE_CHECK(require_array(call, "positions", positions, position_capacity));
  std::int64_t positions_needed = 0;
  for (const RunView& view : views)
    positions_needed += static_cast<std::int64_t>(view.positions.size());
  const auto runs_needed = static_cast<std::int64_t>(views.size());
  if (run_count != nullptr) *run_count = runs_needed;
  if (position_count != nullptr) *position_count = positions_needed;

  const bool runs_fit = runs == nullptr || run_capacity >= runs_needed;
  const bool positions_fit = positions == nullptr || position_capacity >= positions_needed;
  if (!runs_fit || !positions_fit) {
    return fail(ErrorCode::buffer_too_small,
                "{}: there is room for {} runs and {} positions, {} and {} are needed", call,
                run_capacity, position_capacity, runs_needed, positions_needed);
  }
  std::int64_t* next = positions;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const RunView& view = views[i];
    if (runs != nullptr) {
      quire_run& run = runs[i];
      copy_name(run.layout, view.layout);
      run.side = static_cast<int>(view.side);
      run.head = view.head;
      run.data = view.data;
      run.data_bytes = view.data_bytes;
      run.scales = view.scales;
      run.scale_bytes = view.scale_bytes;
      run.page_slots = view.page_slots;
      run.first_slot = view.first_slot;
      run.last_slot = view.last_slot;
      run.first_position = view.first_position;
      run.turn = view.turn;
      run.positions = next;
    }
    if (next != nullptr) next = std::copy(view.positions.begin(), view.positions.end(), next);
  }
  return {};
}

}  // namespace quire::capi

using namespace quire;
using namespace quire::capi;

namespace {

// Strides of absurd shapes wrap instead of overflowing; put and attend refuse the shapes.
std::int64_t times(std::int64_t a, std::int64_t b) noexcept {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}

}  // namespace

quire_tensor quire_tensor_dense(const void* data, quire_dtype dtype, int64_t tokens, int64_t heads,
                                int64_t dim, quire_layout layout) {
  const bool tokens_first = layout != QUIRE_HEAD_MAJOR;
  return {data,
          dtype,
          tokens,
          heads,
          dim,
          tokens_first ? times(heads, dim) : dim,
          tokens_first ? dim : times(tokens, dim)};
}

quire_output quire_output_dense(float* data, int64_t tokens, int64_t heads, int64_t dim,
                                quire_layout layout) {
  const bool tokens_first = layout != QUIRE_HEAD_MAJOR;
  return {data,
          tokens,
          heads,
          dim,
          tokens_first ? times(heads, dim) : dim,
          tokens_first ? dim : times(tokens, dim)};
}
