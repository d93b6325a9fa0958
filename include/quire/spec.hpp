// A CacheSpec says what a cache stores and how: layers, patterns, codecs, pages and limits.
//
// Specs are plain data. Cache::create checks them once and refuses an impossible one with a text
// that names the layer and the number; after that they never change.
//
// Sizes are in bytes and say so; ranges are half-open; a window of size W shows W tokens
// including the query itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/export.h"
#include "quire/result.hpp"

namespace quire {

class Executor;      // quire/executor.hpp
class MemorySource;  // quire/memory.hpp

inline constexpr std::size_t KiB = std::size_t{1} << 10;
inline constexpr std::size_t MiB = std::size_t{1} << 20;
inline constexpr std::size_t GiB = std::size_t{1} << 30;

// Types of rows, of tensors handed in and of buffers written to.
enum class DType : int { f32 = 0, f16 = 1, bf16 = 2 };

QUIRE_API std::size_t bytes_of(DType dtype) noexcept;  // 4, 2, 2
QUIRE_API const char* name_of(DType dtype) noexcept;   // "f32", "f16", "bf16"

// The visibility rule of a layer. Layers with equal patterns form a group and share pages.
struct Pattern {
  enum class Kind : int { causal = 0, window = 1, chunked = 2, cross = 3 };

  Kind kind = Kind::causal;
  std::int64_t size = 0;    // window: W; chunked: tokens per chunk
  std::int64_t memory = 0;  // window: M >= W, tokens kept counting the query

  static Pattern causal() { return {}; }
  // A query sees W tokens with itself; M tokens are kept, so that a sequence can be cut back.
  static Pattern window(std::int64_t w) { return {Kind::window, w, w}; }
  static Pattern window(std::int64_t w, std::int64_t m) { return {Kind::window, w, m}; }
  // A query sees its own chunk of `size` positions up to itself. Nothing is evicted.
  static Pattern chunked(std::int64_t size) { return {Kind::chunked, size, 0}; }
  // Entries of an encoder, seen whole by every query of their sequence.
  static Pattern cross() { return {Kind::cross, 0, 0}; }

  bool operator==(const Pattern&) const = default;
};

// Rotary embedding of the channels [offset, offset + size) of a key. Pair i turns by
//   position * frequency_scale * base^(-2 i / size) / factors[i]
// radians. The angle is linear in the position, so moved tokens need no new keys: attend turns
// the query instead.
struct Rope {
  enum class Pairs : int {
    halves = 0,       // pair i = channels (i, i + size / 2): Llama in transformers, NeoX
    interleaved = 1,  // pair i = channels (2 i, 2 i + 1): GPT-J, Llama in llama.cpp
  };
  Pairs pairs = Pairs::halves;
  double base = 10000.0;
  double frequency_scale = 1.0;  // 1 / factor of linear scaling
  std::vector<double> factors;   // empty, or size / 2 divisors (Llama 3, YaRN, LongRoPE)
  int offset = 0;
  int size = 0;  // 0: the whole key

  bool operator==(const Rope&) const = default;
};

// Moves one token's keys, [heads][dim] in f32, from one position to another, in place. Called
// with the cache locked: it must not call the cache.
using RotateFunction = std::function<void(int layer, float* keys, int heads, int dim,
                                          std::int64_t from_position, std::int64_t to_position)>;

// What must happen to a layer's keys when their tokens move.
struct Rotation {
  enum class Kind : int {
    unknown = 0,   // nothing is known: removals that move tokens are not_supported
    none = 1,      // keys hold no position (NoPE, ALiBi): nothing must happen
    rope = 2,      // turned by `rope`, without touching a page
    function = 3,  // `function` makes new keys, so new pages
  };
  Kind kind = Kind::unknown;
  Rope rope;
  RotateFunction function;

  static Rotation none() { return {Kind::none, {}, {}}; }
  static Rotation with_rope(Rope rope) { return {Kind::rope, std::move(rope), {}}; }
  static Rotation with_function(RotateFunction f) { return {Kind::function, {}, std::move(f)}; }
};

// How full pages are encoded: codecs by name, of keys and of values. codec_names() lists them:
//   f32 f16 bf16             the numbers as they are, rounded to that type
//   fp8_e4m3 fp8_e5m2 int8   8 bits
//   tq6 tq5 tq4 tq3 tq2      rotated, then each channel to one of 2^n levels; a scale per token
//   dual6 dual5 dual4 dual3  keys only: rotated, a scale per token and a range per channel
//   q8_0 q4_0                the blocks of llama.cpp, for exchange
struct CodecPair {
  std::string key = "f16";
  std::string value = "f16";
  bool operator==(const CodecPair&) const = default;
};

QUIRE_API std::vector<std::string> codec_names();

// A name for a pair that goes well together, from the most exact to the smallest:
//   safe dual6/tq5, balanced dual4/tq4, small dual4/tq3, tiny dual3/tq3
struct CodecPreset {
  std::string name;
  CodecPair codec;
};
QUIRE_API std::vector<CodecPreset> codec_presets();

// The pair that a text names: a preset ("balanced"), one codec for both sides ("int8"), or a codec
// for keys and one for values ("dual4/tq4"). invalid_spec for anything else, with the names there
// are; for a codec that encodes keys only and was given for values, with the pair to write.
QUIRE_API Result<CodecPair> parse_codec(std::string_view text);

struct LayerSpec {
  int kv_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  int query_heads = 0;  // 0: any multiple of kv_heads, as attend brings them
  Pattern pattern;
  CodecPair codec;
  // Default: f32 if a codec is f32 or if f16 and bf16 meet, else bf16 if one is bf16, else f16.
  std::optional<DType> row_type;
  Rotation rotation;
  std::optional<float> scale;  // of the logits; default 1 / sqrt(key_dim)
  float soft_cap = 0.0f;       // 0: none; else logits become cap * tanh(logit / cap)
  std::vector<float> slopes;   // ALiBi, one per query head: logit += slope * (key - query position)
  std::vector<float> sinks;    // one logit per query head that takes weight and gives no value
  // Multi-head latent attention: one latent of value_dim channels followed by the rotary part is
  // stored as the key; values are its first value_dim channels and take no space of their own.
  bool mla = false;
  // Reads the store of an earlier layer (same heads, sizes, pattern, rotation) and takes no put.
  // Codecs and row type are then that layer's; those given here are not used.
  std::optional<int> kv_of;
};

// Equal layers, for the common case.
struct UniformSpec {
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int query_heads = 0;  // 0: any multiple of kv_heads
  CodecPair codec = {};
  Pattern pattern = {};
  Rotation rotation = {};
};

struct QUIRE_API CacheSpec {
  std::vector<LayerSpec> layers;

  int page_tokens = 64;          // 1 to 256
  std::int64_t exact_head = 0;   // first tokens kept as rows for ever, rounded up to a page
  std::int64_t exact_tail = 0;   // tokens before a query's own page that it reads as rows
  std::int64_t rollback = 8;     // last tokens that can be undone exactly, whatever the codec
  bool equal_positions = false;  // neighbours may share a position (multi-axis rotary)

  std::optional<std::int64_t> max_tokens;     // held per sequence
  std::optional<std::int64_t> max_sequences;  // open at once
  std::optional<std::int64_t> max_batch;      // tokens per step
  std::optional<std::size_t> memory_limit_bytes;

  std::uint64_t seed = 0;        // of the random signs of codecs that rotate (tq, dual)
  int threads = 1;               // of the built-in executor; 0: one per usable core
  Executor* executor = nullptr;  // the caller's own, not owned; replaces the built-in one
  // The caller's own, not owned. It must outlive the cache and all handles to it.
  MemorySource* memory = nullptr;

  static CacheSpec uniform(const UniformSpec& uniform);
  static CacheSpec mha(int layers, int heads, int head_dim);
  static CacheSpec gqa(int layers, int query_heads, int kv_heads, int head_dim);
  static CacheSpec mqa(int layers, int query_heads, int head_dim);
  // DeepSeek-like: `latent_dim` + `rope_dim` channels per token, interleaved rotary at the end.
  static CacheSpec mla(int layers, int query_heads, int latent_dim, int rope_dim);

  // The same pair for every layer (MLA layers take the key codec).
  CacheSpec& set_codec(const std::string& key, const std::string& value);
  // The same with a text that parse_codec takes. An error changes nothing.
  Result<void> set_codec(std::string_view text);
};

// What a cache made of a layer's spec.
struct LayerInfo {
  int group = 0;  // layers of one group share a page table
  Pattern pattern;
  CodecPair codec;
  DType row_type = DType::f16;
  float scale = 0.0f;
  int kv_of = 0;                          // itself, or the layer whose store it reads
  std::size_t row_bytes_per_token = 0;    // open, keys and values, all heads
  std::size_t sealed_bytes_per_page = 0;  // 0 for a layer that reads another's store
};

}  // namespace quire
