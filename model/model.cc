#include "model/model.h"

#include "model/error.h"
#include "model/products.h"

namespace quire::model {

// Takes tensors from the file by name, with the shape they must have.
class Model::Loader {
 public:
  Loader(const Gguf& file, WeightForm form, Executor& executor, std::pmr::memory_resource* memory)
      : file_(file), form_(form), executor_(executor), memory_(memory) {}

  Result<const GgufTensor*> tensor(const std::string& name,
                                   const std::vector<std::int64_t>& shape) const {
    const GgufTensor* found = file_.find(name);
    if (found == nullptr) return refuse("{}: no tensor {}", file_.name(), name);
    if (found->shape != shape) {
      return refuse("{}: tensor {} is {}, the model's sizes make it {}", file_.name(), name,
                    text_of(found->shape), text_of(shape));
    }
    return found;
  }

  Result<std::vector<float>> vector(const std::string& name, int size) const {
    MODEL_TRY(const GgufTensor* found, tensor(name, {size}));
    std::vector<float> values(static_cast<std::size_t>(size));
    expand(found->type, found->data, values);
    return values;
  }

  struct Matrix {
    std::string name;  // "<name>.weight", with "<name>.bias" where the file has one
    int outputs = 0;
  };

  // Stacked from matrices of the same inputs.
  Result<std::unique_ptr<Linear>> linear(int inputs, const std::vector<Matrix>& matrices) const {
    std::vector<LinearPart> parts;
    for (const Matrix& matrix : matrices) {
      LinearPart& part = parts.emplace_back();
      MODEL_TRY(part.weight, tensor(matrix.name + ".weight", {inputs, matrix.outputs}));
      if (file_.find(matrix.name + ".bias") != nullptr) {
        MODEL_TRY(part.bias, tensor(matrix.name + ".bias", {matrix.outputs}));
      }
    }
    return make_linear(form_, parts, executor_, memory_);
  }

  Result<Layer> layer(const Config& config, int index) const;

 private:
  static std::string text_of(const std::vector<std::int64_t>& shape) {
    std::string text;
    for (const std::int64_t size : shape)
      text += (text.empty() ? "" : " x ") + std::to_string(size);
    return text;
  }

  const Gguf& file_;
  WeightForm form_;
  Executor& executor_;
  std::pmr::memory_resource* memory_;
};

Result<Model::Layer> Model::Loader::layer(const Config& config, int index) const {
  const std::string prefix = fmt::format("blk.{}.", index);
  const int queries = config.query_heads * config.key_dim;
  const int keys = config.kv_heads * config.key_dim;
  const int values = config.kv_heads * config.value_dim;
  const int mixed = config.query_heads * config.value_dim;
  const int width = config.embedding;
  Layer layer;
  MODEL_TRY(layer.attention_norm, vector(prefix + "attn_norm.weight", width));
  MODEL_TRY(layer.query_key_value, linear(width, {{prefix + "attn_q", queries},
                                                  {prefix + "attn_k", keys},
                                                  {prefix + "attn_v", values}}));
  MODEL_TRY(layer.output, linear(mixed, {{prefix + "attn_output", width}}));
  if (config.has_qk_norm) {
    MODEL_TRY(layer.query_norm, vector(prefix + "attn_q_norm.weight", config.key_dim));
    MODEL_TRY(layer.key_norm, vector(prefix + "attn_k_norm.weight", config.key_dim));
  }
  MODEL_TRY(layer.feed_norm, vector(prefix + "ffn_norm.weight", width));
  const int inner = config.feed_forward;
  MODEL_TRY(layer.gate_up,
            linear(width, {{prefix + "ffn_gate", inner}, {prefix + "ffn_up", inner}}));
  MODEL_TRY(layer.down, linear(inner, {{prefix + "ffn_down", width}}));
  if (config.has_after_norm) {
    MODEL_TRY(layer.attention_after_norm, vector(prefix + "post_attention_norm.weight", width));
    MODEL_TRY(layer.feed_after_norm, vector(prefix + "post_ffw_norm.weight", width));
  }
  return layer;
}

Result<Model> Model::load(const std::string& path, const ModelOptions& options) {
  MODEL_TRY(Gguf file, Gguf::open(path));
  return load(std::move(file), options);
}

Result<Model> Model::load(Gguf file, const ModelOptions& options) {
  Model model(std::move(file));
  MODEL_TRY(model.config_, read_config(model.file_));
  MODEL_TRY(model.vocabulary_, read_vocabulary(model.file_));
  const Config& config = model.config_;
  if (static_cast<std::int64_t>(model.vocabulary_.tokens.size()) != config.vocabulary) {
    return refuse("{}: {} tokens in the vocabulary, {} embeddings", model.file_.name(),
                  model.vocabulary_.tokens.size(), config.vocabulary);
  }
  MODEL_TRY(model.executor_, make_executor(options.threads));
  model.pages_ = std::make_unique<HugePages>();
  model.memory_ = std::make_unique<std::pmr::monotonic_buffer_resource>(model.pages_.get());
  const Loader loader(model.file_, options.weights, *model.executor_, model.memory_.get());
  MODEL_TRY(model.embedding_,
            loader.tensor("token_embd.weight", {config.embedding, config.vocabulary}));
  for (int i = 0; i < static_cast<int>(config.layers.size()); ++i) {
    MODEL_TRY(Layer layer, loader.layer(config, i));
    model.layers_.push_back(std::move(layer));
  }
  MODEL_TRY(model.output_norm_, loader.vector("output_norm.weight", config.embedding));
  // Without a matrix of its own the output is the embedding, transposed.
  const char* output = model.file_.find("output.weight") != nullptr ? "output" : "token_embd";
  MODEL_TRY(model.output_, loader.linear(config.embedding, {{output, config.vocabulary}}));
  set_product_threads(options.threads > 0 ? options.threads : usable_cores());
  return model;
}

CacheSpec Model::cache_spec() const {
  CacheSpec spec = cache_spec_of(config_);
  spec.executor = executor_.get();
  return spec;
}

}  // namespace quire::model
