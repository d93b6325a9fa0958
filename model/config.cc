#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "model/error.h"

namespace quire::model {
namespace {

// An architecture's parts. `window_period` p > 0: of p layers in turn, all but the last have the
// window.
struct Architecture {
  const char* name;
  Rope::Pairs pairs;
  bool has_qk_norm = false;
  bool has_after_norm = false;
  bool is_gelu = false;
  bool scales_embedding = false;
  int window_period = 0;
};

constexpr Architecture kArchitectures[] = {
    {.name = "llama", .pairs = Rope::Pairs::interleaved, .window_period = 0},
    {.name = "qwen2", .pairs = Rope::Pairs::halves},
    {.name = "qwen3", .pairs = Rope::Pairs::halves, .has_qk_norm = true},
    {.name = "gemma", .pairs = Rope::Pairs::halves, .is_gelu = true, .scales_embedding = true},
    {.name = "gemma2",
     .pairs = Rope::Pairs::halves,
     .has_after_norm = true,
     .is_gelu = true,
     .scales_embedding = true,
     .window_period = 2},
    {.name = "gemma3",
     .pairs = Rope::Pairs::halves,
     .has_qk_norm = true,
     .has_after_norm = true,
     .is_gelu = true,
     .scales_embedding = true,
     .window_period = 6},
};

// Reads keys of the form "<architecture>.<name>".
class Keys {
 public:
  Keys(const Gguf& file, std::string architecture)
      : file_(file), prefix_(std::move(architecture) + ".") {}

  bool has(const std::string& key) const { return file_.has(prefix_ + key); }

  // A size, in [1, most].
  Result<int> size(const std::string& key, std::int64_t most) const {
    if (file_.is_array(prefix_ + key)) return size_of_array(key, most);
    MODEL_TRY(const std::int64_t value, file_.integer(prefix_ + key));
    return checked(key, value, most);
  }
  Result<int> size_or(const std::string& key, int otherwise, std::int64_t most) const {
    if (!has(key)) return otherwise;
    return size(key, most);
  }
  Result<double> number_or(const std::string& key, double otherwise) const {
    if (!has(key)) return otherwise;
    return file_.number(prefix_ + key);
  }
  Result<std::string> string_or(const std::string& key, const std::string& otherwise) const {
    if (!has(key)) return otherwise;
    return file_.string(prefix_ + key);
  }
  // A number that must be above zero: bases, factors, epsilons.
  Result<double> positive_or(const std::string& key, double otherwise) const {
    MODEL_TRY(const double value, number_or(key, otherwise));
    if (value > 0 && value < 1e30) return value;
    return refuse("{}: {}{} is {}, it must be above 0", file_.name(), prefix_, key, value);
  }

  Error refused(const std::string& text) const { return refuse("{}: {}", file_.name(), text); }

 private:
  Result<int> checked(const std::string& key, std::int64_t value, std::int64_t most) const {
    if (value >= 1 && value <= most) return static_cast<int>(value);
    return refuse("{}: {}{} is {}, allowed is 1 to {}", file_.name(), prefix_, key, value, most);
  }
  // Some files give a number per layer; here all layers are equal.
  Result<int> size_of_array(const std::string& key, std::int64_t most) const {
    MODEL_TRY(const std::vector<std::int64_t> values, file_.integers(prefix_ + key));
    const bool equal = !values.empty() && std::all_of(values.begin(), values.end(),
                                                      [&](auto v) { return v == values[0]; });
    if (equal) return checked(key, values[0], most);
    return refuse("{}: {}{} differs between layers, which is not supported", file_.name(), prefix_,
                  key);
  }

  const Gguf& file_;
  std::string prefix_;
};

constexpr std::int64_t kMostLayers = 1024;
constexpr std::int64_t kMostHeads = 1024;
constexpr std::int64_t kMostWidth = 1 << 20;
constexpr std::int64_t kMostTokens = 1 << 24;

Result<const Architecture*> find_architecture(const Gguf& file) {
  MODEL_TRY(const std::string name, file.string("general.architecture"));
  for (const Architecture& architecture : kArchitectures) {
    if (name == architecture.name) return &architecture;
  }
  return refuse("{}: architecture \"{}\"; supported are llama, qwen2, qwen3, gemma, gemma2, gemma3",
                file.name(), name);
}

// YaRN keeps the fast pairs as they are, slows the slow ones by the factor, and blends between. The
// bounds are the pairs that turn 32 times and once within the original context.
std::vector<double> yarn_factors(const Rope& rope, double factor, double original_context) {
  const int pairs = rope.size / 2;
  const auto pair_of_turns = [&](double turns) {
    return rope.size * std::log(original_context / (turns * 2 * M_PI)) / (2 * std::log(rope.base));
  };
  const double low = std::max(0.0, std::floor(pair_of_turns(32)));
  const double high = std::min(rope.size - 1.0, std::ceil(pair_of_turns(1)));
  std::vector<double> factors;
  for (int i = 0; i < pairs; ++i) {
    const double ramp = (i - low) / std::max(0.001, high - low);
    const double kept = 1 - std::clamp(ramp, 0.0, 1.0);
    factors.push_back(1 / ((1 - kept) / factor + kept));
  }
  return factors;
}

Result<std::vector<double>> tensor_factors(const Gguf& file, const GgufTensor& tensor, int pairs) {
  if (tensor.elements != pairs) {
    return refuse("{}: {} has {} factors, the rotary part has {} pairs", file.name(), tensor.name,
                  tensor.elements, pairs);
  }
  std::vector<float> values(static_cast<std::size_t>(tensor.elements));
  expand(tensor.type, tensor.data, values);
  for (const float value : values) {
    if (!(value > 0) || !std::isfinite(value)) {
      return refuse("{}: {} has a factor of {}", file.name(), tensor.name, value);
    }
  }
  return std::vector<double>(values.begin(), values.end());
}

// The rotation of layers that see everything.
Result<Rope> read_rope(const Gguf& file, const Keys& keys, Config& config, Rope::Pairs pairs) {
  Rope rope;
  rope.pairs = pairs;
  MODEL_TRY(rope.base, keys.positive_or("rope.freq_base", 10000.0));
  MODEL_TRY(rope.size, keys.size_or("rope.dimension_count", config.key_dim, config.key_dim));
  if (rope.size % 2 != 0) return keys.refused("the rotary part has an odd number of channels");
  if (const GgufTensor* tensor = file.find("rope_freqs.weight"); tensor != nullptr) {
    MODEL_TRY(rope.factors, tensor_factors(file, *tensor, rope.size / 2));
  }
  MODEL_TRY(const std::string type, keys.string_or("rope.scaling.type", "none"));
  MODEL_TRY(const double old_factor, keys.positive_or("rope.scale_linear", 1.0));
  MODEL_TRY(const double factor, keys.positive_or("rope.scaling.factor", old_factor));
  if (type == "linear" || (type == "none" && old_factor != 1)) {
    rope.frequency_scale = 1 / factor;
  } else if (type == "yarn") {
    MODEL_TRY(const int original, keys.size("rope.scaling.original_context_length", kMostTokens));
    MODEL_TRY(const double attention, keys.positive_or("rope.scaling.attn_factor", 1.0));
    if (rope.base <= 1 || !rope.factors.empty()) return keys.refused("YaRN of odd parameters");
    rope.factors = yarn_factors(rope, factor, original);
    const double magnitude = factor > 1 ? 1 + 0.1 * std::log(factor) : 1;
    config.rotary_magnitude = static_cast<float>(attention * magnitude);
  } else if (type != "none") {
    return keys.refused(
        fmt::format("rotary scaling \"{}\"; supported are linear, yarn and the "
                    "factors of rope_freqs.weight",
                    type));
  }
  return rope;
}

Result<std::vector<LayerRule>> read_layers(const Keys& keys, const Architecture& architecture,
                                           int count, const Rope& rope) {
  const bool mixes = architecture.window_period > 0;
  const bool reads_window = mixes || std::string(architecture.name) == "llama";
  int window = 0;
  if (reads_window && keys.has("attention.sliding_window")) {
    MODEL_TRY(window, keys.size("attention.sliding_window", kMostTokens));
  } else if (mixes) {
    window = 4096;  // what files of gemma2 without the key mean
  }
  LayerRule near{window, rope};
  if (std::string(architecture.name) == "gemma3") {
    // Layers with a window keep the short base and are not scaled.
    near.rope.frequency_scale = 1;
    near.rope.factors.clear();
    MODEL_TRY(near.rope.base, keys.positive_or("rope.freq_base_swa", 10000.0));
  }
  std::vector<LayerRule> layers;
  for (int i = 0; i < count; ++i) {
    const bool is_far = mixes && (i + 1) % architecture.window_period == 0;
    layers.push_back(is_far ? LayerRule{0, rope} : near);
  }
  return layers;
}

Result<int> read_vocabulary_size(const Gguf& file) {
  const GgufTensor* embedding = file.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    return refuse("{}: no matrix token_embd.weight", file.name());
  }
  if (embedding->shape[1] > kMostTokens) {
    return refuse("{}: {} tokens, allowed are {}", file.name(), embedding->shape[1], kMostTokens);
  }
  return static_cast<int>(embedding->shape[1]);
}

}  // namespace

Result<Config> read_config(const Gguf& file) {
  MODEL_TRY(const Architecture* architecture, find_architecture(file));
  const Keys keys(file, architecture->name);
  Config config;
  config.architecture = architecture->name;
  if (file.has("general.name")) {
    MODEL_TRY(config.name, file.string("general.name"));
  }
  MODEL_TRY(const int experts, keys.size_or("expert_count", 1, kMostWidth));
  if (experts > 1) {
    return keys.refused(fmt::format("{} experts; mixtures are not supported", experts));
  }
  MODEL_TRY(const int layers, keys.size("block_count", kMostLayers));
  MODEL_TRY(config.embedding, keys.size("embedding_length", kMostWidth));
  MODEL_TRY(config.feed_forward, keys.size("feed_forward_length", kMostWidth));
  MODEL_TRY(config.query_heads, keys.size("attention.head_count", kMostHeads));
  MODEL_TRY(config.kv_heads,
            keys.size_or("attention.head_count_kv", config.query_heads, kMostHeads));
  MODEL_TRY(config.context, keys.size_or("context_length", 2048, kMostTokens));
  MODEL_TRY(config.vocabulary, read_vocabulary_size(file));
  if (config.query_heads % config.kv_heads != 0) {
    return keys.refused(fmt::format("{} query heads are no multiple of {} KV heads",
                                    config.query_heads, config.kv_heads));
  }
  const int dim = config.embedding / config.query_heads;
  MODEL_TRY(config.key_dim, keys.size_or("attention.key_length", dim, kMostWidth));
  MODEL_TRY(config.value_dim, keys.size_or("attention.value_length", dim, kMostWidth));
  if (config.key_dim < 2) return keys.refused(fmt::format("keys of {} channels", config.key_dim));
  MODEL_TRY(const double epsilon, keys.positive_or("attention.layer_norm_rms_epsilon", 1e-5));
  config.norm_epsilon = static_cast<float>(epsilon);

  MODEL_TRY(const Rope rope, read_rope(file, keys, config, architecture->pairs));
  MODEL_TRY(config.layers, read_layers(keys, *architecture, layers, rope));

  MODEL_TRY(const double attention_cap, keys.number_or("attn_logit_softcapping", 0));
  MODEL_TRY(const double output_cap, keys.number_or("final_logit_softcapping", 0));
  config.attention_soft_cap = static_cast<float>(attention_cap);
  config.output_soft_cap = static_cast<float>(output_cap);
  config.has_qk_norm = architecture->has_qk_norm;
  config.has_after_norm = architecture->has_after_norm;
  config.is_gelu = architecture->is_gelu;
  if (architecture->scales_embedding) {
    config.embedding_scale = std::sqrt(static_cast<float>(config.embedding));
  }
  // The largest gemma2 (46 layers) and gemma3 (62) scale by the embedding's share of a head.
  const bool by_share = (config.architecture == "gemma2" && layers == 46) ||
                        (config.architecture == "gemma3" && layers == 62);
  config.attention_scale = 1 / std::sqrt(static_cast<float>(by_share ? dim : config.key_dim));
  return config;
}

Result<Vocabulary> read_vocabulary(const Gguf& file) {
  const std::string prefix = "tokenizer.ggml.";
  Vocabulary vocabulary;
  MODEL_TRY(vocabulary.model, file.string(prefix + "model"));
  MODEL_TRY(vocabulary.tokens, file.strings(prefix + "tokens"));
  const auto count = static_cast<std::int64_t>(vocabulary.tokens.size());
  if (file.has(prefix + "pre")) {
    MODEL_TRY(vocabulary.pre, file.string(prefix + "pre"));
  }
  if (file.has(prefix + "merges")) {
    MODEL_TRY(vocabulary.merges, file.strings(prefix + "merges"));
  }
  if (file.has(prefix + "token_type")) {
    MODEL_TRY(const std::vector<std::int64_t> types, file.integers(prefix + "token_type"));
    for (const std::int64_t type : types) {
      if (type < 0 || type > 255) {
        return refuse("{}: a token's type is {}", file.name(), type);
      }
      vocabulary.types.push_back(static_cast<int>(type));
    }
    if (types.size() != vocabulary.tokens.size()) {
      return refuse("{}: {} tokens have {} types", file.name(), count, types.size());
    }
  } else {
    vocabulary.types.assign(vocabulary.tokens.size(), 1);
  }
  if (file.has(prefix + "scores")) {
    MODEL_TRY(const std::vector<double> scores, file.numbers(prefix + "scores"));
    vocabulary.scores.assign(scores.begin(), scores.end());
  }
  if (file.has(prefix + "add_space_prefix")) {
    MODEL_TRY(vocabulary.add_space, file.boolean(prefix + "add_space_prefix"));
  }
  const auto read_id = [&](const char* key, int* id) -> Result<void> {
    const std::string whole = prefix + key;
    if (!file.has(whole)) return {};
    MODEL_TRY(const std::int64_t value, file.integer(whole));
    if (value < 0 || value >= count) {
      return refuse("{}: {} is {}, tokens are 0 to {}", file.name(), whole, value, count - 1);
    }
    *id = static_cast<int>(value);
    return {};
  };
  MODEL_CHECK(read_id("bos_token_id", &vocabulary.bos));
  MODEL_CHECK(read_id("eos_token_id", &vocabulary.eos));
  MODEL_CHECK(read_id("eot_token_id", &vocabulary.eot));
  MODEL_CHECK(read_id("padding_token_id", &vocabulary.pad));
  // The marks of a chat are control tokens, also in files that say otherwise, so that they are not
  // found in plain text; and one that ends a turn does so, also where the file does not say it.
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::string& text = vocabulary.tokens[i];
    const bool ends = text == "<|im_end|>" || text == "<|eot_id|>" || text == "<end_of_turn>";
    if (ends || text == "<|im_start|>" || text == "<start_of_turn>") vocabulary.types[i] = 3;
    if (ends && vocabulary.eot < 0) vocabulary.eot = static_cast<int>(i);
  }
  // Where nothing is said, SentencePiece models begin with the token and byte-level ones do not.
  vocabulary.add_bos = vocabulary.model == "llama" && vocabulary.bos >= 0;
  if (file.has(prefix + "add_bos_token")) {
    MODEL_TRY(vocabulary.add_bos, file.boolean(prefix + "add_bos_token"));
  }
  if (file.has("tokenizer.chat_template")) {
    MODEL_TRY(vocabulary.chat_template, file.string("tokenizer.chat_template"));
  }
  return vocabulary;
}

CacheSpec cache_spec_of(const Config& config) {
  CacheSpec spec;
  for (const LayerRule& rule : config.layers) {
    LayerSpec layer;
    layer.kv_heads = config.kv_heads;
    layer.key_dim = config.key_dim;
    layer.value_dim = config.value_dim;
    layer.query_heads = config.query_heads;
    layer.pattern = rule.window > 0 ? Pattern::window(rule.window) : Pattern::causal();
    layer.rotation = Rotation::with_rope(rule.rope);
    layer.scale = config.attention_scale;
    layer.soft_cap = config.attention_soft_cap;
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace quire::model
