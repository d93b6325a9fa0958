// The forward pass: one batch through all layers.
#include <algorithm>
#include <cmath>
#include <utility>

#include "model/error.h"
#include "model/model.h"
#include "model/ops.h"

namespace quire::model {
namespace {

Result<void> check_rows(std::span<const std::int64_t> rows, std::size_t count) {
  for (const std::int64_t row : rows) {
    if (row < 0 || row >= static_cast<std::int64_t>(count)) {
      return refuse("forward: logits of row {} of a batch of {}", row, count);
    }
  }
  return {};
}

}  // namespace

// A walk through layers. Rows are [tokens][width], the residual stream in `stream_`; the others are
// made once and used by every layer.
class Model::Pass {
 public:
  Pass(const Model& model, Step& step, const Batch& batch, const Attention& attention,
       std::vector<float>& stream)
      : model_(model),
        config_(model.config_),
        step_(step),
        attention_(attention),
        count_(batch.tokens.size()),
        stream_(stream) {
    for (const Token& token : batch.tokens) positions_.push_back(token.position);
    make_rotators();
  }

  Result<void> run_layer(int index);

 private:
  using Rows = std::vector<float>;

  void apply(const Linear& linear, const Rows& x, Rows& y) const {
    y.resize(count_ * static_cast<std::size_t>(linear.outputs()));
    linear.apply(x.data(), static_cast<std::int64_t>(count_), y.data());
  }
  // Calls f(row) for each token, a few of them at a time on the model's threads.
  template <typename F>
  void for_each_row(const F& f) const {
    constexpr std::size_t kRows = 16;
    model_.executor_->run((count_ + kRows - 1) / kRows, [&](std::size_t task) {
      for (std::size_t row = task * kRows; row < std::min((task + 1) * kRows, count_); ++row) {
        f(row);
      }
    });
  }
  // Norms every piece of `weight.size()` numbers of a row of `width`. `y` may be `x`.
  void norm(const float* x, std::size_t width, const std::vector<float>& weight, float* y) const {
    for (std::size_t at = 0; at < width; at += weight.size()) {
      rms_norm({x + at, weight.size()}, weight, config_.norm_epsilon, y + at);
    }
  }
  // normed_ = norm of the stream.
  void enter_half(const std::vector<float>& weight);
  // Adds `part_` to the stream.
  void leave_half(const std::vector<float>& after_norm);

  void make_rotators();
  // Norms and turns the keys and queries of layer `index`.
  void turn(int index, const Layer& layer);
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
  Rows& stream_;
  Rows normed_;
  Rows query_key_value_, mixed_;
  Rows gate_up_, gated_;
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

Result<void> Model::Pass::run_layer(int index) {
  const Layer& layer = model_.layers_[static_cast<std::size_t>(index)];
  enter_half(layer.attention_norm);
  MODEL_CHECK(attend(index, layer));
  leave_half(layer.attention_after_norm);
  enter_half(layer.feed_norm);
  feed(layer);
  leave_half(layer.feed_after_norm);
  return {};
}

void Model::Pass::enter_half(const std::vector<float>& weight) {
  const auto width = static_cast<std::size_t>(config_.embedding);
  normed_.resize(stream_.size());
  for_each_row([&](std::size_t row) {
    norm(stream_.data() + row * width, width, weight, normed_.data() + row * width);
  });
}

void Model::Pass::leave_half(const std::vector<float>& after_norm) {
  const auto width = static_cast<std::size_t>(config_.embedding);
  for_each_row([&](std::size_t row) {
    float* const part = part_.data() + row * width;
    float* const stream = stream_.data() + row * width;
    if (!after_norm.empty()) norm(part, width, after_norm, part);
    for (std::size_t i = 0; i < width; ++i) stream[i] += part[i];
  });
}

void Model::Pass::turn(int index, const Layer& layer) {
  const auto width = static_cast<std::size_t>(layer.query_key_value->outputs());
  const auto queries = static_cast<std::size_t>(config_.query_heads * config_.key_dim);
  const auto keys = static_cast<std::size_t>(config_.kv_heads * config_.key_dim);
  const Rotator& rotator = rotators_[rotator_of_[static_cast<std::size_t>(index)]];
  for_each_row([&](std::size_t row) {
    float* const query = query_key_value_.data() + row * width;
    float* const key = query + queries;
    if (config_.has_qk_norm) {
      norm(query, queries, layer.query_norm, query);
      norm(key, keys, layer.key_norm, key);
    }
    rotator.apply(row, query, config_.query_heads, config_.key_dim);
    rotator.apply(row, key, config_.kv_heads, config_.key_dim);
  });
}

Result<void> Model::Pass::attend(int index, const Layer& layer) {
  const auto tokens = static_cast<std::int64_t>(count_);
  apply(*layer.query_key_value, normed_, query_key_value_);
  turn(index, layer);
  const float* part = query_key_value_.data();
  const auto next_view = [&](int heads, int dim) {
    TensorView view = TensorView::dense(part, DType::f32, tokens, heads, dim);
    view.token_stride = layer.query_key_value->outputs();
    part += heads * dim;
    return view;
  };
  const TensorView queries = next_view(config_.query_heads, config_.key_dim);
  const TensorView keys = next_view(config_.kv_heads, config_.key_dim);
  MODEL_CHECK(step_.put(index, keys, next_view(config_.kv_heads, config_.value_dim)));
  mixed_.resize(count_ * static_cast<std::size_t>(config_.query_heads * config_.value_dim));
  const OutputView out =
      OutputView::dense(mixed_.data(), tokens, config_.query_heads, config_.value_dim);
  MODEL_CHECK(attention_ ? attention_(step_, index, queries, out)
                         : step_.attend(index, queries, out));
  apply(*layer.output, mixed_, part_);
  return {};
}

void Model::Pass::feed(const Layer& layer) {
  apply(*layer.gate_up, normed_, gate_up_);
  const auto inner = static_cast<std::size_t>(config_.feed_forward);
  gated_.resize(count_ * inner);
  for_each_row([&](std::size_t row) {
    const float* const gate = gate_up_.data() + row * 2 * inner;
    (config_.is_gelu ? gate_gelu : gate_silu)(gate, gate + inner, inner,
                                              gated_.data() + row * inner);
  });
  apply(*layer.down, gated_, part_);
}

Result<std::vector<float>> Model::embed(std::span<const int> tokens) const {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= config_.vocabulary) {
      return refuse("forward: token {} is {}, the vocabulary has {}", i, tokens[i],
                    config_.vocabulary);
    }
  }
  const auto width = static_cast<std::size_t>(config_.embedding);
  const std::size_t row_bytes =
      embedding_->data.size() / static_cast<std::size_t>(config_.vocabulary);
  std::vector<float> stream(tokens.size() * width);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::size_t at = static_cast<std::size_t>(tokens[i]) * row_bytes;
    expand(embedding_->type, embedding_->data.subspan(at, row_bytes),
           {stream.data() + i * width, width});
  }
  if (config_.embedding_scale != 1.0f) {
    for (float& value : stream) value *= config_.embedding_scale;
  }
  return stream;
}

Result<void> Model::run_layers(Step& step, const Batch& batch, int first, int last,
                               std::vector<float>& stream, const Attention& attention) const {
  const std::size_t expected = batch.tokens.size() * static_cast<std::size_t>(config_.embedding);
  if (stream.size() != expected) {
    return refuse("forward: a stream of {} numbers for {} tokens of {}", stream.size(),
                  batch.tokens.size(), config_.embedding);
  }
  if (first < 0 || first > last || last > static_cast<int>(layers_.size())) {
    return refuse("forward: layers [{}, {}) of {}", first, last, layers_.size());
  }
  Pass pass(*this, step, batch, attention, stream);
  for (int layer = first; layer < last; ++layer) MODEL_CHECK(pass.run_layer(layer));
  return {};
}

Result<void> Model::predict(const std::vector<float>& stream, std::span<const std::int64_t> rows,
                            float* logits) const {
  const auto width = static_cast<std::size_t>(config_.embedding);
  MODEL_CHECK(check_rows(rows, stream.size() / width));
  if (rows.empty()) return {};
  std::vector<float> x(rows.size() * width);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::span<const float> row(stream.data() + static_cast<std::size_t>(rows[i]) * width,
                                     width);
    for (const float value : row) {
      if (!std::isfinite(value)) {
        return Error{ErrorCode::non_finite,
                     fmt::format("forward: row {} is not finite after the last layer", rows[i])};
      }
    }
    rms_norm(row, output_norm_, config_.norm_epsilon, x.data() + i * width);
  }
  output_->apply(x.data(), static_cast<std::int64_t>(rows.size()), logits);
  if (config_.output_soft_cap > 0) {
    soft_cap({logits, rows.size() * static_cast<std::size_t>(config_.vocabulary)},
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
  MODEL_CHECK(check_rows(rows, tokens.size()));
  MODEL_TRY(std::vector<float> stream, embed(tokens));
  MODEL_CHECK(run_layers(step, batch, 0, static_cast<int>(layers_.size()), stream, attention));
  return predict(stream, rows, logits);
}

}  // namespace quire::model
