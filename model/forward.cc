// The forward pass: one batch through all layers.
#include <cmath>
#include <utility>

#include "model/error.h"
#include "model/model.h"
#include "model/ops.h"

namespace quire::model {

// The work of one forward. Rows are [tokens][width], the residual stream in `stream_`; the others
// are made once and used by every layer.
class Model::Pass {
 public:
  Pass(const Model& model, Step& step, const Batch& batch, const Attention& attention)
      : model_(model),
        config_(model.config_),
        step_(step),
        attention_(attention),
        count_(batch.tokens.size()) {
    for (const Token& token : batch.tokens) positions_.push_back(token.position);
    make_rotators();
  }

  void embed(std::span<const int> tokens);
  Result<void> run_layer(int index);
  // Logits of some rows.
  Result<void> finish(std::span<const std::int64_t> rows, float* logits);

 private:
  using Rows = std::vector<float>;

  void apply(const Linear& linear, const Rows& x, Rows& y) const {
    y.resize(count_ * static_cast<std::size_t>(linear.outputs()));
    linear.apply(x.data(), static_cast<std::int64_t>(count_), y.data());
  }
  // Norms every piece of `weight.size()` numbers. `y` may be `x`.
  void norm(const Rows& x, const std::vector<float>& weight, Rows& y) const {
    const std::size_t width = weight.size();
    y.resize(x.size());
    for (std::size_t at = 0; at < x.size(); at += width) {
      rms_norm({x.data() + at, width}, weight, config_.norm_epsilon, y.data() + at);
    }
  }
  // Adds `part_`.
  void add_to_stream(const std::vector<float>& after_norm) {
    if (!after_norm.empty()) norm(part_, after_norm, part_);
    for (std::size_t i = 0; i < stream_.size(); ++i) stream_[i] += part_[i];
  }

  void make_rotators();
  Result<void> attend(int index, const Layer& layer);
  void feed(const Layer& layer);

  const Model& model_;
  const Config& config_;
  Step& step_;
  const Attention& attention_;
  std::size_t count_;
  std::vector<std::int64_t> positions_;
  std::vector<Rotator> rotators_;        // one per different rope
  std::vector<std::size_t> rotator_of_;  // per layer
  Rows stream_;
  Rows normed_;
  Rows query_, key_, value_, mixed_;
  Rows gate_, up_;
  Rows part_;  // what a half of a layer adds to the stream
};

void Model::Pass::make_rotators() {
  std::vector<const Rope*> ropes;
  for (const LayerRule& rule : config_.layers) {
    std::size_t found = 0;
    while (found < ropes.size() && !(*ropes[found] == rule.rope)) ++found;
    if (found == ropes.size()) {
      ropes.push_back(&rule.rope);
      rotators_.emplace_back(rule.rope, config_.rotary_magnitude, positions_);
    }
    rotator_of_.push_back(found);
  }
}

void Model::Pass::embed(std::span<const int> tokens) {
  const GgufTensor& table = *model_.embedding_;
  const auto width = static_cast<std::size_t>(config_.embedding);
  const std::size_t row_bytes = table.data.size() / static_cast<std::size_t>(config_.vocabulary);
  stream_.resize(count_ * width);
  for (std::size_t i = 0; i < count_; ++i) {
    const std::size_t at = static_cast<std::size_t>(tokens[i]) * row_bytes;
    expand(table.type, table.data.subspan(at, row_bytes), {stream_.data() + i * width, width});
  }
  if (config_.embedding_scale != 1.0f) {
    for (float& value : stream_) value *= config_.embedding_scale;
  }
}

Result<void> Model::Pass::run_layer(int index) {
  const Layer& layer = model_.layers_[static_cast<std::size_t>(index)];
  norm(stream_, layer.attention_norm, normed_);
  MODEL_CHECK(attend(index, layer));
  add_to_stream(layer.attention_after_norm);
  norm(stream_, layer.feed_norm, normed_);
  feed(layer);
  add_to_stream(layer.feed_after_norm);
  return {};
}

Result<void> Model::Pass::attend(int index, const Layer& layer) {
  const auto tokens = static_cast<std::int64_t>(count_);
  apply(*layer.query, normed_, query_);
  apply(*layer.key, normed_, key_);
  apply(*layer.value, normed_, value_);
  if (config_.has_qk_norm) {
    norm(query_, layer.query_norm, query_);
    norm(key_, layer.key_norm, key_);
  }
  const Rotator& rotator = rotators_[rotator_of_[static_cast<std::size_t>(index)]];
  rotator.apply(query_.data(), config_.query_heads, config_.key_dim);
  rotator.apply(key_.data(), config_.kv_heads, config_.key_dim);
  const auto view = [&](const Rows& rows, int heads, int dim) {
    return TensorView::dense(rows.data(), DType::f32, tokens, heads, dim);
  };
  MODEL_CHECK(step_.put(index, view(key_, config_.kv_heads, config_.key_dim),
                        view(value_, config_.kv_heads, config_.value_dim)));
  mixed_.resize(count_ * static_cast<std::size_t>(config_.query_heads * config_.value_dim));
  const TensorView queries = view(query_, config_.query_heads, config_.key_dim);
  const OutputView out =
      OutputView::dense(mixed_.data(), tokens, config_.query_heads, config_.value_dim);
  MODEL_CHECK(attention_ ? attention_(step_, index, queries, out)
                         : step_.attend(index, queries, out));
  apply(*layer.output, mixed_, part_);
  return {};
}

void Model::Pass::feed(const Layer& layer) {
  apply(*layer.gate, normed_, gate_);
  apply(*layer.up, normed_, up_);
  (config_.is_gelu ? gate_gelu : gate_silu)(gate_.data(), up_.data(), gate_.size());
  apply(*layer.down, gate_, part_);
}

Result<void> Model::Pass::finish(std::span<const std::int64_t> wanted, float* logits) {
  const auto width = static_cast<std::size_t>(config_.embedding);
  Rows x(wanted.size() * width);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::span<const float> row(stream_.data() + static_cast<std::size_t>(wanted[i]) * width,
                                     width);
    for (const float value : row) {
      if (!std::isfinite(value)) {
        return Error{ErrorCode::non_finite,
                     fmt::format("forward: row {} is not finite after the last layer", wanted[i])};
      }
    }
    rms_norm(row, model_.output_norm_, config_.norm_epsilon, x.data() + i * width);
  }
  const auto count = static_cast<std::int64_t>(wanted.size());
  model_.output_->apply(x.data(), count, logits);
  if (config_.output_soft_cap > 0) {
    soft_cap({logits, wanted.size() * static_cast<std::size_t>(config_.vocabulary)},
             config_.output_soft_cap);
  }
  return {};
}

Result<void> Model::forward(Step& step, const Batch& batch, std::span<const int> tokens,
                            std::span<const std::int64_t> rows, float* logits,
                            const Attention& attention) const {
  if (tokens.size() != batch.tokens.size() || tokens.empty()) {
    return refuse("forward: {} tokens for a batch of {}", tokens.size(), batch.tokens.size());
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= config_.vocabulary) {
      return refuse("forward: token {} is {}, the vocabulary has {}", i, tokens[i],
                    config_.vocabulary);
    }
  }
  for (const std::int64_t row : rows) {
    if (row < 0 || row >= static_cast<std::int64_t>(tokens.size())) {
      return refuse("forward: logits of row {} of a batch of {}", row, tokens.size());
    }
  }
  Pass pass(*this, step, batch, attention);
  pass.embed(tokens);
  for (int layer = 0; layer < static_cast<int>(layers_.size()); ++layer) {
    MODEL_CHECK(pass.run_layer(layer));
  }
  if (rows.empty()) return {};
  return pass.finish(rows, logits);
}

}  // namespace quire::model
