// Steps: putting, attending, committing. Beginning one is in cache.cc.
#include "capi/convert.h"
#include "capi/gather.h"
#include "capi/guard.h"
#include "capi/handle.h"

using namespace quire;
using namespace quire::capi;

namespace {

// Elements of [tokens][query heads][columns]. Requires: a q that the step accepts.
Result<int64_t> logit_elements(const Step& step, int layer, const TensorView& q) {
  QUIRE_TRY(const int64_t columns, step.mask_columns(layer));
  return q.tokens * q.heads * columns;
}

// Scores and probabilities alike: `compute` is one of the two.
using Logits = Result<void> (Step::*)(int, const TensorView&, float*, int64_t);
quire_status logits(const char* call, Logits compute, quire_step* step, int layer,
                    const quire_tensor* q, float* out, int64_t out_elements, int64_t* elements) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require(call, "step", step));
    QUIRE_CHECK(require_array(call, "out", out, out_elements));
    QUIRE_TRY(const TensorView query, to_tensor(call, "q", q));
    // Without a buffer the call is still made, into no room, so that bad arguments are refused.
    float nothing = 0.0f;
    Result<void> done =
        (step->step.*compute)(layer, query, out != nullptr ? out : &nothing, out_elements);
    const bool too_small = done.code() == ErrorCode::buffer_too_small;
    if (elements != nullptr && (done || too_small)) {
      QUIRE_TRY(*elements, logit_elements(step->step, layer, query));
    }
    if (too_small && out == nullptr) return {};
    return done;
  });
}

// Commits with `commit` after making sure that the report has room: afterwards is too late.
template <typename Commit>
quire_status commit_with(quire_step* step, quire_committed* committed, int64_t capacity,
                         int64_t* count, Commit&& commit) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("commit", "step", step));
    QUIRE_CHECK(require_array("commit", "committed", committed, capacity));
    if (committed != nullptr && capacity < step->sequences) {
      if (count != nullptr) *count = step->sequences;
      return fail(ErrorCode::buffer_too_small,
                  "commit: committed has room for {}, {} sequences are in the batch", capacity,
                  step->sequences);
    }
    QUIRE_TRY(const std::vector<Committed> taken, commit());
    return fill("commit", "committed", committed, capacity, static_cast<int64_t>(taken.size()),
                count, [&](std::size_t i) {
                  return quire_committed{from_id(taken[i].sequence), taken[i].tokens};
                });
  });
}

}  // namespace

quire_status quire_token_fill(quire_token* tokens, int64_t count, quire_sequence_id sequence,
                              int64_t first_position, const uint64_t* keys) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require_array("token_fill", "tokens", tokens, count));
    if (first_position < 0 || first_position > INT64_MAX - count) {
      return fail(ErrorCode::invalid_argument, "token_fill: {} tokens from position {} on", count,
                  first_position);
    }
    for (int64_t i = 0; i < count; ++i) {
      tokens[i] = {sequence, first_position + i, keys == nullptr ? 0 : keys[i]};
    }
    return {};
  });
}

void quire_step_free(quire_step* step) {
  if (step == nullptr) return;
  step->step.drop();
  delete step;
}

quire_status quire_step_drop(quire_step* step) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("drop", "step", step));
    step->step.drop();
    return {};
  });
}

int quire_step_is_open(const quire_step* step) {
  return step != nullptr && step->step.is_open() ? 1 : 0;
}

int64_t quire_step_tokens(const quire_step* step) {
  return step == nullptr ? 0 : step->step.tokens();
}

quire_status quire_step_put(quire_step* step, int layer, const quire_tensor* keys,
                            const quire_tensor* values) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("put", "step", step));
    QUIRE_TRY(const TensorView key_view, to_tensor("put", "keys", keys));
    QUIRE_TRY(const TensorView value_view, to_tensor("put", "values", values));
    return step->step.put(layer, key_view, value_view);
  });
}

quire_status quire_step_put_latent(quire_step* step, int layer, const quire_tensor* latent) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("put_latent", "step", step));
    QUIRE_TRY(const TensorView view, to_tensor("put_latent", "latent", latent));
    return step->step.put(layer, view);
  });
}

quire_status quire_step_attend(quire_step* step, int layer, const quire_tensor* q,
                               const quire_output* out) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("attend", "step", step));
    QUIRE_TRY(const TensorView query, to_tensor("attend", "q", q));
    QUIRE_TRY(const OutputView output, to_output("attend", out));
    return step->step.attend(layer, query, output);
  });
}

quire_status quire_step_attend_state(quire_step* step, int layer, const quire_tensor* q,
                                     const quire_state* state) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("attend_state", "step", step));
    QUIRE_TRY(const TensorView query, to_tensor("attend_state", "q", q));
    QUIRE_TRY(const StateView view, to_state("attend_state", "state", state));
    return step->step.attend_state(layer, query, view);
  });
}

quire_status quire_step_scores(quire_step* step, int layer, const quire_tensor* q, float* out,
                               int64_t out_elements, int64_t* elements) {
  return logits("scores", &Step::scores, step, layer, q, out, out_elements, elements);
}

quire_status quire_step_probabilities(quire_step* step, int layer, const quire_tensor* q,
                                      float* out, int64_t out_elements, int64_t* elements) {
  return logits("probabilities", &Step::probabilities, step, layer, q, out, out_elements, elements);
}

quire_status quire_step_set_exceptions(quire_step* step, const int64_t* token_indices,
                                       int64_t count) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("set_exceptions", "step", step));
    QUIRE_CHECK(require_array("set_exceptions", "token_indices", token_indices, count, kMaxItems));
    const std::vector<int64_t> indices(token_indices, token_indices + count);
    return step->step.set_exceptions(indices);
  });
}

quire_status quire_step_gather_size(const quire_step* step, int layer,
                                    const quire_sequence_id* sequences, int64_t sequence_count,
                                    const quire_gather_format* format, quire_gathered* gathered) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("gather_size", "step", step));
    return gather_size_into(step->step, layer, sequences, sequence_count, format, gathered);
  });
}

quire_status quire_step_gather(const quire_step* step, int layer,
                               const quire_sequence_id* sequences, int64_t sequence_count,
                               const quire_gather_format* format, void* keys, int64_t key_elements,
                               void* values, int64_t value_elements, quire_gathered* gathered) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("gather", "step", step));
    return gather_into(step->step, layer, sequences, sequence_count, format, keys, key_elements,
                       values, value_elements, gathered);
  });
}

quire_status quire_step_mask_columns(const quire_step* step, int layer, int64_t pad_tokens_to,
                                     int64_t* columns) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("mask_columns", "step", step));
    QUIRE_CHECK(require("mask_columns", "columns", columns));
    QUIRE_TRY(*columns, step->step.mask_columns(layer, pad_tokens_to));
    return {};
  });
}

quire_status quire_step_mask(const quire_step* step, int layer, quire_dtype dtype,
                             int64_t pad_tokens_to, void* out, int64_t out_elements,
                             int64_t* columns) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("mask", "step", step));
    QUIRE_CHECK(require_array("mask", "out", out, out_elements));
    QUIRE_TRY(const DType type, to_dtype("mask", dtype));
    // Without a buffer the call is still made, into no room, so that bad arguments are refused.
    float nothing = 0.0f;
    Result<int64_t> wrote =
        step->step.mask(layer, type, pad_tokens_to, out != nullptr ? out : &nothing, out_elements);
    const bool too_small = wrote.code() == ErrorCode::buffer_too_small;
    if (columns != nullptr && wrote) *columns = *wrote;
    if (columns != nullptr && too_small) {
      QUIRE_TRY(*columns, step->step.mask_columns(layer, pad_tokens_to));
    }
    if (!wrote && !(too_small && out == nullptr)) return std::move(wrote).error();
    return {};
  });
}

quire_status quire_step_runs(const quire_step* step, int layer, quire_sequence_id sequence,
                             quire_run* runs, int64_t run_capacity, int64_t* run_count,
                             int64_t* positions, int64_t position_capacity,
                             int64_t* position_count) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("runs", "step", step));
    QUIRE_TRY(const std::vector<RunView> views, step->step.runs(layer, to_id(sequence)));
    return write_runs("runs", views, runs, run_capacity, run_count, positions, position_capacity,
                      position_count);
  });
}

quire_status quire_step_commit(quire_step* step, quire_committed* committed, int64_t capacity,
                               int64_t* count) {
  return commit_with(step, committed, capacity, count, [&] { return step->step.commit(); });
}

quire_status quire_step_commit_first(quire_step* step, const int64_t* tokens_per_sequence,
                                     int64_t sequence_count, quire_committed* committed,
                                     int64_t capacity, int64_t* count) {
  return commit_with(step, committed, capacity, count, [&]() -> Result<std::vector<Committed>> {
    QUIRE_CHECK(require_array("commit", "tokens_per_sequence", tokens_per_sequence, sequence_count,
                              kMaxItems));
    const std::vector<int64_t> tokens(tokens_per_sequence, tokens_per_sequence + sequence_count);
    return step->step.commit(tokens);
  });
}
