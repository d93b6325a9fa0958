/* Quire's C ABI: a KV-cache engine for transformer inference.
 *
 * A cache holds the keys and values of many sequences. A step is one forward pass over a batch of
 * tokens, as a transaction:
 *
 *     quire_cache_create(&spec, &cache);
 *     quire_sequence_open(cache, &chat);
 *     quire_cache_begin(cache, &batch, &step);
 *     for (layer ...) {
 *       quire_step_put(step, layer, &k, &v);
 *       quire_step_attend(step, layer, &q, &out);
 *     }
 *     quire_step_commit(step, NULL, 0, NULL);
 *     quire_step_free(step);
 *     quire_cache_free(cache);
 *
 * Until commit nothing of the step can be seen outside it; a step that is dropped leaves no trace.
 * Sequences share pages, so a fork copies tables only. examples/decode.c is a whole program.
 *
 * Status. Functions return a quire_status, QUIRE_OK or an error; results go through pointers.
 * quire_last_error() has the text of the error: what was asked, what was found, what bounds it. An
 * error changes nothing in the cache. On failure results are left as they were, handles become
 * NULL, and counts of a buffer too small are set. A null pointer where one is needed, a number
 * that is none of its enumeration's and a negative count are QUIRE_INVALID_ARGUMENT. The library
 * never prints, aborts or exits, and no exception leaves it.
 *
 * Buffers. Whatever has no fixed size is written to the caller's buffer: a pointer, its capacity
 * and a pointer to the count. The count is what the whole result takes, also when the buffer was
 * too small (QUIRE_BUFFER_TOO_SMALL, nothing written). A null buffer with capacity 0 asks for the
 * count alone. Counts of text are bytes with the final zero.
 *
 * Structs that may grow begin with `struct_size` and are made with their QUIRE_..._INIT, which
 * stamps the size and sets the defaults. A program built against an older header hands in a
 * smaller struct: the members it does not know get their defaults. One built against a newer
 * header hands in a larger one: it is accepted when the members unknown here are zero. Structs
 * without `struct_size` never change. In an array the stamp of the first element counts for all.
 *
 * Points and ranges are positions, half-open; only keep_last, shift_left and lengths count tokens
 * held. Sizes are in bytes where they say so, otherwise in elements. A flag is 0 or 1.
 *
 * Threads. A cache may be used from any thread, freeing it excepted; one step by one thread at a
 * time; different steps, and reads, run in parallel. */
#ifndef QUIRE_QUIRE_H
#define QUIRE_QUIRE_H

#include <stddef.h>
#include <stdint.h>

#include "quire/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status ---------------------------------------------------------------------------------- */

/* Error numbers never change meaning. */
typedef int quire_status;
enum {
  QUIRE_OK = 0,
  QUIRE_INVALID_SPEC = 1,       /* a number or a combination in the spec is impossible */
  QUIRE_OUT_OF_RANGE = 2,       /* a layer, head, position or count outside what exists */
  QUIRE_MISMATCH = 3,           /* shape or dtype differs from the spec */
  QUIRE_NON_FINITE = 4,         /* a value that is not finite, or not in its row type or scale */
  QUIRE_UNKNOWN_SEQUENCE = 5,   /* no such sequence in this cache, or the cache was closed */
  QUIRE_DUPLICATE_POSITION = 6, /* the position is taken in its sequence */
  QUIRE_FULL = 7,               /* past max_tokens, max_sequences or max_batch */
  QUIRE_OVER_LIMIT = 8,         /* the byte limit does not allow it */
  QUIRE_NOT_SUPPORTED = 9,      /* the spec does not allow this operation */
  QUIRE_NOT_RESUMABLE = 10,     /* would need tokens that a window has evicted */
  QUIRE_BUSY = 11,              /* a step is open on the sequence */
  QUIRE_INTERNAL = 12,          /* a fault of Quire's own */
  QUIRE_OUT_OF_MEMORY = 13,     /* the memory source has no more, below the byte limit */
  QUIRE_WRONG_STATE = 14,       /* too early, too late or twice; any call on a finished step */
  QUIRE_BUFFER_TOO_SMALL = 15,  /* the count and the text name the size needed */
  QUIRE_INVALID_ARGUMENT = 16   /* null pointer, empty batch, reversed range, unknown number */
};

/* The text of this thread's last call that returned a status; empty when that was QUIRE_OK. Valid
 * until the next such call on this thread. Never null. */
QUIRE_API const char* quire_last_error(void);
/* "over_limit" for QUIRE_OVER_LIMIT; "unknown" for a number that is no status. */
QUIRE_API const char* quire_error_name(quire_status status);
/* "0.1.0" */
QUIRE_API const char* quire_version_string(void);
/* Version, commit, compiler, instruction sets found and chosen, and codecs, as one JSON object. */
QUIRE_API quire_status quire_build_info(char* buffer, size_t buffer_bytes, size_t* bytes);

/* ---- Tensors --------------------------------------------------------------------------------- */

/* Types of rows, of tensors handed in and of buffers written to. */
typedef int quire_dtype;
enum { QUIRE_F32 = 0, QUIRE_F16 = 1, QUIRE_BF16 = 2 };

/* [token][head][dim] in memory, or [head][token][dim]. */
typedef int quire_layout;
enum { QUIRE_TOKEN_MAJOR = 0, QUIRE_HEAD_MAJOR = 1 };

/* 4, 2, 2; 0 for a number that is no dtype. */
QUIRE_API size_t quire_dtype_bytes(quire_dtype dtype);
/* "f32", "f16", "bf16"; "unknown" for a number that is no dtype. */
QUIRE_API const char* quire_dtype_name(quire_dtype dtype);

/* The caller's K, V or Q, read only: element (t, h, c) is at data + t token_stride +
 * h head_stride + c, in elements. Channels are contiguous. */
typedef struct quire_tensor {
  const void* data;
  quire_dtype dtype;
  int64_t tokens;
  int64_t heads;
  int64_t dim;
  int64_t token_stride;
  int64_t head_stride;
} quire_tensor;

/* What attend fills: f32, strided in the same way. */
typedef struct quire_output {
  float* data;
  int64_t tokens;
  int64_t heads;
  int64_t dim;
  int64_t token_stride;
  int64_t head_stride;
} quire_output;

/* Views without gaps. Nothing is checked here, but where the view is used. */
QUIRE_API quire_tensor quire_tensor_dense(const void* data, quire_dtype dtype, int64_t tokens,
                                          int64_t heads, int64_t dim, quire_layout layout);
QUIRE_API quire_output quire_output_dense(float* data, int64_t tokens, int64_t heads, int64_t dim,
                                          quire_layout layout);

/* ---- Spec ------------------------------------------------------------------------------------ */

/* The visibility rule of a layer. Layers with equal patterns form a group and share pages.
 *   causal   everything up to the query
 *   window   `size` tokens with the query; `memory` >= size are kept (0: size), counting the
 *            query, so that a sequence can be cut back; the rest is evicted
 *   chunked  the query's own chunk of `size` positions, up to the query; nothing is evicted
 *   cross    entries of an encoder, seen whole by every query of their sequence */
typedef int quire_pattern_kind;
enum { QUIRE_CAUSAL = 0, QUIRE_WINDOW = 1, QUIRE_CHUNKED = 2, QUIRE_CROSS = 3 };
typedef struct quire_pattern {
  quire_pattern_kind kind;
  int64_t size;
  int64_t memory;
} quire_pattern;

/* Rotary embedding of the channels [offset, offset + size) of a key. Pair i turns by
 *   position * frequency_scale * base^(-2 i / size) / factors[i]
 * radians. The angle is linear in the position, so moved tokens need no new keys. */
typedef int quire_rope_pairs;
enum {
  QUIRE_HALVES = 0,     /* pair i = channels (i, i + size / 2): Llama in transformers, NeoX */
  QUIRE_INTERLEAVED = 1 /* pair i = channels (2 i, 2 i + 1): GPT-J, Llama in llama.cpp */
};
typedef struct quire_rope {
  quire_rope_pairs pairs;
  int offset;
  int size;               /* 0: the whole key */
  double base;            /* 10000 */
  double frequency_scale; /* 1; 1 / factor of linear scaling */
  const double* factors;  /* null, or size / 2 divisors (Llama 3, YaRN, LongRoPE) */
  int64_t factor_count;
} quire_rope;

/* What must happen to a layer's keys when their tokens move. */
typedef int quire_rotation;
enum {
  QUIRE_ROTATION_UNKNOWN = 0, /* removals that move tokens are QUIRE_NOT_SUPPORTED */
  QUIRE_ROTATION_NONE = 1,    /* keys hold no position (NoPE, ALiBi): nothing */
  QUIRE_ROTATION_ROPE = 2,    /* turned by `rope`, without touching a page */
  QUIRE_ROTATION_FUNCTION = 3 /* `rotate` makes new keys, so new pages */
};

/* Moves one token's keys, [heads][dim] in f32, from one position to another, in place. Called with
 * the cache locked: it must not call the cache. */
typedef void (*quire_rotate_function)(void* context, int layer, float* keys, int heads, int dim,
                                      int64_t from_position, int64_t to_position);

#define QUIRE_ROW_TYPE_DEFAULT (-1)
#define QUIRE_OWN_STORE (-1)

/* One layer. Everything a pointer leads to is copied by quire_cache_create. */
typedef struct quire_layer_spec {
  size_t struct_size;
  int kv_heads;
  int key_dim;
  int value_dim;
  int query_heads; /* 0: any multiple of kv_heads, as attend brings them */
  quire_pattern pattern;
  const char* key_codec;   /* a name (quire_codec_name, quire_codec_parse); null: "f16" */
  const char* value_codec; /* null: "f16"; the key's for an MLA layer, which has one codec */
  /* A quire_dtype, or QUIRE_ROW_TYPE_DEFAULT: f32 if a codec is f32 or if f16 and bf16 meet, else
   * bf16 if one is bf16, else f16. */
  int row_type;
  quire_rotation rotation;
  quire_rope rope;
  quire_rotate_function rotate;
  void* rotate_context;
  int has_scale; /* 0: logits are scaled by 1 / sqrt(key_dim) */
  float scale;
  float soft_cap;      /* 0: none; else logits become cap * tanh(logit / cap) */
  const float* slopes; /* ALiBi, one per query head: logit += slope * (key - query position) */
  int64_t slope_count;
  const float* sinks; /* one logit per query head that takes weight and gives no value */
  int64_t sink_count;
  /* Multi-head latent attention: one latent of value_dim channels followed by the rotary part is
   * stored as the key; values are its first value_dim channels and take no space of their own. */
  int mla;
  /* An earlier layer whose store this one reads, counted over all layers; such a layer takes no
   * put. QUIRE_OWN_STORE: none. */
  int kv_of;
} quire_layer_spec;

#define QUIRE_LAYER_SPEC_INIT                                                                     \
  {                                                                                               \
    sizeof(quire_layer_spec), 0, 0, 0, 0, {QUIRE_CAUSAL, 0, 0}, NULL, NULL,                       \
        QUIRE_ROW_TYPE_DEFAULT, QUIRE_ROTATION_UNKNOWN,                                           \
        {QUIRE_HALVES, 0, 0, 10000.0, 1.0, NULL, 0}, NULL, NULL, 0, 0.0f, 0.0f, NULL, 0, NULL, 0, \
        0, QUIRE_OWN_STORE                                                                        \
  }

/* Set the sizes of a layer that was made with QUIRE_LAYER_SPEC_INIT and leave the rest, except
 * that mla also sets `mla` and `rotation` (interleaved rotary at the end, as DeepSeek has it). */
QUIRE_API quire_status quire_layer_spec_mha(quire_layer_spec* layer, int heads, int head_dim);
QUIRE_API quire_status quire_layer_spec_gqa(quire_layer_spec* layer, int query_heads, int kv_heads,
                                            int head_dim);
QUIRE_API quire_status quire_layer_spec_mqa(quire_layer_spec* layer, int query_heads, int head_dim);
QUIRE_API quire_status quire_layer_spec_mla(quire_layer_spec* layer, int query_heads,
                                            int latent_dim, int rope_dim);

/* How full pages are encoded. The codecs by name, from index 0 on; null at and past the end:
 *   f32 f16 bf16             the numbers as they are, rounded to that type
 *   fp8_e4m3 fp8_e5m2 int8   8 bits
 *   tq6 tq5 tq4 tq3 tq2      rotated, then each channel to one of 2^n levels; a scale per token
 *   dual6 dual5 dual4 dual3  keys only: rotated, a scale per token and a range per channel
 *   q8_0 q4_0                the blocks of llama.cpp, for exchange */
QUIRE_API const char* quire_codec_name(int index);
/* Names for pairs of codecs that go well together, from the most exact to the smallest; null at and
 * past the end: safe dual6/tq5, balanced dual4/tq4, small dual4/tq3, tiny dual3/tq3. */
QUIRE_API const char* quire_codec_preset(int index);
/* The codecs that a text names: a preset ("balanced"), one codec for both sides ("int8"), or a
 * codec for keys and one for values ("dual4/tq4"). Anything else is QUIRE_INVALID_SPEC, with the
 * names there are. What is written lives as long as the library, so it may go into a layer's spec:
 *
 *     quire_codec_parse("balanced", &layer.key_codec, &layer.value_codec) */
QUIRE_API quire_status quire_codec_parse(const char* text, const char** key_codec,
                                         const char** value_codec);

/* Who runs the parallel parts of put and attend. Give your own to use an engine's thread pool.
 * `run` calls task(task_context, i) for i = 0 .. count - 1, each once, on any threads, and returns
 * when all are done. Tasks do not depend on each other. Several threads call `run` at once. Some
 * tasks take long and some nothing: give each thread the next one when it is done with its last. */
typedef void (*quire_task_function)(void* task_context, size_t index);
typedef struct quire_executor {
  size_t struct_size;
  void* context;
  void (*run)(void* context, size_t count, quire_task_function task, void* task_context);
} quire_executor;
#define QUIRE_EXECUTOR_INIT \
  { sizeof(quire_executor), NULL, NULL }

/* Where a cache's memory comes from. `allocate` answers at least `bytes` bytes aligned to 64, or
 * null; `release` gets back what allocate gave, with the same size. They are called from any
 * thread, one call at a time. */
typedef struct quire_memory_source {
  size_t struct_size;
  void* context;
  void* (*allocate)(void* context, size_t bytes);
  void (*release)(void* context, void* data, size_t bytes);
} quire_memory_source;
#define QUIRE_MEMORY_SOURCE_INIT \
  { sizeof(quire_memory_source), NULL, NULL, NULL }

/* What a cache stores and how. The layers are the array, `repeat` times over: one layer repeated
 * 30 times, or five windows and a global layer repeated 8 times. */
typedef struct quire_cache_spec {
  size_t struct_size;
  const quire_layer_spec* layers;
  int64_t layer_count;
  int64_t repeat;            /* 1 */
  int page_tokens;           /* 64; from 1 to 256 */
  int equal_positions;       /* flag: neighbours may share a position (multi-axis rotary) */
  int64_t exact_head;        /* 0; first tokens kept as rows for ever, rounded up to a page */
  int64_t exact_tail;        /* 0; tokens before a query's own page that it reads as rows */
  int64_t rollback;          /* 8; last tokens that can be undone exactly, whatever the codec */
  int64_t max_tokens;        /* held per sequence; 0: no limit */
  int64_t max_sequences;     /* open at once; 0: no limit */
  int64_t max_batch;         /* tokens per step; 0: no limit */
  size_t memory_limit_bytes; /* 0: no limit */
  int threads;               /* 1; of the built-in executor; 0: one per usable core */
  /* Null, or the caller's own. The structs are copied; their contexts must outlive the cache, its
   * clones and its steps. */
  const quire_executor* executor;
  const quire_memory_source* memory;
  uint64_t seed; /* 0; of the random signs of codecs that rotate (tq, dual) */
} quire_cache_spec;

#define QUIRE_CACHE_SPEC_INIT \
  { sizeof(quire_cache_spec), NULL, 0, 1, 64, 0, 0, 0, 8, 0, 0, 0, 0, 1, NULL, NULL, 0 }

/* ---- Cache ----------------------------------------------------------------------------------- */

typedef struct quire_cache quire_cache;

/* Names a sequence within its cache and the cache's clones. Never reused. */
typedef uint64_t quire_sequence_id;

/* Checks the spec and makes an empty cache. An impossible spec is refused with a text that names
 * the layer and the number. */
QUIRE_API quire_status quire_cache_create(const quire_cache_spec* spec, quire_cache** cache);
/* Closes the cache and frees the handle. Steps of it are dropped; their handles stay valid. */
QUIRE_API void quire_cache_free(quire_cache* cache);
/* Drops open steps and all sequences; every later call answers an error. Free it still. */
QUIRE_API quire_status quire_cache_close(quire_cache* cache);

/* The spec as the cache was made of it: `layer_count` is the number of all layers, `layers` null,
 * `repeat` 1. Pointers in it are valid until the cache is assigned to or freed. */
QUIRE_API quire_status quire_cache_read_spec(const quire_cache* cache, quire_cache_spec* spec);
QUIRE_API quire_status quire_cache_read_layer_spec(const quire_cache* cache, int layer,
                                                   quire_layer_spec* spec);

/* What the cache made of a layer's spec. */
typedef struct quire_layer_info {
  size_t struct_size;
  int group; /* layers of one group share a page table */
  quire_dtype row_type;
  quire_pattern pattern;
  char key_codec[16];
  char value_codec[16];
  float scale;
  int kv_of;                    /* itself, or the layer whose store it reads */
  size_t row_bytes_per_token;   /* open, keys and values, all heads */
  size_t sealed_bytes_per_page; /* 0 for a layer that reads another's store */
} quire_layer_info;
#define QUIRE_LAYER_INFO_INIT \
  { sizeof(quire_layer_info), 0, 0, {0, 0, 0}, {0}, {0}, 0.0f, 0, 0, 0 }
QUIRE_API quire_status quire_cache_layer_info(const quire_cache* cache, int layer,
                                              quire_layer_info* info);

typedef struct quire_stats {
  size_t struct_size;
  size_t bytes;        /* true bytes: all that follows, free blocks included */
  size_t bytes_limit;  /* SIZE_MAX: none */
  size_t bytes_sealed; /* codes of sealed pages in use */
  size_t bytes_rows;   /* rows of open pages, exact regions and open steps */
  size_t bytes_tables; /* page headers, run tables, sequences, open steps */
  size_t bytes_free;   /* kept for reuse; shrink gives them back */
  int64_t pages_total; /* used and free */
  int64_t pages_used;
  int64_t pages_free;
  int64_t pages_shared; /* seen by more than one sequence */
  int64_t sequences;
  int64_t open_steps;
  int64_t tokens;           /* held, each sequence counted for itself */
  double bits_per_value;    /* of the pages that sequences hold, each counted once; 0: none */
  double compression_ratio; /* 16 / bits_per_value: against plain f16 */
} quire_stats;
#define QUIRE_STATS_INIT \
  { sizeof(quire_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0 }
QUIRE_API quire_status quire_cache_stats(const quire_cache* cache, quire_stats* stats);

/* Spec, sequences and stats: as text for people, as JSON for programs. */
QUIRE_API quire_status quire_cache_text(const quire_cache* cache, char* buffer, size_t buffer_bytes,
                                        size_t* bytes);
QUIRE_API quire_status quire_cache_json(const quire_cache* cache, char* buffer, size_t buffer_bytes,
                                        size_t* bytes);

/* The ids of the sequences, in the order they were opened. */
QUIRE_API quire_status quire_cache_sequences(const quire_cache* cache, quire_sequence_id* ids,
                                             int64_t capacity, int64_t* count);

/* Drops all sequences; QUIRE_BUSY while a step is open. */
QUIRE_API quire_status quire_cache_clear(quire_cache* cache);
/* A cache of its own with the same sequences under the same ids. Pages, and with them the byte
 * limit, are shared between clones. Cost: tables only. */
QUIRE_API quire_status quire_cache_clone(const quire_cache* cache, quire_cache** clone);
/* Makes `cache` a clone of `other`. Refused while a step is open on `cache`. */
QUIRE_API quire_status quire_cache_assign(quire_cache* cache, const quire_cache* other);
/* Moves tokens of sparsely used pages together; `pages`, which may be null, gets the number of
 * pages given back. */
QUIRE_API quire_status quire_cache_compact(quire_cache* cache, int64_t* pages);
/* Cuts the longest sequence to three quarters, oldest first, until true bytes are at most `bytes`.
 * An error, and no change, when an empty cache would not fit. `trimmed`, which may be null, gets
 * whether it cut. */
QUIRE_API quire_status quire_cache_enforce_memory_limit(quire_cache* cache, size_t bytes,
                                                        int* trimmed);
/* Makes `bytes` the limit, cutting the same way where needed. */
QUIRE_API quire_status quire_cache_resize(quire_cache* cache, size_t bytes, int* trimmed);
/* Gives free memory back to the system; `bytes`, which may be null, gets how much. */
QUIRE_API quire_status quire_cache_shrink(quire_cache* cache, size_t* bytes);

/* ---- Sequences ------------------------------------------------------------------------------- */

/* One token. `key` names its content (a token id, a digest of an image patch); 0: not to be shared
 * by content. */
typedef struct quire_token {
  quire_sequence_id sequence;
  int64_t position;
  uint64_t key;
} quire_token;

/* What a trimming call did. Where a function takes one it may be null. */
typedef struct quire_cut {
  int removed; /* flag */
  int64_t at;  /* below the point asked for when that lay inside a span, else the point itself */
} quire_cut;

QUIRE_API quire_status quire_sequence_open(quire_cache* cache, quire_sequence_id* sequence);
/* QUIRE_OK when the cache has the sequence, else QUIRE_UNKNOWN_SEQUENCE, as from every call. */
QUIRE_API quire_status quire_sequence_find(const quire_cache* cache, quire_sequence_id sequence);
QUIRE_API quire_status quire_sequence_close(quire_cache* cache, quire_sequence_id sequence);

/* A new sequence with the same tokens, or with those below `position`; shares every page. `at`,
 * which may be null, gets where the fork fell: lower than asked when that lay inside a span. */
QUIRE_API quire_status quire_sequence_fork(quire_cache* cache, quire_sequence_id sequence,
                                           quire_sequence_id* child);
QUIRE_API quire_status quire_sequence_fork_at(quire_cache* cache, quire_sequence_id sequence,
                                              int64_t position, quire_sequence_id* child,
                                              int64_t* at);
/* `target` then holds exactly the tokens of `source` below `position`, shared. */
QUIRE_API quire_status quire_sequence_copy_prefix(quire_cache* cache, quire_sequence_id source,
                                                  quire_sequence_id target, int64_t position,
                                                  quire_cut* cut);
/* Keeps the tokens below `position`; beyond the end nothing changes. */
QUIRE_API quire_status quire_sequence_truncate(quire_cache* cache, quire_sequence_id sequence,
                                               int64_t position, quire_cut* cut);
/* Keeps the last `count` tokens where they are. */
QUIRE_API quire_status quire_sequence_keep_last(quire_cache* cache, quire_sequence_id sequence,
                                                int64_t count, quire_cut* cut);
/* Drops the first `count` tokens and moves the rest down. */
QUIRE_API quire_status quire_sequence_shift_left(quire_cache* cache, quire_sequence_id sequence,
                                                 int64_t count, quire_cut* cut);
/* Removes [begin, end); later tokens move down by end - begin, or stay when `leave_gap`. */
QUIRE_API quire_status quire_sequence_remove(quire_cache* cache, quire_sequence_id sequence,
                                             int64_t begin, int64_t end, int leave_gap,
                                             quire_cut* cut);
/* Replaces one stored token of one layer; sequences that share the page keep the old one. Codecs
 * that look at a whole page (dual) encode it again: where its rows are gone, from what it decodes
 * to, so that the other tokens lose a little each time. The tensors have one token; `value` is null
 * for an MLA layer. */
QUIRE_API quire_status quire_sequence_overwrite(quire_cache* cache, quire_sequence_id sequence,
                                                int layer, int64_t position,
                                                const quire_tensor* key, const quire_tensor* value);

/* Tokens held: by the layers that hold most, or by one layer (entries, for a cross layer). */
QUIRE_API quire_status quire_sequence_length(const quire_cache* cache, quire_sequence_id sequence,
                                             int64_t* length);
QUIRE_API quire_status quire_sequence_layer_length(const quire_cache* cache,
                                                   quire_sequence_id sequence, int layer,
                                                   int64_t* length);
/* The oldest token's position; QUIRE_OUT_OF_RANGE when the sequence is empty. */
QUIRE_API quire_status quire_sequence_first_position(const quire_cache* cache,
                                                     quire_sequence_id sequence, int64_t* position);
QUIRE_API quire_status quire_sequence_layer_first_position(const quire_cache* cache,
                                                           quire_sequence_id sequence, int layer,
                                                           int64_t* position);
/* The last token's position + 1; 0 when the sequence is empty. */
QUIRE_API quire_status quire_sequence_next_position(const quire_cache* cache,
                                                    quire_sequence_id sequence, int64_t* position);
/* Tokens that max_tokens still allows; INT64_MAX without that limit. */
QUIRE_API quire_status quire_sequence_remaining(const quire_cache* cache,
                                                quire_sequence_id sequence, int64_t* tokens);
QUIRE_API quire_status quire_sequence_is_full(const quire_cache* cache, quire_sequence_id sequence,
                                              int* is_full);
QUIRE_API quire_status quire_sequence_is_empty(const quire_cache* cache, quire_sequence_id sequence,
                                               int* is_empty);
QUIRE_API quire_status quire_sequence_has_cross(const quire_cache* cache,
                                                quire_sequence_id sequence, int* has_cross);
/* Whether what every query gets depends on its place in the history alone, bit for bit: false
 * after a coded cut, or a removal inside the history. */
QUIRE_API quire_status quire_sequence_is_exact(const quire_cache* cache, quire_sequence_id sequence,
                                               int* is_exact);

/* Whether tokens could be appended at `position` after a cut there, and how they would read. */
typedef int quire_resume;
enum { QUIRE_RESUME_NO = 0, QUIRE_RESUME_CODED = 1, QUIRE_RESUME_EXACT = 2 };
QUIRE_API quire_status quire_sequence_can_resume(const quire_cache* cache,
                                                 quire_sequence_id sequence, int64_t position,
                                                 quire_resume* resume);
/* The tokens held, in order. */
QUIRE_API quire_status quire_sequence_tokens(const quire_cache* cache, quire_sequence_id sequence,
                                             quire_token* tokens, int64_t capacity, int64_t* count);

/* ---- Reading back ---------------------------------------------------------------------------- */

typedef int quire_side;
enum { QUIRE_KEY = 0, QUIRE_VALUE = 1 };
#define QUIRE_ALL_HEADS (-1)

/* Decoded rows of positions [begin, end), [token][head][dim] in f32, or [token][dim] of one head.
 * `tokens` and `elements`, which may be null, get how many that is. */
QUIRE_API quire_status quire_sequence_read(const quire_cache* cache, quire_sequence_id sequence,
                                           int layer, quire_side side, int64_t begin, int64_t end,
                                           int head, float* out, int64_t out_elements,
                                           int64_t* tokens, int64_t* elements);
/* Calls `function` per token, in order: its position and its row, [head][dim] in f32, valid during
 * the call. The function must not call the cache. */
typedef void (*quire_row_function)(void* context, int64_t position, const float* row);
QUIRE_API quire_status quire_sequence_for_each(const quire_cache* cache, quire_sequence_id sequence,
                                               int layer, quire_side side,
                                               quire_row_function function, void* context);

/* How gather writes. For one sequence the shape is [token][head][dim] or [head][token][dim]; for
 * several it is [sequence][head][token][dim] (head major only), each padded with zeros to the
 * longest. Numbers that `dtype` does not hold become the largest that it does. Where a function
 * takes one, null means the defaults. */
typedef struct quire_gather_format {
  size_t struct_size;
  quire_dtype dtype;
  quire_layout layout;
  int transpose_values;  /* flag: head-major values become [head][dim][token] */
  int64_t pad_tokens_to; /* 1; columns are rounded up to a multiple of this */
} quire_gather_format;
#define QUIRE_GATHER_FORMAT_INIT \
  { sizeof(quire_gather_format), QUIRE_F32, QUIRE_TOKEN_MAJOR, 0, 1 }

/* What gather wrote, or would write. */
typedef struct quire_gathered {
  size_t struct_size;
  int64_t columns;        /* the padded width */
  int64_t key_elements;   /* of the whole key buffer */
  int64_t value_elements; /* of the whole value buffer */
  /* Set by the caller: null, or room for one number per sequence asked for. */
  int64_t* lengths;         /* true ones */
  int64_t* first_positions; /* of column 0; -1 when empty */
} quire_gathered;
#define QUIRE_GATHERED_INIT \
  { sizeof(quire_gathered), 0, 0, 0, NULL, NULL }

/* Copies what a sequence holds of a layer into contiguous buffers, oldest first. A buffer may be
 * null when that side is not wanted. `gathered` may be null in gather; when a buffer is too small
 * it holds the sizes needed. */
QUIRE_API quire_status quire_sequence_gather_size(const quire_cache* cache,
                                                  quire_sequence_id sequence, int layer,
                                                  const quire_gather_format* format,
                                                  quire_gathered* gathered);
QUIRE_API quire_status quire_sequence_gather(const quire_cache* cache, quire_sequence_id sequence,
                                             int layer, const quire_gather_format* format,
                                             void* keys, int64_t key_elements, void* values,
                                             int64_t value_elements, quire_gathered* gathered);

/* The same for several sequences at once. */
QUIRE_API quire_status quire_cache_gather_size(const quire_cache* cache, int layer,
                                               const quire_sequence_id* sequences,
                                               int64_t sequence_count,
                                               const quire_gather_format* format,
                                               quire_gathered* gathered);
QUIRE_API quire_status quire_cache_gather(const quire_cache* cache, int layer,
                                          const quire_sequence_id* sequences,
                                          int64_t sequence_count, const quire_gather_format* format,
                                          void* keys, int64_t key_elements, void* values,
                                          int64_t value_elements, quire_gathered* gathered);

/* Bytes of one side and head of a page as one sequence sees them. `layout` says how to read them
 * (docs/format.md): "rows/f16" and the like for rows, "tiles/int8" for sealed codes. */
typedef struct quire_run {
  char layout[32];
  quire_side side;
  int head;
  const void* data;
  size_t data_bytes;
  const void* scales; /* null where the codec has none */
  size_t scale_bytes;
  int page_slots; /* of a whole page: the bytes are laid out for them */
  int first_slot; /* the slots this run shows: [first_slot, last_slot) */
  int last_slot;
  int64_t first_position;   /* of first_slot */
  int64_t turn;             /* positions minus those the keys were rotated for */
  const int64_t* positions; /* of all slots shown, in the caller's buffer; null without one */
} quire_run;

/* Lends views of the bytes themselves, valid until the sequence changes, another step commits or
 * the cache is compacted or cut to a limit. The positions of all runs go to a second buffer; null
 * with capacity 0 when they are not wanted. The counts may be null. */
QUIRE_API quire_status quire_sequence_runs(const quire_cache* cache, quire_sequence_id sequence,
                                           int layer, quire_run* runs, int64_t run_capacity,
                                           int64_t* run_count, int64_t* positions,
                                           int64_t position_capacity, int64_t* position_count);

/* ---- Steps ----------------------------------------------------------------------------------- */

typedef struct quire_step quire_step;

/* Tokens of `sequence` at positions [begin, end), all in this batch, that see each other
 * regardless of order. No later cut falls inside: it moves down to `begin`. */
typedef struct quire_span {
  quire_sequence_id sequence;
  int64_t begin;
  int64_t end;
} quire_span;

/* An encoder's output for the cross layers of `sequence`: `length` entries, put in this step. It
 * lives until a token at positions [owner_begin, owner_end) is cut or removed. */
typedef struct quire_cross_entry {
  quire_sequence_id sequence;
  int64_t length;
  int64_t owner_begin;
  int64_t owner_end;
} quire_cross_entry;

/* The tokens of one step. Tokens of several sequences may be mixed in any order; row i of every
 * tensor of the step belongs to tokens[i]. */
typedef struct quire_batch {
  size_t struct_size;
  const quire_token* tokens;
  int64_t token_count;
  const quire_span* spans;
  int64_t span_count;
  const quire_cross_entry* cross;
  int64_t cross_count;
} quire_batch;
#define QUIRE_BATCH_INIT \
  { sizeof(quire_batch), NULL, 0, NULL, 0, NULL, 0 }

/* Writes `count` tokens of a sequence at first_position, first_position + 1, ... with `keys`, or
 * with key 0 when that is null. */
QUIRE_API quire_status quire_token_fill(quire_token* tokens, int64_t count,
                                        quire_sequence_id sequence, int64_t first_position,
                                        const uint64_t* keys);

/* What a begin of a batch would take. */
typedef struct quire_plan {
  size_t struct_size;
  int64_t pages;       /* begun or copied */
  size_t bytes_rows;   /* rows held until commit */
  size_t bytes_sealed; /* codes of the pages that fill */
  size_t bytes;        /* both, with the pages' headers */
  size_t gather_bytes; /* largest K or V of one layer, all sequences, in f32 */
  size_t mask_bytes;   /* largest mask of one layer, in f32 */
} quire_plan;
#define QUIRE_PLAN_INIT \
  { sizeof(quire_plan), 0, 0, 0, 0, 0, 0 }
/* Changes nothing. */
QUIRE_API quire_status quire_cache_plan(const quire_cache* cache, const quire_batch* batch,
                                        quire_plan* plan);

/* The largest batch that reserve prepares for. */
typedef struct quire_batch_size {
  size_t struct_size;
  int64_t sequences;
  int64_t tokens;
  int64_t cross_entries; /* sequences that bring a cross entry */
  int64_t cross_tokens;  /* their lengths added up */
} quire_batch_size;
#define QUIRE_BATCH_SIZE_INIT \
  { sizeof(quire_batch_size), 1, 1, 0, 0 }
/* Holds memory so that the next begin of at most this size allocates none from the source. */
QUIRE_API quire_status quire_cache_reserve(quire_cache* cache, const quire_batch_size* size);

/* Opens a step: takes all that the batch needs, or fails. While it is open its sequences refuse
 * another step and every cut (QUIRE_BUSY); fork takes what was committed. */
QUIRE_API quire_status quire_cache_begin(quire_cache* cache, const quire_batch* batch,
                                         quire_step** step);
/* Drops the step if it is open and frees the handle; also after its cache was freed. */
QUIRE_API void quire_step_free(quire_step* step);
QUIRE_API quire_status quire_step_drop(quire_step* step);
/* 1 until commit or drop, of the step or of its cache; 0 for null. */
QUIRE_API int quire_step_is_open(const quire_step* step);
/* Tokens of the batch; 0 for null and when the step is over. */
QUIRE_API int64_t quire_step_tokens(const quire_step* step);

/* Stores the rows of all batch tokens of one layer, all heads at once. Layers come in any order,
 * each once. Refused whole when a value does not fit: the step is then as it was. For a cross
 * layer the rows are those of the batch's cross entries, in order. An MLA layer takes put_latent:
 * the latent with its rotary part. */
QUIRE_API quire_status quire_step_put(quire_step* step, int layer, const quire_tensor* keys,
                                      const quire_tensor* values);
QUIRE_API quire_status quire_step_put_latent(quire_step* step, int layer,
                                             const quire_tensor* latent);

/* out[t][h] = softmax(q K) V over what token t sees, the step's own tokens included. `q` is
 * [tokens][query heads][key_dim], `out` [tokens][query heads][value_dim]. A query that sees
 * nothing gets zeros. Requires: the layer, or the one it reads, was put (a cross layer need not);
 * rows of `out` overlap neither each other nor `q`. After out of memory `out` holds anything. */
QUIRE_API quire_status quire_step_attend(quire_step* step, int layer, const quire_tensor* q,
                                         const quire_output* out);

/* Scaled, capped and biased logits, or probabilities: [tokens][query heads][columns], with the
 * columns of mask_columns without padding; -inf, or 0, where a query does not see. `elements`,
 * which may be null, gets the size of all. */
QUIRE_API quire_status quire_step_scores(quire_step* step, int layer, const quire_tensor* q,
                                         float* out, int64_t out_elements, int64_t* elements);
QUIRE_API quire_status quire_step_probabilities(quire_step* step, int layer, const quire_tensor* q,
                                                float* out, int64_t out_elements,
                                                int64_t* elements);

/* Batch tokens that from now on also see every later token of their sequence in this batch;
 * replaces the list before, ends with the step. */
QUIRE_API quire_status quire_step_set_exceptions(quire_step* step, const int64_t* token_indices,
                                                 int64_t count);

/* What the step's queries see of a layer, in the order of `sequences`; otherwise as for one
 * sequence. */
QUIRE_API quire_status quire_step_gather_size(const quire_step* step, int layer,
                                              const quire_sequence_id* sequences,
                                              int64_t sequence_count,
                                              const quire_gather_format* format,
                                              quire_gathered* gathered);
QUIRE_API quire_status quire_step_gather(const quire_step* step, int layer,
                                         const quire_sequence_id* sequences, int64_t sequence_count,
                                         const quire_gather_format* format, void* keys,
                                         int64_t key_elements, void* values, int64_t value_elements,
                                         quire_gathered* gathered);
/* 0 where token t sees column j of its own sequence's gather, -inf elsewhere: [tokens][columns] in
 * f32 or f16, columns padded like gather's. `columns` is set also when the buffer is too small,
 * and may be null in mask. */
QUIRE_API quire_status quire_step_mask_columns(const quire_step* step, int layer,
                                               int64_t pad_tokens_to, int64_t* columns);
QUIRE_API quire_status quire_step_mask(const quire_step* step, int layer, quire_dtype dtype,
                                       int64_t pad_tokens_to, void* out, int64_t out_elements,
                                       int64_t* columns);
/* As quire_sequence_runs; valid until the step ends. */
QUIRE_API quire_status quire_step_runs(const quire_step* step, int layer,
                                       quire_sequence_id sequence, quire_run* runs,
                                       int64_t run_capacity, int64_t* run_count, int64_t* positions,
                                       int64_t position_capacity, int64_t* position_count);

/* What a commit took of one sequence, in the order the sequences first appear in the batch. */
typedef struct quire_committed {
  quire_sequence_id sequence;
  int64_t tokens; /* fewer than asked when the cut would have split a span */
} quire_committed;

/* Takes all tokens, or the first tokens_per_sequence[i] of each sequence (in the order the
 * sequences first appear). Refused, and the step still open, when a layer was not put or the
 * buffer is too small; a null buffer with capacity 0 commits without a report. `count` may be
 * null. */
QUIRE_API quire_status quire_step_commit(quire_step* step, quire_committed* committed,
                                         int64_t capacity, int64_t* count);
QUIRE_API quire_status quire_step_commit_first(quire_step* step, const int64_t* tokens_per_sequence,
                                               int64_t sequence_count, quire_committed* committed,
                                               int64_t capacity, int64_t* count);

/* ---- States ---------------------------------------------------------------------------------- */

/* An attention in progress. For the scaled, capped and biased logits s (times log2 e) seen so far
 * and their values v:
 *     m = max s      l = sum 2^(s - m)      o = sum 2^(s - m) v      (o in f32, not divided)
 * Nothing seen is (o = 0, m = -inf, l = 0). States of disjoint parts of a history merge into the
 * state of the whole. Dense: o is [token][head][dim], m and l are [token][head]. */
typedef struct quire_state {
  float* o;
  float* m;
  float* l;
  int64_t tokens;
  int64_t heads;
  int64_t dim;
} quire_state;

/* attend before the division. Sinks are left to finish. */
QUIRE_API quire_status quire_step_attend_state(quire_step* step, int layer, const quire_tensor* q,
                                               const quire_state* state);
/* Makes all states empty. */
QUIRE_API quire_status quire_state_clear(const quire_state* state);
/* Merges `other` into `state`; their shapes are equal. Empty states change nothing. */
QUIRE_API quire_status quire_state_merge(const quire_state* state, const quire_state* other);
/* out = o / (l + 2^(sink log2 e - m)), [token][head][dim]; zeros where nothing was seen. `sinks`
 * are natural logits, one per head, or null for none. `out` may be the state's o. */
QUIRE_API quire_status quire_state_finish(const quire_state* state, const float* sinks, float* out);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* QUIRE_QUIRE_H */
