/* Steps: beginning, putting, attending, committing; and states. */
#include "check.h"

static const quire_sequence_id kUnknown = 987654;

static quire_cache* create(int64_t max_batch) {
  quire_layer_spec layer = QUIRE_LAYER_SPEC_INIT;
  quire_cache_spec spec = QUIRE_CACHE_SPEC_INIT;
  quire_cache* cache = NULL;
  CHECK_OK(quire_layer_spec_gqa(&layer, kQueryHeads, kKvHeads, kDim));
  layer.key_codec = "f32";
  layer.value_codec = "f32";
  spec.layers = &layer;
  spec.layer_count = 1;
  spec.repeat = 2;
  spec.page_tokens = 16;
  spec.max_batch = max_batch;
  CHECK_OK(quire_cache_create(&spec, &cache));
  return cache;
}

static quire_sequence_id open_one(quire_cache* cache) {
  quire_sequence_id sequence = 0;
  CHECK_OK(quire_sequence_open(cache, &sequence));
  return sequence;
}

static void test_batches(void) {
  quire_cache* cache = create(50);
  const quire_sequence_id a = open_one(cache);
  quire_token tokens[64];
  const uint64_t keys[3] = {7, 8, 9};
  quire_batch batch = QUIRE_BATCH_INIT;
  quire_batch_size size = QUIRE_BATCH_SIZE_INIT;
  quire_plan plan = QUIRE_PLAN_INIT;
  quire_stats stats = QUIRE_STATS_INIT;
  quire_span span;
  quire_step* step = (quire_step*)&batch;

  CHECK_OK(quire_token_fill(tokens, 3, a, 5, keys));
  CHECK(tokens[2].position == 7 && tokens[2].key == 9 && tokens[2].sequence == a);
  CHECK_OK(quire_token_fill(tokens, 64, a, 0, NULL));
  CHECK(tokens[63].position == 63 && tokens[63].key == 0);
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_token_fill(NULL, 3, a, 0, keys));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_token_fill(tokens, -3, a, 0, keys));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_token_fill(tokens, 3, a, INT64_MAX, keys));

  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_begin(cache, &batch, &step)); /* empty */
  CHECK(step == NULL);
  batch.token_count = 3; /* without tokens */
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_begin(cache, &batch, &step));
  batch.tokens = tokens;
  batch.token_count = INT64_MAX;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_begin(cache, &batch, &step));
  batch.token_count = -1;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_plan(cache, &batch, &plan));
  batch.token_count = 64;
  CHECK_FAILS(QUIRE_FULL, quire_cache_begin(cache, &batch, &step));
  batch.token_count = 40;
  batch.span_count = 1; /* without spans */
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_begin(cache, &batch, &step));
  batch.spans = &span;
  span.sequence = a;
  span.begin = 30;
  span.end = 41; /* a token more than the batch has */
  CHECK(quire_cache_begin(cache, &batch, &step) != QUIRE_OK);
  batch.span_count = 0;
  batch.cross_count = 1; /* without entries */
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_begin(cache, &batch, &step));
  batch.cross_count = 0;
  tokens[1].position = 0;
  CHECK_FAILS(QUIRE_DUPLICATE_POSITION, quire_cache_begin(cache, &batch, &step));
  tokens[1].position = 1;
  tokens[1].sequence = kUnknown;
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_cache_begin(cache, &batch, &step));
  tokens[1].sequence = a;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_begin(cache, NULL, &step));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_begin(cache, &batch, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_begin(NULL, &batch, &step));
  CHECK(step == NULL);

  CHECK_OK(quire_cache_plan(cache, &batch, &plan));
  CHECK(plan.pages == 3 && plan.bytes >= plan.bytes_rows);
  CHECK(plan.bytes_rows >= 40 * 2 * 2 * kRow * sizeof(float));
  CHECK(plan.gather_bytes == 40 * kRow * sizeof(float));
  CHECK(plan.mask_bytes == 40 * 40 * sizeof(float));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_plan(cache, &batch, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_plan(NULL, &batch, &plan));

  size.tokens = 40;
  CHECK_OK(quire_cache_reserve(cache, &size));
  CHECK_OK(quire_cache_stats(cache, &stats));
  CHECK(stats.bytes >= plan.bytes);
  size.tokens = -1;
  CHECK(quire_cache_reserve(cache, &size) != QUIRE_OK);
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_reserve(cache, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_reserve(NULL, &size));
  quire_cache_free(cache);
}

static void test_life(void) {
  quire_cache* cache = create(0);
  const quire_sequence_id a = open_one(cache);
  const quire_sequence_id b = open_one(cache);
  quire_token tokens[6];
  quire_batch batch = QUIRE_BATCH_INIT;
  quire_committed committed[2] = {{0, -1}, {0, -1}};
  const int64_t first[2] = {1, 3};
  quire_step *step = begin(cache, a, 0, 4), *second = NULL;
  quire_cut cut;
  int64_t count = -1;

  CHECK(quire_step_is_open(step) == 1 && quire_step_tokens(step) == 4);
  CHECK(quire_step_is_open(NULL) == 0 && quire_step_tokens(NULL) == 0);
  CHECK_FAILS(QUIRE_BUSY, quire_sequence_truncate(cache, a, 0, &cut));
  CHECK_FAILS(QUIRE_BUSY, quire_cache_clear(cache));
  put_rows(step, 0, 0, 4);
  CHECK_FAILS(QUIRE_WRONG_STATE, quire_step_commit(step, committed, 2, &count)); /* layer 1 */
  CHECK(quire_step_is_open(step) == 1);
  put_rows(step, 1, 0, 4);
  CHECK_FAILS(QUIRE_BUFFER_TOO_SMALL, quire_step_commit(step, committed, 0, &count));
  CHECK(count == 1 && quire_step_is_open(step) == 1);
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_commit(step, NULL, 2, &count));
  CHECK_OK(quire_step_commit(step, committed, 2, &count));
  CHECK(count == 1 && committed[0].sequence == a && committed[0].tokens == 4);
  CHECK(quire_step_is_open(step) == 0);
  CHECK_FAILS(QUIRE_WRONG_STATE, quire_step_commit(step, NULL, 0, NULL));
  quire_step_free(step);

  /* Part of a mixed batch. */
  CHECK_OK(quire_token_fill(tokens, 2, b, 0, NULL));
  CHECK_OK(quire_token_fill(tokens + 2, 4, a, 4, NULL));
  batch.tokens = tokens;
  batch.token_count = 6;
  CHECK_OK(quire_cache_begin(cache, &batch, &step));
  put_rows(step, 0, 0, 6);
  put_rows(step, 1, 0, 6);
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_commit_first(step, NULL, 2, committed, 2, &count));
  CHECK(quire_step_commit_first(step, first, 1, committed, 2, &count) != QUIRE_OK);
  CHECK_FAILS(QUIRE_BUFFER_TOO_SMALL,
              quire_step_commit_first(step, first, 2, committed, 1, &count));
  CHECK_OK(quire_step_commit_first(step, first, 2, committed, 2, &count));
  CHECK(count == 2 && committed[0].sequence == b && committed[0].tokens == 1);
  CHECK(committed[1].sequence == a && committed[1].tokens == 3);
  CHECK(length_of(cache, a) == 7 && length_of(cache, b) == 1);
  quire_step_free(step);

  /* Dropped: by name, with its handle, with its cache. */
  step = begin(cache, a, 7, 1);
  CHECK_OK(quire_step_drop(step));
  CHECK_OK(quire_step_drop(step));
  CHECK(quire_step_is_open(step) == 0 && length_of(cache, a) == 7);
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_drop(NULL));
  quire_step_free(step);
  step = begin(cache, a, 7, 1);
  quire_step_free(step);
  CHECK_OK(quire_sequence_truncate(cache, a, 7, &cut));
  step = begin(cache, a, 7, 1);
  second = begin(cache, b, 1, 1);
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_commit(NULL, NULL, 0, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_commit_first(NULL, first, 2, NULL, 0, NULL));
  CHECK_OK(quire_cache_close(cache));
  CHECK(quire_step_is_open(step) == 0);
  quire_step_free(step);
  quire_cache_free(cache);
  CHECK(quire_step_is_open(second) == 0);
  CHECK_FAILS(QUIRE_WRONG_STATE, quire_step_commit(second, NULL, 0, NULL));
  CHECK_OK(quire_step_drop(second));
  quire_step_free(second);
  quire_step_free(NULL);
}

static void test_put(void) {
  quire_cache* cache = create(0);
  const quire_sequence_id a = open_one(cache);
  quire_step* step = begin(cache, a, 0, 2);
  float rows[2 * kRow];
  quire_tensor k, v;

  fill_rows(rows, 0, QUIRE_KEY, 0, 2);
  k = quire_tensor_dense(rows, QUIRE_F32, 2, kKvHeads, kDim, QUIRE_TOKEN_MAJOR);
  v = k;
  CHECK_FAILS(QUIRE_OUT_OF_RANGE, quire_step_put(step, 2, &k, &v));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_put(step, 0, NULL, &v));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_put(step, 0, &k, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_put(NULL, 0, &k, &v));
  v.data = NULL;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_put(step, 0, &k, &v));
  CHECK_TEXT("values");
  v = k;
  v.heads = 3;
  CHECK_FAILS(QUIRE_MISMATCH, quire_step_put(step, 0, &k, &v));
  v = k;
  v.dtype = -1;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_put(step, 0, &k, &v));
  v = k;
  rows[kRow + 3] = NAN;
  CHECK_FAILS(QUIRE_NON_FINITE, quire_step_put(step, 0, &k, &v));
  rows[kRow + 3] = 1.0f;
  CHECK_OK(quire_step_put(step, 0, &k, &v));
  CHECK_FAILS(QUIRE_WRONG_STATE, quire_step_put(step, 0, &k, &v));
  CHECK(quire_step_put_latent(step, 1, &k) != QUIRE_OK); /* no MLA layer */
  quire_step_free(step);
  quire_cache_free(cache);
}

/* Keys of zero make every visible token count the same: attend gives the mean of the values. */
static void test_attend(void) {
  quire_cache* cache = create(0);
  const quire_sequence_id a = open_one(cache);
  quire_step* step = begin(cache, a, 0, 2);
  float keys[2 * kRow] = {0}, values[2 * kRow];
  float q[2 * kQueryHeads * kDim], out[2 * kQueryHeads * kDim];
  float logits[2 * kQueryHeads * 2], mask[2 * 4];
  float o[2 * kQueryHeads * kDim], m[2 * kQueryHeads], l[2 * kQueryHeads];
  float o2[2 * kQueryHeads * kDim], m2[2 * kQueryHeads], l2[2 * kQueryHeads];
  float whole[2 * kQueryHeads * kDim];
  const float sinks[kQueryHeads] = {0.0f, 0.0f, 0.0f, 0.0f};
  const int64_t exception = 0, beyond = 2;
  const quire_tensor k = quire_tensor_dense(keys, QUIRE_F32, 2, kKvHeads, kDim, QUIRE_TOKEN_MAJOR);
  const quire_tensor v =
      quire_tensor_dense(values, QUIRE_F32, 2, kKvHeads, kDim, QUIRE_TOKEN_MAJOR);
  quire_tensor query = quire_tensor_dense(q, QUIRE_F32, 2, kQueryHeads, kDim, QUIRE_TOKEN_MAJOR);
  quire_output output = quire_output_dense(out, 2, kQueryHeads, kDim, QUIRE_TOKEN_MAJOR);
  quire_state state, other;
  int64_t elements = -1, columns = -1;
  int i;

  for (i = 0; i < 2 * kQueryHeads * kDim; ++i) q[i] = 1.0f;
  fill_rows(values, 0, QUIRE_VALUE, 0, 2);
  CHECK_FAILS(QUIRE_WRONG_STATE, quire_step_attend(step, 0, &query, &output)); /* not put yet */
  CHECK_OK(quire_step_put(step, 0, &k, &v));
  CHECK_OK(quire_step_attend(step, 0, &query, &output));
  CHECK(near(out[0], values[0]));
  CHECK(near(out[kQueryHeads * kDim], (values[0] + values[kRow]) / 2));
  CHECK(near(out[kQueryHeads * kDim + 3 * kDim], (values[kDim] + values[kRow + kDim]) / 2));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_attend(step, 0, NULL, &output));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_attend(step, 0, &query, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_attend(NULL, 0, &query, &output));
  CHECK_FAILS(QUIRE_OUT_OF_RANGE, quire_step_attend(step, 8, &query, &output));
  output.data = NULL;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_attend(step, 0, &query, &output));
  output.data = out;
  output.heads = 1;
  CHECK_FAILS(QUIRE_MISMATCH, quire_step_attend(step, 0, &query, &output));
  output.heads = kQueryHeads;
  query.heads = 3;
  CHECK_FAILS(QUIRE_MISMATCH, quire_step_attend(step, 0, &query, &output));
  query.heads = kQueryHeads;

  CHECK_OK(quire_step_scores(step, 0, &query, NULL, 0, &elements));
  CHECK(elements == 2 * kQueryHeads * 2);
  CHECK_OK(quire_step_scores(step, 0, &query, logits, elements, NULL));
  CHECK(logits[0] == 0.0f && logits[1] == -INFINITY && logits[2 * kQueryHeads + 1] == 0.0f);
  CHECK_FAILS(QUIRE_BUFFER_TOO_SMALL, quire_step_scores(step, 0, &query, logits, 3, &elements));
  CHECK(elements == 2 * kQueryHeads * 2);
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_scores(step, 0, &query, NULL, 3, &elements));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_scores(NULL, 0, &query, logits, 3, &elements));
  CHECK_OK(quire_step_probabilities(step, 0, &query, logits, 2 * kQueryHeads * 2, &elements));
  CHECK(logits[0] == 1.0f && logits[1] == 0.0f && near(logits[2 * kQueryHeads], 0.5));
  CHECK_FAILS(QUIRE_BUFFER_TOO_SMALL,
              quire_step_probabilities(step, 0, &query, logits, 3, &elements));

  CHECK_OK(quire_step_mask_columns(step, 0, 4, &columns));
  CHECK(columns == 4);
  CHECK_OK(quire_step_mask(step, 0, QUIRE_F32, 4, mask, 8, &columns));
  CHECK(columns == 4 && mask[0] == 0.0f && mask[1] == -INFINITY && mask[5] == 0.0f);
  CHECK(mask[7] == -INFINITY);
  columns = 0;
  CHECK_FAILS(QUIRE_BUFFER_TOO_SMALL, quire_step_mask(step, 0, QUIRE_F32, 4, mask, 7, &columns));
  CHECK(columns == 4);
  CHECK_OK(quire_step_mask(step, 0, QUIRE_F16, 1, NULL, 0, &columns));
  CHECK(columns == 2);
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_mask(step, 0, 8, 4, mask, 8, &columns));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_mask(NULL, 0, QUIRE_F32, 4, mask, 8, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_mask_columns(step, 0, 4, NULL));
  CHECK(quire_step_mask_columns(step, 0, 0, &columns) != QUIRE_OK);

  CHECK_OK(quire_step_set_exceptions(step, &exception, 1));
  CHECK_OK(quire_step_attend(step, 0, &query, &output));
  CHECK(near(out[0], (values[0] + values[kRow]) / 2));
  CHECK_OK(quire_step_set_exceptions(step, NULL, 0));
  CHECK_FAILS(QUIRE_OUT_OF_RANGE, quire_step_set_exceptions(step, &beyond, 1));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_set_exceptions(step, NULL, 1));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_set_exceptions(NULL, &exception, 1));

  /* A state merged with an empty one, and with itself, is the same attention; a sink takes the
   * weight of one more token. */
  state.o = o, state.m = m, state.l = l;
  state.tokens = 2, state.heads = kQueryHeads, state.dim = kDim;
  other = state;
  other.o = o2, other.m = m2, other.l = l2;
  CHECK_OK(quire_step_attend(step, 0, &query, &output));
  CHECK_OK(quire_step_attend_state(step, 0, &query, &state));
  CHECK(m[0] == 0.0f && l[0] == 1.0f && l[kQueryHeads] == 2.0f);
  CHECK_OK(quire_state_clear(&other));
  CHECK(m2[0] == -INFINITY && l2[0] == 0.0f && o2[0] == 0.0f);
  CHECK_OK(quire_state_finish(&other, sinks, whole));
  CHECK(whole[0] == 0.0f);
  CHECK_OK(quire_state_merge(&other, &state));
  CHECK_OK(quire_state_finish(&other, NULL, whole));
  CHECK(memcmp(whole, out, sizeof out) == 0);
  CHECK_OK(quire_state_merge(&other, &state));
  CHECK_OK(quire_state_finish(&other, NULL, whole));
  CHECK(near(whole[kQueryHeads * kDim], out[kQueryHeads * kDim]));
  CHECK_OK(quire_state_finish(&state, sinks, state.o));
  CHECK(near(o[0], values[0] / 2));
  other.heads = 2;
  CHECK_FAILS(QUIRE_MISMATCH, quire_state_merge(&state, &other));
  CHECK_FAILS(QUIRE_MISMATCH, quire_step_attend_state(step, 0, &query, &other));
  other.dim = INT64_MAX;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_state_clear(&other));
  other.dim = -1;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_state_finish(&other, NULL, whole));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_state_clear(NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_state_merge(&state, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_state_finish(&state, NULL, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_attend_state(step, 0, &query, NULL));
  quire_step_free(step);
  quire_cache_free(cache);
}

static void test_gather_and_runs(void) {
  quire_cache* cache = create(0);
  const quire_sequence_id a = open_one(cache), b = open_one(cache);
  quire_sequence_id ids[2];
  quire_token tokens[3];
  quire_batch batch = QUIRE_BATCH_INIT;
  quire_gather_format format = QUIRE_GATHER_FORMAT_INIT;
  quire_gathered gathered = QUIRE_GATHERED_INIT;
  quire_step* step = NULL;
  quire_run runs[32];
  int64_t positions[256], lengths[2], firsts[2], run_count = 0, position_count = 0;
  static float keys[2 * 20 * kRow];

  append(cache, a, 0, 18, 2);
  CHECK_OK(quire_token_fill(tokens, 2, a, 18, NULL));
  CHECK_OK(quire_token_fill(tokens + 2, 1, b, 0, NULL));
  batch.tokens = tokens;
  batch.token_count = 3;
  CHECK_OK(quire_cache_begin(cache, &batch, &step));
  put_rows(step, 0, 18, 3);

  ids[0] = b, ids[1] = a;
  format.layout = QUIRE_HEAD_MAJOR;
  gathered.lengths = lengths;
  gathered.first_positions = firsts;
  CHECK_OK(quire_step_gather_size(step, 0, ids, 2, &format, &gathered));
  CHECK(gathered.columns == 20 && gathered.key_elements == 2 * 20 * kRow);
  CHECK(lengths[0] == 1 && lengths[1] == 20 && firsts[0] == 0 && firsts[1] == 0);
  CHECK_OK(quire_step_gather(step, 0, ids, 2, &format, keys, 2 * 20 * kRow, NULL, 0, &gathered));
  CHECK(keys[0] == value_of(0, QUIRE_KEY, 20, 0, 0)); /* b's one token is row 2 of the step */
  CHECK(keys[kDim] == 0.0f);
  CHECK(keys[20 * kRow + 19 * kDim] == value_of(0, QUIRE_KEY, 19, 0, 0));
  gathered.key_elements = 0;
  CHECK_FAILS(QUIRE_BUFFER_TOO_SMALL,
              quire_step_gather(step, 0, ids, 2, &format, keys, 5, NULL, 0, &gathered));
  CHECK(gathered.key_elements == 2 * 20 * kRow);
  CHECK_FAILS(QUIRE_WRONG_STATE, quire_step_gather_size(step, 1, ids, 2, &format, &gathered));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_gather_size(step, 0, ids, 2, &format, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_gather_size(step, 0, NULL, 2, &format, &gathered));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT,
              quire_step_gather(NULL, 0, ids, 2, &format, keys, 5, NULL, 0, NULL));
  ids[0] = kUnknown;
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_step_gather_size(step, 0, ids, 2, &format, &gathered));

  CHECK_OK(quire_step_runs(step, 0, a, runs, 32, &run_count, positions, 256, &position_count));
  CHECK(run_count >= 2 * kKvHeads * 2 && position_count == 20 * 2 * kKvHeads);
  CHECK(runs[0].first_position == 0 && runs[0].positions[1] == 1);
  CHECK_FAILS(QUIRE_BUFFER_TOO_SMALL,
              quire_step_runs(step, 0, a, runs, 1, &run_count, NULL, 0, NULL));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE,
              quire_step_runs(step, 0, kUnknown, runs, 32, &run_count, NULL, 0, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT,
              quire_step_runs(NULL, 0, a, runs, 32, &run_count, NULL, 0, NULL));
  quire_step_free(step);
  quire_cache_free(cache);
}

/* A latent layer and a cross layer, with a span. */
static void test_other_layers(void) {
  quire_layer_spec layers[2] = {QUIRE_LAYER_SPEC_INIT, QUIRE_LAYER_SPEC_INIT};
  quire_cache_spec spec = QUIRE_CACHE_SPEC_INIT;
  quire_cache* cache = NULL;
  quire_sequence_id a = 0;
  quire_token tokens[4];
  quire_span span;
  quire_cross_entry entry;
  quire_batch batch = QUIRE_BATCH_INIT;
  quire_step* step = NULL;
  quire_committed committed = {0, -1};
  const int64_t three = 3;
  float latent[4 * 12], encoder[5 * kRow], q[4 * 12 * 4] = {0}, out[4 * kRow * 2];
  quire_tensor t, e, query;
  quire_output output;
  int64_t length = -1;
  int flag = -1, i;

  for (i = 0; i < 4 * 12; ++i) latent[i] = (float)(i / 12);
  CHECK_OK(quire_layer_spec_mla(&layers[0], kQueryHeads, 8, 4));
  layers[0].key_codec = "int8";
  CHECK_OK(quire_layer_spec_gqa(&layers[1], kQueryHeads, kKvHeads, kDim));
  layers[1].pattern.kind = QUIRE_CROSS;
  layers[1].value_codec = "f32";
  spec.layers = layers;
  spec.layer_count = 2;
  CHECK_OK(quire_cache_create(&spec, &cache));
  CHECK_OK(quire_sequence_open(cache, &a));

  CHECK_OK(quire_token_fill(tokens, 4, a, 0, NULL));
  span.sequence = a, span.begin = 1, span.end = 4;
  entry.sequence = a, entry.length = 5, entry.owner_begin = 0, entry.owner_end = 1;
  batch.tokens = tokens, batch.token_count = 4;
  batch.spans = &span, batch.span_count = 1;
  batch.cross = &entry, batch.cross_count = 1;
  CHECK_OK(quire_cache_begin(cache, &batch, &step));
  t = quire_tensor_dense(latent, QUIRE_F32, 4, 1, 12, QUIRE_TOKEN_MAJOR);
  CHECK(quire_step_put(step, 0, &t, &t) != QUIRE_OK); /* one latent, not keys and values */
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_put_latent(step, 0, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_step_put_latent(NULL, 0, &t));
  CHECK_OK(quire_step_put_latent(step, 0, &t));
  fill_rows(encoder, 1, QUIRE_KEY, 0, 5);
  e = quire_tensor_dense(encoder, QUIRE_F32, 5, kKvHeads, kDim, QUIRE_TOKEN_MAJOR);
  CHECK_OK(quire_step_put(step, 1, &e, &e));

  query = quire_tensor_dense(q, QUIRE_F32, 4, kQueryHeads, 12, QUIRE_TOKEN_MAJOR);
  output = quire_output_dense(out, 4, kQueryHeads, kDim, QUIRE_TOKEN_MAJOR);
  CHECK_OK(quire_step_attend(step, 0, &query, &output));
  CHECK(out[0] == 0.0f && near(out[kQueryHeads * kDim], (0 + 1 + 2 + 3) / 4.0)); /* the span */
  query = quire_tensor_dense(q, QUIRE_F32, 4, kQueryHeads, kDim, QUIRE_TOKEN_MAJOR);
  CHECK_OK(quire_step_attend(step, 1, &query, &output));
  CHECK(near(out[0], (encoder[0] + encoder[kRow] + encoder[2 * kRow] + encoder[3 * kRow] +
                      encoder[4 * kRow]) /
                         5));

  /* Three tokens would split the span: one is taken. */
  CHECK_OK(quire_step_commit_first(step, &three, 1, &committed, 1, NULL));
  CHECK(committed.tokens == 1 && length_of(cache, a) == 1);
  quire_step_free(step);
  CHECK_OK(quire_sequence_has_cross(cache, a, &flag));
  CHECK(flag == 1);
  CHECK_OK(quire_sequence_layer_length(cache, a, 1, &length));
  CHECK(length == 5);
  CHECK_OK(quire_sequence_overwrite(cache, a, 0, 0,
                                    &(quire_tensor){latent, QUIRE_F32, 1, 1, 12, 12, 12}, NULL));
  CHECK_OK(quire_sequence_truncate(cache, a, 0, NULL));
  CHECK_OK(quire_sequence_has_cross(cache, a, &flag));
  CHECK(flag == 0);
  quire_cache_free(cache);
}

int main(void) {
  test_batches();
  test_life();
  test_put();
  test_attend();
  test_gather_and_runs();
  test_other_layers();
  return report("steps");
}
