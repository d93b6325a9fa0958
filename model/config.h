// What a model is: its shape and its rules, read from a file's metadata.
//
// One struct covers the Llama family: every architecture is the same walk (norm, attention, norm,
// feed-forward) with some parts switched on. An architecture that needs more than these parts is
// refused by name, since running it without them would give plausible nonsense.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/gguf.h"
#include "model/vocabulary.h"
#include "quire/result.hpp"
#include "quire/spec.hpp"

namespace quire::model {

// What may differ from layer to layer.
struct LayerRule {
  std::int64_t window = 0;  // tokens a query sees with itself; 0: all
  Rope rope;
};

struct Config {
  std::string architecture;
  std::string name;
  int embedding = 0;
  int feed_forward = 0;
  int query_heads = 0;
  int kv_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  int vocabulary = 0;
  std::int64_t context = 0;  // tokens it was trained for
  float norm_epsilon = 0;
  std::vector<LayerRule> layers;

  float attention_scale = 0;     // of the logits of attention
  float attention_soft_cap = 0;  // 0: none
  float output_soft_cap = 0;     // of the model's logits; 0: none
  float rotary_magnitude = 1;    // YaRN: keys and queries are multiplied by it
  float embedding_scale = 1;
  bool has_qk_norm = false;     // keys and queries are normed, per head, before they are turned
  bool has_after_norm = false;  // the results of attention and feed-forward are normed too
  bool is_gelu = false;         // the gate of the feed-forward; otherwise SiLU
};

// Checks that the sizes fit each other and are such as a real model has.
Result<Config> read_config(const Gguf& file);

// The tokens, with what the tokenizer needs to know. Every id it names exists.
Result<Vocabulary> read_vocabulary(const Gguf& file);

// A cache for the model: its layers with f16 codecs and nothing else set.
CacheSpec cache_spec_of(const Config& config);

}  // namespace quire::model
