/* Sequences: opening, forking, cutting, asking and reading back. */
#include "check.h"

/* Layer 0 is causal, layer 1 a window of 8 tokens; both f16 with rotary embedding. */
enum { kLayers = 2, kWindow = 8, kRollback = 8 };

static const quire_sequence_id kUnknown = 987654;

static quire_cache* create(quire_rotation rotation) {
  quire_layer_spec layers[kLayers] = {QUIRE_LAYER_SPEC_INIT, QUIRE_LAYER_SPEC_INIT};
  quire_cache_spec spec = QUIRE_CACHE_SPEC_INIT;
  quire_cache* cache = NULL;
  CHECK_OK(quire_layer_spec_gqa(&layers[0], kQueryHeads, kKvHeads, kDim));
  layers[0].rotation = rotation;
  layers[1] = layers[0];
  layers[1].pattern.kind = QUIRE_WINDOW;
  layers[1].pattern.size = kWindow;
  spec.layers = layers;
  spec.layer_count = kLayers;
  spec.page_tokens = 16;
  spec.max_tokens = 100;
  spec.rollback = kRollback;
  CHECK_OK(quire_cache_create(&spec, &cache));
  return cache;
}

static quire_sequence_id open_with(quire_cache* cache, int64_t tokens) {
  quire_sequence_id sequence = 0;
  CHECK_OK(quire_sequence_open(cache, &sequence));
  append(cache, sequence, 0, tokens, kLayers);
  return sequence;
}

static int64_t next_of(const quire_cache* cache, quire_sequence_id sequence) {
  int64_t position = -1;
  CHECK_OK(quire_sequence_next_position(cache, sequence, &position));
  return position;
}

static int64_t first_of(const quire_cache* cache, quire_sequence_id sequence) {
  int64_t position = -1;
  CHECK_OK(quire_sequence_first_position(cache, sequence, &position));
  return position;
}

static void test_open_and_close(void) {
  quire_cache* cache = create(QUIRE_ROTATION_ROPE);
  quire_sequence_id sequence = 0;
  int64_t number = -1;

  CHECK_OK(quire_sequence_open(cache, &sequence));
  CHECK_OK(quire_sequence_find(cache, sequence));
  CHECK_FAILS(QUIRE_OUT_OF_RANGE, quire_sequence_first_position(cache, sequence, &number));
  CHECK(next_of(cache, sequence) == 0 && length_of(cache, sequence) == 0);
  CHECK_OK(quire_sequence_close(cache, sequence));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_close(cache, sequence));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_find(cache, sequence));

  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_open(NULL, &sequence));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_open(cache, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_find(NULL, sequence));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_close(NULL, sequence));
  quire_cache_free(cache);
}

static void test_questions(void) {
  quire_cache* cache = create(QUIRE_ROTATION_ROPE);
  quire_sequence_id sequence = 0;
  quire_token tokens[kMaxTokens];
  int64_t number = -1;
  int flag = -1;

  CHECK_OK(quire_sequence_open(cache, &sequence));
  CHECK_OK(quire_sequence_is_empty(cache, sequence, &flag));
  CHECK(flag == 1);
  append(cache, sequence, 0, 20, kLayers);
  append(cache, sequence, 20, 20, kLayers);

  CHECK(length_of(cache, sequence) == 40);
  CHECK(next_of(cache, sequence) == 40 && first_of(cache, sequence) == 0);
  CHECK_OK(quire_sequence_is_empty(cache, sequence, &flag));
  CHECK(flag == 0);
  CHECK_OK(quire_sequence_remaining(cache, sequence, &number));
  CHECK(number == 60);
  CHECK_OK(quire_sequence_is_full(cache, sequence, &flag));
  CHECK(flag == 0);
  CHECK_OK(quire_sequence_has_cross(cache, sequence, &flag));
  CHECK(flag == 0);
  CHECK_OK(quire_sequence_is_exact(cache, sequence, &flag));
  CHECK(flag == 1);

  /* A commit keeps M - 1 + rollback positions below the first token of its step. */
  CHECK_OK(quire_sequence_layer_length(cache, sequence, 0, &number));
  CHECK(number == 40);
  CHECK_OK(quire_sequence_layer_first_position(cache, sequence, 1, &number));
  CHECK(number == 20 - (kWindow - 1 + kRollback));
  CHECK_OK(quire_sequence_layer_length(cache, sequence, 1, &number));
  CHECK(number == 20 + kWindow - 1 + kRollback);
  CHECK_OK(quire_sequence_layer_first_position(cache, sequence, 0, &number));
  CHECK(number == 0);
  CHECK_FAILS(QUIRE_OUT_OF_RANGE, quire_sequence_layer_length(cache, sequence, 2, &number));
  CHECK_FAILS(QUIRE_OUT_OF_RANGE,
              quire_sequence_layer_first_position(cache, sequence, -1, &number));

  CHECK_OK(quire_sequence_can_resume(cache, sequence, 40, &flag));
  CHECK(flag == QUIRE_RESUME_EXACT);
  CHECK_OK(quire_sequence_can_resume(cache, sequence, 3, &flag));
  CHECK(flag == QUIRE_RESUME_NO); /* the window has evicted what it needs */
  CHECK_OK(quire_sequence_can_resume(cache, sequence, 41, &flag));
  CHECK(flag == QUIRE_RESUME_NO);

  CHECK_OK(quire_sequence_tokens(cache, sequence, tokens, kMaxTokens, &number));
  CHECK(number == 40 && tokens[7].sequence == sequence);
  CHECK(tokens[7].position == 7 && tokens[7].key == 107 && tokens[39].key == 139);
  CHECK_OK(quire_sequence_tokens(cache, sequence, NULL, 0, &number));
  CHECK(number == 40);
  CHECK_FAILS(QUIRE_BUFFER_TOO_SMALL, quire_sequence_tokens(cache, sequence, tokens, 39, &number));
  CHECK(number == 40);
  CHECK_TEXT("39");
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_tokens(cache, sequence, NULL, 40, &number));

  append(cache, sequence, 40, 60, kLayers);
  CHECK_OK(quire_sequence_is_full(cache, sequence, &flag));
  CHECK(flag == 1);

  /* Each with a cache, a sequence or a result that is not there. */
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_length(NULL, sequence, &number));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_length(cache, sequence, NULL));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_length(cache, kUnknown, &number));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_layer_length(cache, kUnknown, 0, &number));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_first_position(cache, kUnknown, &number));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_next_position(cache, kUnknown, &number));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_remaining(cache, kUnknown, &number));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_is_full(cache, kUnknown, &flag));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_is_empty(cache, kUnknown, &flag));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_has_cross(cache, kUnknown, &flag));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_is_exact(cache, kUnknown, &flag));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_can_resume(cache, kUnknown, 0, &flag));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_tokens(cache, kUnknown, NULL, 0, &number));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_can_resume(cache, sequence, 0, NULL));
  quire_cache_free(cache);
}

static void test_forks(void) {
  quire_cache* cache = create(QUIRE_ROTATION_ROPE);
  const quire_sequence_id parent = open_with(cache, 40);
  quire_sequence_id child = 0, early = 0, target = 0;
  quire_stats stats = QUIRE_STATS_INIT;
  quire_cut cut = {-1, -1};
  int64_t at = -1;

  CHECK_OK(quire_sequence_fork(cache, parent, &child));
  CHECK(child != parent && length_of(cache, child) == 40);
  CHECK_OK(quire_cache_stats(cache, &stats));
  CHECK(stats.pages_shared > 0);
  CHECK_OK(quire_sequence_fork_at(cache, parent, 38, &early, &at));
  CHECK(at == 38 && length_of(cache, early) == 38);
  CHECK_OK(quire_sequence_fork_at(cache, parent, 38, &early, NULL));

  CHECK_OK(quire_sequence_open(cache, &target));
  CHECK_OK(quire_sequence_copy_prefix(cache, parent, target, 39, &cut));
  CHECK(cut.at == 39 && length_of(cache, target) == 39);
  CHECK_OK(quire_sequence_copy_prefix(cache, child, target, 40, NULL));
  CHECK(length_of(cache, target) == 40);
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_copy_prefix(cache, kUnknown, target, 5, &cut));
  CHECK(length_of(cache, target) == 40);

  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_fork(cache, kUnknown, &child));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_fork_at(cache, kUnknown, 1, &child, &at));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_fork(cache, parent, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_fork(NULL, parent, &child));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_fork_at(cache, parent, 1, NULL, &at));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_fork_at(NULL, parent, 1, &child, &at));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_copy_prefix(NULL, parent, target, 5, &cut));
  quire_cache_free(cache);
}

static void test_cuts(void) {
  quire_cache* cache = create(QUIRE_ROTATION_ROPE);
  quire_cache* fixed = create(QUIRE_ROTATION_UNKNOWN);
  const quire_sequence_id a = open_with(cache, 40);
  const quire_sequence_id b = open_with(cache, 40);
  const quire_sequence_id c = open_with(fixed, 40);
  quire_cut cut = {-1, -1};

  CHECK_OK(quire_sequence_truncate(cache, a, 1000, &cut));
  CHECK(cut.removed == 0 && length_of(cache, a) == 40);
  CHECK_OK(quire_sequence_truncate(cache, a, 38, &cut));
  CHECK(cut.removed == 1 && cut.at == 38 && next_of(cache, a) == 38);
  CHECK_OK(quire_sequence_keep_last(cache, a, 1000, &cut));
  CHECK(cut.removed == 0);
  CHECK_OK(quire_sequence_keep_last(cache, a, 30, &cut));
  CHECK(cut.removed == 1 && first_of(cache, a) == 8 && length_of(cache, a) == 30);

  CHECK_OK(quire_sequence_shift_left(cache, b, 4, &cut));
  CHECK(cut.removed == 1 && first_of(cache, b) == 0 && next_of(cache, b) == 36);
  CHECK_OK(quire_sequence_remove(cache, b, 10, 20, 0, &cut));
  CHECK(cut.removed == 1 && next_of(cache, b) == 26 && length_of(cache, b) == 26);
  CHECK_OK(quire_sequence_remove(cache, b, 3, 5, 1, NULL));
  CHECK(next_of(cache, b) == 26 && length_of(cache, b) == 24);
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_remove(cache, b, 9, 3, 0, &cut));

  CHECK_FAILS(QUIRE_NOT_SUPPORTED, quire_sequence_remove(fixed, c, 10, 20, 0, &cut));
  CHECK_FAILS(QUIRE_NOT_SUPPORTED, quire_sequence_shift_left(fixed, c, 10, &cut));
  CHECK(length_of(fixed, c) == 40);
  CHECK_OK(quire_sequence_remove(fixed, c, 36, 40, 0, &cut));
  CHECK(cut.removed == 1 && length_of(fixed, c) == 36);

  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_truncate(cache, kUnknown, 1, &cut));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_keep_last(cache, kUnknown, 1, &cut));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_shift_left(cache, kUnknown, 1, &cut));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_remove(cache, kUnknown, 1, 2, 0, &cut));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_truncate(NULL, a, 1, &cut));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_keep_last(NULL, a, 1, &cut));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_shift_left(NULL, a, 1, &cut));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_remove(NULL, a, 1, 2, 0, &cut));
  quire_cache_free(cache);
  quire_cache_free(fixed);
}

static void test_overwrite(void) {
  quire_cache* cache = create(QUIRE_ROTATION_ROPE);
  const quire_sequence_id sequence = open_with(cache, 40);
  quire_sequence_id child = 0;
  float key[kRow], value[kRow], row[kRow];
  quire_tensor k, v;
  int i;

  CHECK_OK(quire_sequence_fork(cache, sequence, &child));
  for (i = 0; i < kRow; ++i) key[i] = 0.25f, value[i] = -0.5f;
  k = quire_tensor_dense(key, QUIRE_F32, 1, kKvHeads, kDim, QUIRE_TOKEN_MAJOR);
  v = quire_tensor_dense(value, QUIRE_F32, 1, kKvHeads, kDim, QUIRE_TOKEN_MAJOR);
  CHECK_OK(quire_sequence_overwrite(cache, sequence, 0, 5, &k, &v));
  CHECK_OK(quire_sequence_read(cache, sequence, 0, QUIRE_VALUE, 5, 6, QUIRE_ALL_HEADS, row, kRow,
                               NULL, NULL));
  CHECK(row[0] == -0.5f && row[kRow - 1] == -0.5f);
  CHECK_OK(quire_sequence_read(cache, child, 0, QUIRE_VALUE, 5, 6, QUIRE_ALL_HEADS, row, kRow, NULL,
                               NULL));
  CHECK(row[0] == value_of(0, QUIRE_VALUE, 5, 0, 0));

  key[3] = INFINITY;
  CHECK_FAILS(QUIRE_NON_FINITE, quire_sequence_overwrite(cache, sequence, 0, 5, &k, &v));
  key[3] = 0.0f;
  CHECK_FAILS(QUIRE_OUT_OF_RANGE, quire_sequence_overwrite(cache, sequence, 0, 77, &k, &v));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_overwrite(cache, sequence, 0, 5, &k, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_overwrite(cache, sequence, 0, 5, NULL, &v));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_overwrite(NULL, sequence, 0, 5, &k, &v));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_overwrite(cache, kUnknown, 0, 5, &k, &v));
  k.dtype = 5;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_overwrite(cache, sequence, 0, 5, &k, &v));
  quire_cache_free(cache);
}

typedef struct row_count {
  int64_t rows;
  int64_t last_position;
  int right;
} row_count;

static void count_row(void* context, int64_t position, const float* row) {
  row_count* count = (row_count*)context;
  int h, c;
  ++count->rows;
  count->last_position = position;
  for (h = 0; h < kKvHeads; ++h) {
    for (c = 0; c < kDim; ++c) {
      if (row[h * kDim + c] != value_of(0, QUIRE_KEY, position, h, c)) count->right = 0;
    }
  }
}

static void test_read(void) {
  quire_cache* cache = create(QUIRE_ROTATION_ROPE);
  const quire_sequence_id sequence = open_with(cache, 40);
  float expected[4 * kRow], rows[4 * kRow];
  int64_t tokens = -1, elements = -1;
  row_count count = {0, -1, 1};

  fill_rows(expected, 0, QUIRE_KEY, 14, 4); /* over a page's end */
  CHECK_OK(quire_sequence_read(cache, sequence, 0, QUIRE_KEY, 14, 18, QUIRE_ALL_HEADS, rows,
                               4 * kRow, &tokens, &elements));
  CHECK(tokens == 4 && elements == 4 * kRow && memcmp(rows, expected, sizeof rows) == 0);
  CHECK_OK(quire_sequence_read(cache, sequence, 0, QUIRE_KEY, 14, 18, 1, rows, 4 * kDim, &tokens,
                               &elements));
  CHECK(tokens == 4 && elements == 4 * kDim && rows[kDim] == expected[kRow + kDim]);
  CHECK_OK(quire_sequence_read(cache, sequence, 0, QUIRE_VALUE, 0, INT64_MAX, QUIRE_ALL_HEADS, NULL,
                               0, &tokens, &elements));
  CHECK(tokens == 40 && elements == 40 * kRow);
  elements = 0;
  CHECK_FAILS(QUIRE_BUFFER_TOO_SMALL,
              quire_sequence_read(cache, sequence, 0, QUIRE_KEY, 14, 18, QUIRE_ALL_HEADS, rows,
                                  4 * kRow - 1, &tokens, &elements));
  CHECK(tokens == 4 && elements == 4 * kRow);
  CHECK_FAILS(QUIRE_OUT_OF_RANGE,
              quire_sequence_read(cache, sequence, 9, QUIRE_KEY, 0, 1, 0, rows, kRow, NULL, NULL));
  CHECK_FAILS(QUIRE_OUT_OF_RANGE,
              quire_sequence_read(cache, sequence, 0, QUIRE_KEY, 0, 1, 2, rows, kRow, NULL, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT,
              quire_sequence_read(cache, sequence, 0, 2, 0, 1, 0, rows, kRow, NULL, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT,
              quire_sequence_read(cache, sequence, 0, QUIRE_KEY, 0, 1, 0, NULL, 9, NULL, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT,
              quire_sequence_read(cache, sequence, 0, QUIRE_KEY, 0, 1, 0, rows, -9, NULL, NULL));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE,
              quire_sequence_read(cache, kUnknown, 0, QUIRE_KEY, 0, 1, 0, rows, kRow, NULL, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT,
              quire_sequence_read(NULL, sequence, 0, QUIRE_KEY, 0, 1, 0, rows, kRow, NULL, NULL));

  CHECK_OK(quire_sequence_for_each(cache, sequence, 0, QUIRE_KEY, count_row, &count));
  CHECK(count.rows == 40 && count.last_position == 39 && count.right);
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT,
              quire_sequence_for_each(cache, sequence, 0, QUIRE_KEY, NULL, &count));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT,
              quire_sequence_for_each(cache, sequence, 0, -1, count_row, &count));
  CHECK_FAILS(QUIRE_OUT_OF_RANGE,
              quire_sequence_for_each(cache, sequence, 5, QUIRE_KEY, count_row, &count));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE,
              quire_sequence_for_each(cache, kUnknown, 0, QUIRE_KEY, count_row, &count));
  quire_cache_free(cache);
}

static void test_gather(void) {
  quire_cache* cache = create(QUIRE_ROTATION_ROPE);
  const quire_sequence_id sequence = open_with(cache, 40);
  static float keys[64 * kRow], values[64 * kRow], expected[64 * kRow];
  int64_t length = -1, first = -1;
  quire_gather_format format = QUIRE_GATHER_FORMAT_INIT;
  quire_gathered gathered = QUIRE_GATHERED_INIT;

  CHECK_OK(quire_sequence_gather_size(cache, sequence, 0, NULL, &gathered));
  CHECK(gathered.columns == 40 && gathered.key_elements == 40 * kRow);
  gathered.lengths = &length;
  gathered.first_positions = &first;
  CHECK_OK(quire_sequence_gather(cache, sequence, 0, NULL, keys, 40 * kRow, values, 40 * kRow,
                                 &gathered));
  fill_rows(expected, 0, QUIRE_VALUE, 0, 40);
  CHECK(length == 40 && first == 0);
  CHECK(memcmp(values, expected, 40 * kRow * sizeof(float)) == 0);

  format.layout = QUIRE_HEAD_MAJOR;
  format.pad_tokens_to = 64;
  format.transpose_values = 1;
  CHECK_OK(quire_sequence_gather(cache, sequence, 0, &format, NULL, 0, values, 64 * kRow, NULL));
  CHECK(values[3 * 64 + 7] == value_of(0, QUIRE_VALUE, 7, 0, 3)); /* [head][dim][token] */
  CHECK(values[3 * 64 + 63] == 0.0f);
  gathered.columns = 0;
  CHECK_FAILS(QUIRE_BUFFER_TOO_SMALL,
              quire_sequence_gather(cache, sequence, 0, &format, keys, 9, values, 9, &gathered));
  CHECK(gathered.columns == 64 && gathered.value_elements == 64 * kRow);

  format.dtype = 9;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT,
              quire_sequence_gather_size(cache, sequence, 0, &format, &gathered));
  format.dtype = QUIRE_F16;
  format.layout = 2;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT,
              quire_sequence_gather_size(cache, sequence, 0, &format, &gathered));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_sequence_gather_size(cache, sequence, 0, NULL, NULL));
  CHECK_FAILS(QUIRE_OUT_OF_RANGE, quire_sequence_gather_size(cache, sequence, 7, NULL, &gathered));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE,
              quire_sequence_gather_size(cache, kUnknown, 0, NULL, &gathered));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE,
              quire_sequence_gather(cache, kUnknown, 0, NULL, keys, 9, NULL, 0, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT,
              quire_sequence_gather(cache, sequence, 0, NULL, NULL, 9, NULL, 0, NULL));
  quire_cache_free(cache);
}

static void test_gather_several(void) {
  quire_cache* cache = create(QUIRE_ROTATION_ROPE);
  quire_sequence_id both[2];
  static float values[2 * 40 * kRow];
  int64_t lengths[2] = {-1, -1};
  quire_gather_format format = QUIRE_GATHER_FORMAT_INIT;
  quire_gathered gathered = QUIRE_GATHERED_INIT;
  both[0] = open_with(cache, 40);
  both[1] = open_with(cache, 20);
  format.layout = QUIRE_HEAD_MAJOR;
  gathered.lengths = lengths;
  CHECK_OK(quire_cache_gather_size(cache, 0, both, 2, &format, &gathered));
  CHECK(gathered.columns == 40 && gathered.value_elements == 2 * 40 * kRow);
  CHECK(lengths[0] == 40 && lengths[1] == 20);
  CHECK_OK(quire_cache_gather(cache, 0, both, 2, &format, NULL, 0, values, 2 * 40 * kRow, NULL));
  /* [sequence][head][token][dim], zeros behind the shorter one */
  CHECK(values[40 * kRow + 7 * kDim + 3] == value_of(0, QUIRE_VALUE, 7, 0, 3));
  CHECK(values[40 * kRow + 20 * kDim] == 0.0f);
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT,
              quire_cache_gather_size(cache, 0, both, 0, &format, &gathered));
  both[1] = kUnknown;
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE,
              quire_cache_gather_size(cache, 0, both, 2, &format, &gathered));
  quire_cache_free(cache);
}

static void test_runs(void) {
  quire_cache* cache = create(QUIRE_ROTATION_ROPE);
  const quire_sequence_id sequence = open_with(cache, 40);
  quire_run runs[64];
  int64_t positions[1024];
  int64_t run_count = -1, position_count = -1, tokens = 0, i;

  CHECK_OK(quire_sequence_runs(cache, sequence, 0, NULL, 0, &run_count, NULL, 0, &position_count));
  CHECK(run_count > 0 && run_count <= 64 && position_count == 40 * 2 * kKvHeads);
  CHECK_OK(quire_sequence_runs(cache, sequence, 0, runs, 64, &run_count, positions, 1024,
                               &position_count));
  for (i = 0; i < run_count; ++i) {
    const int slots = runs[i].last_slot - runs[i].first_slot;
    CHECK(runs[i].data != NULL && runs[i].data_bytes > 0 && runs[i].page_slots == 16);
    CHECK(strchr(runs[i].layout, '/') != NULL);
    CHECK(runs[i].positions[0] == runs[i].first_position && runs[i].turn == 0);
    CHECK(runs[i].positions[slots - 1] == runs[i].first_position + slots - 1);
    if (runs[i].side == QUIRE_VALUE && runs[i].head == 1) tokens += slots;
  }
  CHECK(tokens == 40);
  CHECK_OK(quire_sequence_runs(cache, sequence, 0, runs, 64, NULL, NULL, 0, NULL));
  CHECK(runs[0].positions == NULL);
  CHECK_FAILS(QUIRE_BUFFER_TOO_SMALL,
              quire_sequence_runs(cache, sequence, 0, runs, 1, &run_count, NULL, 0, NULL));
  CHECK(run_count > 1);
  CHECK_FAILS(QUIRE_BUFFER_TOO_SMALL, quire_sequence_runs(cache, sequence, 0, runs, 64, NULL,
                                                          positions, 3, &position_count));
  CHECK(position_count == 40 * 2 * kKvHeads);
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT,
              quire_sequence_runs(cache, sequence, 0, NULL, 3, &run_count, NULL, 0, NULL));
  CHECK_FAILS(QUIRE_OUT_OF_RANGE,
              quire_sequence_runs(cache, sequence, 3, runs, 64, NULL, NULL, 0, NULL));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE,
              quire_sequence_runs(cache, kUnknown, 0, runs, 64, NULL, NULL, 0, NULL));
  quire_cache_free(cache);
}

int main(void) {
  test_open_and_close();
  test_questions();
  test_forks();
  test_cuts();
  test_overwrite();
  test_read();
  test_gather();
  test_gather_several();
  test_runs();
  return report("sequences");
}
