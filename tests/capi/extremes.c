/* Numbers at the ends of their types: every call answers, and the other sequence is untouched. */
#include "check.h"

static const int64_t kNumbers[] = {INT64_MIN,
                                   INT64_MIN + 1,
                                   -1,
                                   0,
                                   1,
                                   17,
                                   (int64_t)1 << 31,
                                   (int64_t)1 << 40,
                                   (int64_t)1 << 59,
                                   (int64_t)1 << 62,
                                   INT64_MAX - 1,
                                   INT64_MAX};
enum { kCount = sizeof kNumbers / sizeof kNumbers[0], kTokens = 20 };

static const int kLayersToTry[] = {INT32_MIN, -1, 0, 1, 2, INT32_MAX};
enum { kLayerCount = sizeof kLayersToTry / sizeof kLayersToTry[0] };

static float buffer[4096];

/* Layer 0 is causal and moves its keys by rotary embedding, layer 1 is a window. */
static quire_cache* create(void) {
  quire_layer_spec layers[2] = {QUIRE_LAYER_SPEC_INIT, QUIRE_LAYER_SPEC_INIT};
  quire_cache_spec spec = QUIRE_CACHE_SPEC_INIT;
  quire_cache* cache = NULL;
  CHECK_OK(quire_layer_spec_gqa(&layers[0], 0, kKvHeads, kDim));
  layers[0].rotation = QUIRE_ROTATION_ROPE;
  layers[1] = layers[0];
  layers[1].pattern.kind = QUIRE_WINDOW;
  layers[1].pattern.size = 8;
  spec.layers = layers;
  spec.layer_count = 2;
  spec.page_tokens = 16;
  CHECK_OK(quire_cache_create(&spec, &cache));
  return cache;
}

/* Any answer is right, with a text when it is an error. */
static void answers(quire_status status) {
  CHECK(status >= QUIRE_OK && status <= QUIRE_INVALID_ARGUMENT && status != QUIRE_INTERNAL);
  CHECK((status == QUIRE_OK) == (quire_last_error()[0] == '\0'));
}

static quire_sequence_id open_with_tokens(quire_cache* cache) {
  quire_sequence_id sequence = 0;
  CHECK_OK(quire_sequence_open(cache, &sequence));
  append(cache, sequence, 0, kTokens, 2);
  return sequence;
}

static void test_specs(void) {
  int i;
  for (i = 0; i < kCount; ++i) {
    int which;
    for (which = 0; which < 12; ++which) {
      const int64_t n = kNumbers[i];
      const int small = n > INT32_MAX ? INT32_MAX : n < INT32_MIN ? INT32_MIN : (int)n;
      quire_layer_spec layer = QUIRE_LAYER_SPEC_INIT;
      quire_cache_spec spec = QUIRE_CACHE_SPEC_INIT;
      quire_cache* cache = NULL;
      CHECK_OK(quire_layer_spec_mha(&layer, kKvHeads, kDim));
      layer.rotation = QUIRE_ROTATION_ROPE;
      spec.layers = &layer;
      spec.layer_count = 1;
      if (which == 0) spec.exact_head = n;
      if (which == 1) spec.exact_tail = n;
      if (which == 2) spec.rollback = n;
      if (which == 3) spec.max_tokens = spec.max_sequences = spec.max_batch = n;
      if (which == 4) spec.page_tokens = small;
      if (which == 5) layer.kv_heads = layer.query_heads = small;
      if (which == 6) layer.key_dim = layer.value_dim = small;
      if (which == 7) layer.rope.offset = small;
      if (which == 8) layer.rope.size = small;
      if (which == 9) layer.kv_of = small;
      if (which == 10) layer.pattern.kind = QUIRE_CHUNKED, layer.pattern.size = n;
      if (which == 11) layer.pattern.kind = QUIRE_WINDOW, layer.pattern.size = n;
      answers(quire_cache_create(&spec, &cache));
      if (cache != NULL && which != 5 && which != 6) {
        quire_sequence_id sequence = 0;
        answers(quire_sequence_open(cache, &sequence));
        if (which != 3 && spec.page_tokens > 0) append(cache, sequence, 0, kTokens, 1);
        answers(quire_sequence_truncate(cache, sequence, 10, NULL));
      }
      quire_cache_free(cache);
    }
  }
}

static void test_sequences(void) {
  quire_cache* cache = create();
  const quire_sequence_id kept = open_with_tokens(cache);
  quire_sequence_id child = 0;
  int64_t number = 0;
  int flag = 0, i, j;

  for (i = 0; i < kCount; ++i) {
    const int64_t n = kNumbers[i];
    quire_sequence_id sequence = open_with_tokens(cache);
    answers(quire_sequence_can_resume(cache, sequence, n, &flag));
    if (quire_sequence_fork_at(cache, sequence, n, &child, &number) == QUIRE_OK) {
      CHECK_OK(quire_sequence_close(cache, child));
    }
    answers(quire_sequence_copy_prefix(cache, kept, sequence, n, NULL));
    answers(quire_sequence_truncate(cache, sequence, n, NULL));
    CHECK_OK(quire_sequence_close(cache, sequence));
    sequence = open_with_tokens(cache);
    answers(quire_sequence_keep_last(cache, sequence, n, NULL));
    CHECK_OK(quire_sequence_close(cache, sequence));
    sequence = open_with_tokens(cache);
    answers(quire_sequence_shift_left(cache, sequence, n, NULL));
    CHECK_OK(quire_sequence_close(cache, sequence));

    for (j = 0; j < kCount; ++j) {
      const int64_t m = kNumbers[j];
      quire_tensor row;
      sequence = open_with_tokens(cache);
      row = quire_tensor_dense(buffer, QUIRE_F32, 1, kKvHeads, kDim, QUIRE_TOKEN_MAJOR);
      answers(quire_sequence_overwrite(cache, sequence, 0, n, &row, &row));
      answers(quire_sequence_read(cache, sequence, 0, QUIRE_KEY, n, m, QUIRE_ALL_HEADS, buffer,
                                  4096, NULL, &number));
      answers(quire_sequence_read(cache, sequence, 1, QUIRE_VALUE, n, m, 1, NULL, 0, NULL, NULL));
      answers(quire_sequence_remove(cache, sequence, n, m, j % 2, NULL));
      CHECK_OK(quire_sequence_close(cache, sequence));
    }
    answers(quire_sequence_tokens(cache, kept, NULL, n, &number));
    answers(quire_cache_sequences(cache, NULL, n, &number));
    CHECK(quire_sequence_find(cache, (quire_sequence_id)n) == QUIRE_OK ||
          (quire_sequence_id)n != kept);
  }
  for (i = 0; i < kLayerCount; ++i) {
    const int layer = kLayersToTry[i];
    quire_gathered gathered = QUIRE_GATHERED_INIT;
    answers(quire_sequence_layer_length(cache, kept, layer, &number));
    answers(quire_sequence_layer_first_position(cache, kept, layer, &number));
    answers(quire_sequence_gather_size(cache, kept, layer, NULL, &gathered));
    answers(quire_sequence_runs(cache, kept, layer, NULL, 0, &number, NULL, 0, NULL));
    answers(
        quire_sequence_read(cache, kept, layer, QUIRE_KEY, 0, 1, layer, buffer, 4096, NULL, NULL));
  }
  CHECK(length_of(cache, kept) == kTokens);
  quire_cache_free(cache);
}

static void test_batches(void) {
  quire_cache* cache = create();
  const quire_sequence_id kept = open_with_tokens(cache);
  int i, j;
  for (i = 0; i < kCount; ++i) {
    for (j = 0; j < kCount; ++j) {
      quire_sequence_id sequence = open_with_tokens(cache);
      quire_token token;
      quire_span span;
      quire_cross_entry entry;
      quire_batch batch = QUIRE_BATCH_INIT;
      quire_batch_size size = QUIRE_BATCH_SIZE_INIT;
      quire_plan plan = QUIRE_PLAN_INIT;
      quire_step* step = NULL;
      token.sequence = sequence, token.position = kNumbers[i], token.key = 0;
      batch.tokens = &token, batch.token_count = 1;
      answers(quire_cache_plan(cache, &batch, &plan));
      if (quire_cache_begin(cache, &batch, &step) == QUIRE_OK) {
        put_rows(step, 0, 0, 1);
        put_rows(step, 1, 0, 1);
        CHECK_OK(quire_step_commit(step, NULL, 0, NULL));
        quire_step_free(step);
        answers(quire_sequence_shift_left(cache, sequence, 3, NULL));
        answers(quire_sequence_remove(cache, sequence, 5, kNumbers[j], 0, NULL));
      }
      token.position = kTokens + 100;
      span.sequence = sequence, span.begin = kNumbers[i], span.end = kNumbers[j];
      batch.spans = &span, batch.span_count = 1;
      answers(quire_cache_plan(cache, &batch, &plan));
      batch.span_count = 0;
      entry.sequence = sequence, entry.length = kNumbers[i], entry.owner_begin = kNumbers[j];
      entry.owner_end = kNumbers[i];
      batch.cross = &entry, batch.cross_count = 1;
      answers(quire_cache_plan(cache, &batch, &plan));
      size.sequences = kNumbers[i], size.tokens = kNumbers[j];
      if (size.tokens <= 17 || size.tokens > (int64_t)1 << 50) {
        answers(quire_cache_reserve(cache, &size));
      }
      CHECK_OK(quire_sequence_close(cache, sequence));
    }
  }
  CHECK(length_of(cache, kept) == kTokens);
  quire_cache_free(cache);
}

static void test_steps(void) {
  quire_cache* cache = create();
  const quire_sequence_id sequence = open_with_tokens(cache);
  quire_step* step = begin(cache, sequence, kTokens, 1);
  int64_t number = 0;
  int i, which;

  put_rows(step, 0, kTokens, 1);
  for (i = 0; i < kCount; ++i) {
    const int64_t n = kNumbers[i];
    quire_gather_format format = QUIRE_GATHER_FORMAT_INIT;
    quire_gathered gathered = QUIRE_GATHERED_INIT;
    quire_state state;
    format.pad_tokens_to = n;
    answers(quire_step_gather_size(step, 0, &sequence, 1, &format, &gathered));
    answers(quire_step_gather_size(step, 0, &sequence, n > 1 ? INT64_MAX : n, NULL, &gathered));
    answers(quire_step_mask_columns(step, 0, n, &number));
    answers(quire_step_mask(step, 0, QUIRE_F32, n, buffer, 4096, &number));
    if (n != 0) answers(quire_step_set_exceptions(step, &n, 1));
    answers(quire_step_commit_first(step, &n, n > 1 ? INT64_MAX : 1, NULL, 0, NULL));
    for (which = 0; which < 6; ++which) {
      quire_tensor t =
          quire_tensor_dense(buffer, QUIRE_F32, which == 0 ? n : 1, which == 1 ? n : kKvHeads,
                             which == 2 ? n : kDim, QUIRE_HEAD_MAJOR);
      quire_output o = quire_output_dense(buffer, which == 3 ? n : 1, which == 4 ? n : kKvHeads,
                                          which == 5 ? n : kDim, QUIRE_TOKEN_MAJOR);
      if (which < 3 && n == 1) continue;
      if (which < 3) CHECK(quire_step_put(step, 1, &t, &t) != QUIRE_OK);
      answers(quire_step_attend(step, 0, &t, &o));
    }
    state.o = state.m = state.l = buffer;
    state.tokens = n, state.heads = n, state.dim = n;
    if (n < 0 || n > 17) answers(quire_state_clear(&state));
  }
  CHECK_OK(quire_step_drop(step));
  quire_step_free(step);
  quire_cache_free(cache);
}

int main(void) {
  test_specs();
  test_sequences();
  test_batches();
  test_steps();
  return report("extremes");
}
