/* Texts and names, specs and stamps, and what a cache as a whole can do. */
#include <stdlib.h>

#include "check.h"

static quire_layer_spec layer_with_rope(const char* codec) {
  quire_layer_spec layer = QUIRE_LAYER_SPEC_INIT;
  CHECK_OK(quire_layer_spec_gqa(&layer, kQueryHeads, kKvHeads, kDim));
  layer.key_codec = codec;
  layer.value_codec = codec;
  layer.rotation = QUIRE_ROTATION_ROPE;
  return layer;
}

static quire_cache* create(const quire_layer_spec* layer, int64_t layers) {
  quire_cache_spec spec = QUIRE_CACHE_SPEC_INIT;
  quire_cache* cache = NULL;
  spec.layers = layer;
  spec.layer_count = 1;
  spec.repeat = layers;
  spec.page_tokens = 16;
  CHECK_OK(quire_cache_create(&spec, &cache));
  return cache;
}

static void test_names(void) {
  const char *key = NULL, *value = NULL;
  char small[4] = "abc";
  char text[4096];
  size_t bytes = 0;
  int i;

  CHECK(strcmp(quire_error_name(QUIRE_OK), "ok") == 0);
  CHECK(strcmp(quire_error_name(QUIRE_OVER_LIMIT), "over_limit") == 0);
  CHECK(strcmp(quire_error_name(QUIRE_INVALID_ARGUMENT), "invalid_argument") == 0);
  CHECK(strcmp(quire_error_name(-1), "unknown") == 0);
  CHECK(strcmp(quire_error_name(1000), "unknown") == 0);
  CHECK(strchr(quire_version_string(), '.') != NULL);

  CHECK(quire_dtype_bytes(QUIRE_F32) == 4 && quire_dtype_bytes(QUIRE_BF16) == 2);
  CHECK(quire_dtype_bytes(3) == 0 && quire_dtype_bytes(-1) == 0);
  CHECK(strcmp(quire_dtype_name(QUIRE_F16), "f16") == 0);
  CHECK(strcmp(quire_dtype_name(77), "unknown") == 0);
  CHECK(strcmp(quire_codec_name(0), "f32") == 0);
  for (i = 0; quire_codec_name(i) != NULL; ++i) CHECK(quire_codec_name(i)[0] != '\0');
  CHECK(i >= 6);
  CHECK(quire_codec_name(-1) == NULL);

  for (i = 0; quire_codec_preset(i) != NULL; ++i) {
    CHECK_OK(quire_codec_parse(quire_codec_preset(i), &key, &value));
    CHECK(strcmp(key, value) != 0);
  }
  CHECK(i == 4 && strcmp(quire_codec_preset(1), "balanced") == 0);
  CHECK(quire_codec_preset(-1) == NULL);
  CHECK_OK(quire_codec_parse("int8", &key, &value));
  CHECK(strcmp(key, "int8") == 0 && strcmp(value, "int8") == 0);
  CHECK_OK(quire_codec_parse("balanced", &key, &value));
  CHECK(strcmp(key, "dual4") == 0 && strcmp(value, "tq4") == 0);
  CHECK_FAILS(QUIRE_INVALID_SPEC, quire_codec_parse("f13", &key, &value));
  CHECK_TEXT("f32 f16 bf16");
  CHECK_TEXT("balanced");
  CHECK_FAILS(QUIRE_INVALID_SPEC, quire_codec_parse("dual3", &key, &value));
  CHECK_TEXT("write dual3/tq3");
  CHECK(strcmp(key, "dual4") == 0 && strcmp(value, "tq4") == 0);
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_codec_parse(NULL, &key, &value));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_codec_parse("int8", NULL, &value));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_codec_parse("int8", &key, NULL));

  CHECK_OK(quire_build_info(NULL, 0, &bytes));
  CHECK(bytes > 10 && bytes <= sizeof text);
  CHECK_OK(quire_build_info(text, bytes, &bytes));
  CHECK(strlen(text) + 1 == bytes);
  CHECK(text[0] == '{' && strstr(text, "\"isa_chosen\"") != NULL);
  bytes = 0;
  CHECK_FAILS(QUIRE_BUFFER_TOO_SMALL, quire_build_info(small, sizeof small, &bytes));
  CHECK(bytes == strlen(text) + 1 && strcmp(small, "abc") == 0);
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_build_info(NULL, 0, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_build_info(NULL, 8, &bytes));
}

static void test_views(void) {
  float data[24];
  const quire_tensor t = quire_tensor_dense(data, QUIRE_F32, 2, 3, 4, QUIRE_TOKEN_MAJOR);
  const quire_tensor h = quire_tensor_dense(data, QUIRE_F32, 2, 3, 4, QUIRE_HEAD_MAJOR);
  const quire_output o = quire_output_dense(data, 2, 3, 4, QUIRE_HEAD_MAJOR);
  CHECK(t.token_stride == 12 && t.head_stride == 4 && t.data == data);
  CHECK(h.token_stride == 4 && h.head_stride == 8);
  CHECK(o.token_stride == 4 && o.head_stride == 8 && o.data == data);
}

static void test_layer_helpers(void) {
  quire_layer_spec layer = QUIRE_LAYER_SPEC_INIT;
  CHECK_OK(quire_layer_spec_mha(&layer, 8, 64));
  CHECK(layer.kv_heads == 8 && layer.query_heads == 8 && layer.key_dim == 64);
  CHECK_OK(quire_layer_spec_gqa(&layer, 8, 2, 64));
  CHECK(layer.kv_heads == 2 && layer.query_heads == 8 && layer.value_dim == 64);
  CHECK_OK(quire_layer_spec_mqa(&layer, 8, 64));
  CHECK(layer.kv_heads == 1 && layer.mla == 0);
  CHECK_OK(quire_layer_spec_mla(&layer, 16, 32, 8));
  CHECK(layer.mla == 1 && layer.key_dim == 40 && layer.value_dim == 32 && layer.kv_heads == 1);
  CHECK(layer.rotation == QUIRE_ROTATION_ROPE && layer.rope.offset == 32 && layer.rope.size == 8);
  CHECK(layer.struct_size == sizeof layer);

  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_layer_spec_mha(NULL, 8, 64));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_layer_spec_mha(&layer, -8, 64));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_layer_spec_mla(&layer, 16, INT32_MAX, INT32_MAX));
  layer.struct_size = 0;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_layer_spec_gqa(&layer, 8, 2, 64));
  CHECK_TEXT("struct_size 0");
}

static void test_bad_specs(void) {
  quire_layer_spec layers[2] = {QUIRE_LAYER_SPEC_INIT, QUIRE_LAYER_SPEC_INIT};
  quire_cache_spec spec = QUIRE_CACHE_SPEC_INIT;
  const quire_executor no_run = QUIRE_EXECUTOR_INIT;
  const quire_memory_source no_allocate = QUIRE_MEMORY_SOURCE_INIT;
  quire_cache* cache = (quire_cache*)&spec;

  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_create(NULL, &cache));
  CHECK(cache == NULL);
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_create(&spec, NULL));
  CHECK_FAILS(QUIRE_INVALID_SPEC, quire_cache_create(&spec, &cache)); /* no layers */
  spec.layers = layers;
  spec.layer_count = 2;
  CHECK_FAILS(QUIRE_INVALID_SPEC, quire_cache_create(&spec, &cache)); /* no heads */
  layers[0] = layer_with_rope("f16");
  layers[1] = layer_with_rope("f13");
  CHECK_FAILS(QUIRE_INVALID_SPEC, quire_cache_create(&spec, &cache));
  CHECK_TEXT("f13");

  layers[1] = layer_with_rope("f16");
  layers[1].pattern.kind = 9;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_create(&spec, &cache));
  CHECK_TEXT("layer 1");
  layers[1].pattern.kind = QUIRE_CAUSAL;
  layers[1].row_type = 3;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_create(&spec, &cache));
  layers[1].row_type = QUIRE_ROW_TYPE_DEFAULT;
  layers[1].rotation = -1;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_create(&spec, &cache));
  layers[1].rotation = QUIRE_ROTATION_FUNCTION; /* without one */
  CHECK_FAILS(QUIRE_INVALID_SPEC, quire_cache_create(&spec, &cache));
  layers[1].rotation = QUIRE_ROTATION_NONE;
  layers[1].rope.pairs = 2;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_create(&spec, &cache));
  layers[1].rope.pairs = QUIRE_HALVES;
  layers[1].slope_count = 4; /* without slopes */
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_create(&spec, &cache));
  layers[1].slope_count = -1;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_create(&spec, &cache));
  layers[1].slope_count = 0;
  layers[1].struct_size = 64;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_create(&spec, &cache));
  CHECK_TEXT("layers[1]");
  layers[1].struct_size = sizeof layers[1];

  spec.page_tokens = 257;
  CHECK_FAILS(QUIRE_INVALID_SPEC, quire_cache_create(&spec, &cache));
  CHECK_TEXT("257");
  spec.page_tokens = 64;
  spec.max_tokens = -5;
  CHECK_FAILS(QUIRE_INVALID_SPEC, quire_cache_create(&spec, &cache));
  spec.max_tokens = 0;
  spec.layer_count = INT64_MAX;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_create(&spec, &cache));
  spec.layer_count = -1;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_create(&spec, &cache));
  spec.layer_count = 2;
  spec.repeat = 0;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_create(&spec, &cache));
  spec.repeat = INT64_MAX;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_create(&spec, &cache));
  spec.repeat = 1;
  spec.executor = &no_run;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_create(&spec, &cache));
  spec.executor = NULL;
  spec.memory = &no_allocate;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_create(&spec, &cache));
  CHECK(cache == NULL);
}

/* Structs of older and of newer headers. */
static void test_stamps(void) {
  struct {
    quire_cache_spec spec;
    int64_t unknown[2];
  } newer = {QUIRE_CACHE_SPEC_INIT, {0, 0}};
  struct {
    quire_stats stats;
    int64_t unknown;
  } newer_stats = {QUIRE_STATS_INIT, 77};
  const quire_layer_spec layer = layer_with_rope("f16");
  quire_cache_spec older = QUIRE_CACHE_SPEC_INIT;
  quire_cache_spec found = QUIRE_CACHE_SPEC_INIT;
  quire_stats older_stats = QUIRE_STATS_INIT;
  quire_cache* cache = NULL;

  newer.spec.layers = &layer;
  newer.spec.layer_count = 1;
  newer.spec.struct_size = sizeof newer;
  CHECK_OK(quire_cache_create(&newer.spec, &cache));
  newer_stats.stats.struct_size = sizeof newer_stats;
  CHECK_OK(quire_cache_stats(cache, &newer_stats.stats));
  CHECK(newer_stats.unknown == 0 && newer_stats.stats.struct_size == sizeof newer_stats);
  quire_cache_free(cache);
  newer.unknown[1] = 1;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_create(&newer.spec, &cache));
  newer.spec.struct_size = (size_t)-8;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_create(&newer.spec, &cache));

  older.layers = &layer;
  older.layer_count = 1;
  older.page_tokens = 32;
  older.rollback = 3;
  older.seed = 9;
  older.struct_size = offsetof(quire_cache_spec, rollback);
  CHECK_OK(quire_cache_create(&older, &cache));
  CHECK_OK(quire_cache_read_spec(cache, &found));
  CHECK(found.page_tokens == 32 && found.rollback == 8 && found.seed == 0);
  older_stats.struct_size = offsetof(quire_stats, bytes_sealed);
  older_stats.bytes_sealed = 77;
  CHECK_OK(quire_cache_stats(cache, &older_stats));
  CHECK(older_stats.bytes_sealed == 77 && older_stats.bytes_limit == SIZE_MAX);
  older_stats.struct_size = 4;
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_stats(cache, &older_stats));
  quire_cache_free(cache);
}

static void rotate(void* context, int layer, float* keys, int heads, int dim, int64_t from,
                   int64_t to) {
  (void)layer, (void)keys, (void)heads, (void)dim, (void)from, (void)to;
  ++*(int*)context;
}

static void test_read_back(void) {
  static const double factors[kDim / 2] = {1.0, 1.0, 2.0, 4.0};
  static const float slopes[kQueryHeads] = {0.5f, 0.25f, 0.125f, 0.0625f};
  static const float sinks[kQueryHeads] = {1.0f, 2.0f, 3.0f, 4.0f};
  int rotated = 0;
  quire_layer_spec layers[4] = {QUIRE_LAYER_SPEC_INIT, QUIRE_LAYER_SPEC_INIT, QUIRE_LAYER_SPEC_INIT,
                                QUIRE_LAYER_SPEC_INIT};
  quire_layer_spec layer = QUIRE_LAYER_SPEC_INIT;
  quire_layer_info info = QUIRE_LAYER_INFO_INIT;
  quire_cache_spec spec = QUIRE_CACHE_SPEC_INIT;
  quire_cache_spec found = QUIRE_CACHE_SPEC_INIT;
  quire_cache* cache = NULL;
  quire_sequence_id sequence;

  layers[0] = layer_with_rope("bf16");
  layers[0].rope.factors = factors;
  layers[0].rope.factor_count = kDim / 2;
  layers[0].has_scale = 1;
  layers[0].scale = 0.75f;
  layers[0].soft_cap = 30.0f;
  layers[0].sinks = sinks;
  layers[0].sink_count = kQueryHeads;
  layers[1] = layers[0];
  layers[1].kv_of = 0;
  layers[2] = layer_with_rope("int8");
  layers[2].rotation = QUIRE_ROTATION_FUNCTION;
  layers[2].rotate = rotate;
  layers[2].rotate_context = &rotated;
  layers[2].pattern.kind = QUIRE_WINDOW;
  layers[2].pattern.size = 8;
  layers[2].value_codec = NULL;
  layers[3] = layer_with_rope("f32");
  layers[3].rotation = QUIRE_ROTATION_NONE;
  layers[3].slopes = slopes;
  layers[3].slope_count = kQueryHeads;
  spec.layers = layers;
  spec.layer_count = 4;
  spec.page_tokens = 16;
  spec.max_tokens = 100;
  spec.max_sequences = 3;
  spec.max_batch = 50;
  spec.seed = 0x123456789abcdef0u;
  spec.memory_limit_bytes = (size_t)64 << 20;
  spec.exact_head = 1;
  spec.exact_tail = 2;
  spec.rollback = 4;
  CHECK_OK(quire_cache_create(&spec, &cache));

  CHECK_OK(quire_cache_read_spec(cache, &found));
  CHECK(found.layer_count == 4 && found.layers == NULL && found.repeat == 1);
  CHECK(found.page_tokens == 16 && found.max_tokens == 100 && found.max_sequences == 3);
  CHECK(found.max_batch == 50 && found.memory_limit_bytes == (size_t)64 << 20);
  CHECK(found.exact_head == 1 && found.exact_tail == 2 && found.rollback == 4);
  CHECK(found.executor == NULL && found.memory == NULL && found.threads == 1);
  CHECK(found.seed == 0x123456789abcdef0u);

  CHECK_OK(quire_cache_read_layer_spec(cache, 0, &layer));
  CHECK(layer.has_scale == 1 && layer.scale == 0.75f && layer.soft_cap == 30.0f);
  CHECK(layer.rope.factor_count == kDim / 2 && layer.rope.factors[3] == 4.0);
  CHECK(layer.sink_count == kQueryHeads && layer.sinks[3] == 4.0f && layer.sinks != sinks);
  CHECK(layer.kv_of == QUIRE_OWN_STORE && strcmp(layer.key_codec, "bf16") == 0);
  CHECK_OK(quire_cache_read_layer_spec(cache, 1, &layer));
  CHECK(layer.kv_of == 0);
  CHECK_OK(quire_cache_read_layer_spec(cache, 2, &layer));
  CHECK(layer.rotate == rotate && layer.rotate_context == &rotated);
  CHECK(layer.pattern.kind == QUIRE_WINDOW && layer.pattern.memory == 8);
  CHECK_OK(quire_cache_read_layer_spec(cache, 3, &layer));
  CHECK(layer.slope_count == kQueryHeads && layer.slopes[1] == 0.25f);
  CHECK_FAILS(QUIRE_OUT_OF_RANGE, quire_cache_read_layer_spec(cache, 4, &layer));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_read_layer_spec(cache, 0, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_read_spec(NULL, &found));

  CHECK_OK(quire_cache_layer_info(cache, 2, &info));
  CHECK(strcmp(info.key_codec, "int8") == 0 && strcmp(info.value_codec, "f16") == 0);
  CHECK(info.row_type == QUIRE_F16 && info.kv_of == 2 && info.row_bytes_per_token == 64);
  CHECK(near(info.scale, 0.35355339));
  CHECK_OK(quire_cache_layer_info(cache, 1, &info));
  CHECK(info.kv_of == 0 && info.row_type == QUIRE_BF16 && info.sealed_bytes_per_page == 0);
  CHECK_FAILS(QUIRE_OUT_OF_RANGE, quire_cache_layer_info(cache, -1, &info));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_layer_info(cache, 0, NULL));

  CHECK_OK(quire_sequence_open(cache, &sequence));
  CHECK_OK(quire_sequence_open(cache, &sequence));
  CHECK_OK(quire_sequence_open(cache, &sequence));
  CHECK_FAILS(QUIRE_FULL, quire_sequence_open(cache, &sequence));
  quire_cache_free(cache);
}

/* ---- The caller's executor and memory ---- */

typedef struct host_count {
  int64_t runs;
  int64_t blocks;
  int fails;
} host_count;

static void run_in_order(void* context, size_t count, quire_task_function task,
                         void* task_context) {
  size_t i;
  ++((host_count*)context)->runs;
  for (i = 0; i < count; ++i) task(task_context, i);
}

static void* allocate(void* context, size_t bytes) {
  host_count* count = (host_count*)context;
  char *block, *data;
  if (count->fails) return NULL;
  block = (char*)malloc(bytes + 64 + sizeof(void*));
  if (block == NULL) return NULL;
  ++count->blocks;
  data = block + sizeof(void*);
  data += (64 - (uintptr_t)data % 64) % 64;
  memcpy(data - sizeof(void*), &block, sizeof(void*));
  return data;
}

static void release(void* context, void* data, size_t bytes) {
  void* block;
  (void)bytes;
  --((host_count*)context)->blocks;
  memcpy(&block, (char*)data - sizeof(void*), sizeof(void*));
  free(block);
}

static void test_host(void) {
  const quire_layer_spec layer = layer_with_rope("int8");
  float q[kQueryHeads * kDim] = {0}, out[kQueryHeads * kDim];
  const quire_tensor query =
      quire_tensor_dense(q, QUIRE_F32, 1, kQueryHeads, kDim, QUIRE_TOKEN_MAJOR);
  const quire_output output = quire_output_dense(out, 1, kQueryHeads, kDim, QUIRE_TOKEN_MAJOR);
  host_count count = {0, 0, 0};
  quire_executor executor = QUIRE_EXECUTOR_INIT;
  quire_memory_source memory = QUIRE_MEMORY_SOURCE_INIT;
  quire_cache_spec spec = QUIRE_CACHE_SPEC_INIT;
  quire_cache_spec found = QUIRE_CACHE_SPEC_INIT;
  quire_cache *cache = NULL, *clone = NULL, *plain = NULL;
  quire_sequence_id sequence = 0;
  quire_token token = {0, 24, 0};
  quire_batch batch = QUIRE_BATCH_INIT;
  quire_step *step, *refused = NULL;

  executor.context = &count;
  executor.run = run_in_order;
  memory.context = &count;
  memory.allocate = allocate;
  memory.release = release;
  spec.layers = &layer;
  spec.layer_count = 1;
  spec.page_tokens = 16;
  spec.executor = &executor;
  spec.memory = &memory;
  CHECK_OK(quire_cache_create(&spec, &cache));
  CHECK_OK(quire_cache_read_spec(cache, &found));
  CHECK(found.executor != NULL && found.executor->context == &count);
  CHECK(found.memory != NULL && found.memory->release == release);

  CHECK_OK(quire_sequence_open(cache, &sequence));
  append(cache, sequence, 0, 24, 1);
  step = begin(cache, sequence, 24, 1);
  put_rows(step, 0, 24, 1);
  CHECK_OK(quire_step_attend(step, 0, &query, &output));
  quire_step_free(step);
  CHECK(count.blocks > 0 && count.runs > 0);

  batch.tokens = &token;
  batch.token_count = 1;
  CHECK_OK(quire_sequence_fork(cache, sequence, &token.sequence));
  CHECK_OK(quire_cache_shrink(cache, NULL));
  count.fails = 1;
  CHECK_FAILS(QUIRE_OUT_OF_MEMORY, quire_cache_begin(cache, &batch, &refused));
  CHECK(refused == NULL && length_of(cache, token.sequence) == 24);
  count.fails = 0;

  /* The executor and the memory serve as long as a clone, an assigned cache or a step lives. */
  CHECK_OK(quire_cache_clone(cache, &clone));
  plain = create(&layer, 1);
  CHECK_OK(quire_cache_assign(plain, cache));
  step = begin(cache, sequence, 24, 2);
  quire_cache_free(cache);
  CHECK(quire_step_is_open(step) == 0);
  append(clone, sequence, 24, 10, 1);
  append(plain, sequence, 24, 10, 1);
  quire_cache_free(clone);
  CHECK(length_of(plain, sequence) == 34);
  quire_cache_free(plain);
  quire_step_free(step);
  CHECK(count.blocks == 0);
}

/* ---- The cache as a whole ---- */

static void test_cache(void) {
  const quire_layer_spec layer = layer_with_rope("int8");
  quire_cache *cache = create(&layer, 2), *other = create(&layer, 2);
  quire_cache *clone = NULL, *none = cache;
  quire_stats stats = QUIRE_STATS_INIT;
  quire_sequence_id a = 0, b = 0, ids[4] = {0, 0, 0, 0};
  char text[16384];
  size_t bytes = 0, before;
  int64_t count = 0, pages = -1;
  int trimmed = -1;

  CHECK_OK(quire_sequence_open(cache, &a));
  CHECK_OK(quire_sequence_open(cache, &b));
  append(cache, a, 0, 100, 2);
  append(cache, b, 0, 20, 2);

  CHECK_OK(quire_cache_sequences(cache, NULL, 0, &count));
  CHECK(count == 2);
  CHECK_OK(quire_cache_sequences(cache, ids, 4, &count));
  CHECK(ids[0] == a && ids[1] == b && ids[2] == 0);
  CHECK_FAILS(QUIRE_BUFFER_TOO_SMALL, quire_cache_sequences(cache, ids, 1, &count));
  CHECK(count == 2);
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_sequences(cache, NULL, 4, &count));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_sequences(cache, ids, -1, &count));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_sequences(NULL, ids, 4, &count));

  CHECK_OK(quire_cache_stats(cache, &stats));
  CHECK(stats.sequences == 2 && stats.tokens == 120 && stats.open_steps == 0);
  CHECK(stats.bytes >= stats.bytes_sealed + stats.bytes_rows && stats.bytes_limit == SIZE_MAX);
  CHECK(stats.pages_used > 0 && stats.bits_per_value > 8.0 && stats.compression_ratio > 0.5);
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_stats(NULL, &stats));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_stats(cache, NULL));

  CHECK_OK(quire_cache_text(cache, NULL, 0, &bytes));
  CHECK(bytes > 1 && bytes <= sizeof text);
  CHECK_OK(quire_cache_text(cache, text, sizeof text, &bytes));
  CHECK(strlen(text) + 1 == bytes);
  CHECK_FAILS(QUIRE_BUFFER_TOO_SMALL, quire_cache_text(cache, text, bytes - 1, &bytes));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_text(NULL, text, sizeof text, &bytes));
  CHECK_OK(quire_cache_json(cache, text, sizeof text, NULL));
  CHECK(text[0] == '{');
  CHECK_FAILS(QUIRE_BUFFER_TOO_SMALL, quire_cache_json(cache, text, 2, &bytes));
  CHECK(bytes > 2);

  /* Clones and assignment. */
  CHECK_OK(quire_cache_clone(cache, &clone));
  append(clone, a, 100, 1, 2);
  CHECK(length_of(clone, a) == 101 && length_of(cache, a) == 100);
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_clone(cache, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_clone(NULL, &none));
  CHECK(none == NULL);
  CHECK_OK(quire_cache_assign(other, cache));
  CHECK(length_of(other, a) == 100);
  CHECK_OK(quire_cache_assign(other, clone));
  CHECK(length_of(other, a) == 101);
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_assign(other, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_assign(NULL, other));
  quire_cache_free(other);
  quire_cache_free(clone);

  /* Limits. */
  CHECK_OK(quire_cache_compact(cache, &pages));
  CHECK(pages >= 0);
  CHECK_OK(quire_cache_compact(cache, NULL));
  CHECK_OK(quire_cache_shrink(cache, &bytes));
  CHECK_OK(quire_cache_shrink(cache, NULL));
  CHECK_OK(quire_cache_stats(cache, &stats));
  before = stats.bytes;
  CHECK_OK(quire_cache_enforce_memory_limit(cache, before, &trimmed));
  CHECK(trimmed == 0 && length_of(cache, a) == 100);
  CHECK_OK(quire_cache_enforce_memory_limit(cache, before - before / 8, &trimmed));
  CHECK(trimmed == 1 && length_of(cache, a) < 100 && length_of(cache, b) == 20);
  CHECK_OK(quire_cache_stats(cache, &stats));
  CHECK(stats.bytes <= before - before / 8);
  CHECK_FAILS(QUIRE_OVER_LIMIT, quire_cache_enforce_memory_limit(cache, 1, &trimmed));
  CHECK_OK(quire_cache_resize(cache, 2 * before, &trimmed));
  CHECK(trimmed == 0);
  CHECK_OK(quire_cache_stats(cache, &stats));
  CHECK(stats.bytes_limit == 2 * before);
  CHECK_FAILS(QUIRE_OVER_LIMIT, quire_cache_resize(cache, 1, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_compact(NULL, &pages));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_shrink(NULL, NULL));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_resize(NULL, before, &trimmed));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_enforce_memory_limit(NULL, 1, &trimmed));

  CHECK_OK(quire_cache_clear(cache));
  CHECK_OK(quire_cache_sequences(cache, NULL, 0, &count));
  CHECK(count == 0);
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_find(cache, a));
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_clear(NULL));

  CHECK_OK(quire_sequence_open(cache, &a));
  CHECK_OK(quire_cache_close(cache));
  CHECK_FAILS(QUIRE_UNKNOWN_SEQUENCE, quire_sequence_find(cache, a));
  CHECK(quire_sequence_open(cache, &b) != QUIRE_OK);
  CHECK_FAILS(QUIRE_INVALID_ARGUMENT, quire_cache_close(NULL));
  quire_cache_free(cache);
  quire_cache_free(NULL);
}

int main(void) {
  test_names();
  test_views();
  test_layer_helpers();
  test_bad_specs();
  test_stamps();
  test_read_back();
  test_host();
  test_cache();
  return report("caches");
}
