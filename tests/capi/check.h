/* Checks and a small model for the C programs: they print what failed and count it. */
#ifndef QUIRE_TESTS_CAPI_CHECK_H
#define QUIRE_TESTS_CAPI_CHECK_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "quire/quire.h"

static int failures = 0;

static inline void check_at(int holds, const char* what, const char* file, int line) {
  if (holds) return;
  ++failures;
  printf("%s:%d: not so: %s (last error: %s)\n", file, line, what, quire_last_error());
}

static inline void check_status_at(quire_status found, quire_status expected, const char* what,
                                   const char* file, int line) {
  const int has_text = quire_last_error()[0] != '\0';
  if (found == expected && has_text == (found != QUIRE_OK)) return;
  ++failures;
  printf("%s:%d: %s\n  gave %s, expected %s; text: %s\n", file, line, what, quire_error_name(found),
         quire_error_name(expected), quire_last_error());
}

#define CHECK(condition) check_at((condition), #condition, __FILE__, __LINE__)
/* The call succeeds and leaves no text, or fails as told and leaves one. */
#define CHECK_OK(call) check_status_at((call), QUIRE_OK, #call, __FILE__, __LINE__)
#define CHECK_FAILS(status, call) check_status_at((call), (status), #call, __FILE__, __LINE__)
/* The text of the last error says `part`. */
#define CHECK_TEXT(part) CHECK(strstr(quire_last_error(), (part)) != NULL)

static inline int near(double a, double b) {
  const double d = a < b ? b - a : a - b;
  return d <= 1e-5;
}

/* The model of most tests: 4 query heads over 2 KV heads of 8 channels. */
enum { kKvHeads = 2, kDim = 8, kQueryHeads = 4, kRow = kKvHeads * kDim, kMaxTokens = 128 };

/* Exact in every float codec. */
static inline float value_of(int layer, quire_side side, int64_t position, int head, int channel) {
  const int64_t mixed = 7 * position + 5 * channel + 3 * head + 11 * side + layer;
  return (float)(mixed % 17 - 8) / 8.0f;
}

/* `count` rows from `position` on, [token][head][dim]. */
static inline void fill_rows(float* rows, int layer, quire_side side, int64_t position,
                             int64_t count) {
  int64_t t;
  int h, c;
  for (t = 0; t < count; ++t) {
    for (h = 0; h < kKvHeads; ++h) {
      for (c = 0; c < kDim; ++c) *rows++ = value_of(layer, side, position + t, h, c);
    }
  }
}

/* Puts rows of all tokens of a step of one sequence that starts at `position`. */
static inline void put_rows(quire_step* step, int layer, int64_t position, int64_t count) {
  static float keys[kMaxTokens * kRow], values[kMaxTokens * kRow];
  quire_tensor k, v;
  fill_rows(keys, layer, QUIRE_KEY, position, count);
  fill_rows(values, layer, QUIRE_VALUE, position, count);
  k = quire_tensor_dense(keys, QUIRE_F32, count, kKvHeads, kDim, QUIRE_TOKEN_MAJOR);
  v = quire_tensor_dense(values, QUIRE_F32, count, kKvHeads, kDim, QUIRE_TOKEN_MAJOR);
  CHECK_OK(quire_step_put(step, layer, &k, &v));
}

/* Opens a step of `count` tokens with keys 100 + position. */
static inline quire_step* begin(quire_cache* cache, quire_sequence_id sequence, int64_t position,
                                int64_t count) {
  quire_token tokens[kMaxTokens];
  uint64_t keys[kMaxTokens];
  quire_batch batch = QUIRE_BATCH_INIT;
  quire_step* step = NULL;
  int64_t i;
  for (i = 0; i < count; ++i) keys[i] = (uint64_t)(100 + position + i);
  CHECK_OK(quire_token_fill(tokens, count, sequence, position, keys));
  batch.tokens = tokens;
  batch.token_count = count;
  CHECK_OK(quire_cache_begin(cache, &batch, &step));
  return step;
}

/* Appends `count` tokens to the first `layers` layers and commits them. */
static inline void append(quire_cache* cache, quire_sequence_id sequence, int64_t position,
                          int64_t count, int layers) {
  quire_step* step = begin(cache, sequence, position, count);
  int layer;
  for (layer = 0; layer < layers; ++layer) put_rows(step, layer, position, count);
  CHECK_OK(quire_step_commit(step, NULL, 0, NULL));
  quire_step_free(step);
}

static inline int64_t length_of(const quire_cache* cache, quire_sequence_id sequence) {
  int64_t length = -1;
  CHECK_OK(quire_sequence_length(cache, sequence, &length));
  return length;
}

/* The end of main: what failed, as the exit code. */
static inline int report(const char* program) {
  if (failures == 0) {
    printf("%s: all as expected\n", program);
    return 0;
  }
  printf("%s: %d failed\n", program, failures);
  return 1;
}

#endif /* QUIRE_TESTS_CAPI_CHECK_H */
