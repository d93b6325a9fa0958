#include "tiny_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace quire::model::test {
namespace {

// The bits of a number that f16 has, and that is not subnormal there.
std::uint16_t f16_bits(float value) {
  if (value == 0) return 0;
  int exponent = 0;
  const float fraction = std::frexp(std::abs(value), &exponent);  // in [0.5, 1)
  const int bits = (exponent + 14) << 10 | (static_cast<int>(fraction * 2048) - 1024);
  return static_cast<std::uint16_t>(bits | (value < 0 ? 0x8000 : 0));
}

}  // namespace

TinyModel::TinyModel(const TinySpec& spec, std::uint64_t seed) : spec_(spec), state_(seed) {
  const std::string prefix = spec.architecture + ".";
  const auto add = [&](const char* key, int value) {
    writer_.add(prefix + key, static_cast<std::uint32_t>(value));
  };
  writer_.add("general.architecture", spec.architecture);
  writer_.add("general.name", "tiny");
  add("block_count", spec.layers);
  add("context_length", 512);
  add("embedding_length", spec.width);
  add("feed_forward_length", spec.feed_forward);
  add("attention.head_count", spec.heads);
  add("attention.head_count_kv", spec.kv_heads);
  if (spec.dim * spec.heads != spec.width) {
    add("attention.key_length", spec.dim);
    add("attention.value_length", spec.dim);
  }
  writer_.add(prefix + "attention.layer_norm_rms_epsilon", 1e-5f);
  writer_.add(prefix + "rope.freq_base", static_cast<float>(spec.rope_base));
  std::vector<std::string> tokens;
  for (int i = 0; i < spec.vocabulary; ++i) tokens.push_back(fmt::format("t{}", i));
  writer_.add("tokenizer.ggml.model", "gpt2");
  writer_.add("tokenizer.ggml.pre", "smollm");
  writer_.add("tokenizer.ggml.tokens", tokens);

  const int width = spec.width;
  add_matrix("token_embd.weight", width, spec.vocabulary, 1);
  for (int i = 0; i < spec.layers; ++i) {
    const auto matrix = [&](const char* name, int inputs, int outputs) {
      add_matrix(in_layer(i, name) + ".weight", inputs, outputs, 1.5 / std::sqrt(inputs));
    };
    matrix("attn_q", width, spec.heads * spec.dim);
    matrix("attn_k", width, spec.kv_heads * spec.dim);
    matrix("attn_v", width, spec.kv_heads * spec.dim);
    matrix("attn_output", spec.heads * spec.dim, width);
    matrix("ffn_gate", width, spec.feed_forward);
    matrix("ffn_up", width, spec.feed_forward);
    matrix("ffn_down", spec.feed_forward, width);
    add_vector(in_layer(i, "attn_norm.weight"), width, 1, 0.2);
    add_vector(in_layer(i, "ffn_norm.weight"), width, 1, 0.2);
    if (spec.has_bias) {
      add_vector(in_layer(i, "attn_q.bias"), spec.heads * spec.dim, 0, 0.5);
      add_vector(in_layer(i, "attn_k.bias"), spec.kv_heads * spec.dim, 0, 0.5);
      add_vector(in_layer(i, "attn_v.bias"), spec.kv_heads * spec.dim, 0, 0.5);
    }
    if (spec.has_qk_norm) {
      add_vector(in_layer(i, "attn_q_norm.weight"), spec.dim, 1, 0.2);
      add_vector(in_layer(i, "attn_k_norm.weight"), spec.dim, 1, 0.2);
    }
    if (spec.has_after_norm) {
      add_vector(in_layer(i, "post_attention_norm.weight"), width, 1, 0.2);
      add_vector(in_layer(i, "post_ffw_norm.weight"), width, 1, 0.2);
    }
  }
  add_vector("output_norm.weight", width, 1, 0.2);
  if (spec.has_own_output) {
    add_matrix("output.weight", width, spec.vocabulary, 1 / std::sqrt(width));
  }
}

std::string TinyModel::in_layer(int layer, const char* name) const {
  return fmt::format("blk.{}.{}", layer, name);
}

void TinyModel::add_matrix(const std::string& name, int inputs, int outputs, double deviation) {
  std::mt19937_64 random(state_++);
  std::normal_distribution<float> normal(0, static_cast<float>(deviation));
  std::vector<float> values(static_cast<std::size_t>(inputs * outputs));
  std::vector<std::byte> halves;
  for (float& value : values) {
    value = normal(random);
    if (!spec_.stores_f16) continue;
    value = std::round(std::clamp(value, -4.0f, 4.0f) * 256) / 256;
    const std::uint16_t bits = f16_bits(value);
    halves.push_back(static_cast<std::byte>(bits & 255));
    halves.push_back(static_cast<std::byte>(bits >> 8));
  }
  const std::vector<std::uint64_t> shape = {static_cast<std::uint64_t>(inputs),
                                            static_cast<std::uint64_t>(outputs)};
  if (spec_.stores_f16) {
    writer_.add_tensor(name, shape, 1, halves);
  } else {
    writer_.add_f32(name, shape, values);
  }
  Matrix& matrix = matrices_[name];
  for (int i = 0; i < outputs; ++i) {
    matrix.emplace_back(values.begin() + i * inputs, values.begin() + (i + 1) * inputs);
  }
}

void TinyModel::add_vector(const std::string& name, int size, double mean, double deviation) {
  std::mt19937_64 random(state_++);
  std::normal_distribution<float> normal(static_cast<float>(mean), static_cast<float>(deviation));
  std::vector<float> values(static_cast<std::size_t>(size));
  for (float& value : values) value = normal(random);
  writer_.add_f32(name, {static_cast<std::uint64_t>(size)}, values);
  matrices_[name] = {Row(values.begin(), values.end())};
}

TinyModel::Row TinyModel::apply(const std::string& name, const Row& x) const {
  Row y;
  for (const Row& weights : matrices_.at(name + ".weight")) {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += weights[i] * x[i];
    y.push_back(sum);
  }
  if (const auto bias = matrices_.find(name + ".bias"); bias != matrices_.end()) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias->second[0][i];
  }
  return y;
}

TinyModel::Row TinyModel::norm(const std::string& name, const Row& x) const {
  const Row& weight = matrices_.at(name)[0];
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
  Row y;
  for (std::size_t i = 0; i < x.size(); ++i) y.push_back(x[i] * scale * weight[i]);
  return y;
}

void TinyModel::turn(Row& head, int layer, std::size_t position) const {
  const int half = spec_.dim / 2;
  const auto index = static_cast<std::size_t>(layer);
  const double base = spec_.rope_bases.empty() ? spec_.rope_base : spec_.rope_bases[index];
  const bool is_plain = base != spec_.rope_base;
  for (int i = 0; i < half; ++i) {
    double angle = static_cast<double>(position) * std::pow(base, -2.0 * i / spec_.dim);
    if (!is_plain) angle *= spec_.rope_scale;
    if (!is_plain && !spec_.rope_factors.empty()) {
      angle /= spec_.rope_factors[static_cast<std::size_t>(i)];
    }
    const auto a = static_cast<std::size_t>(spec_.is_interleaved ? 2 * i : i);
    const auto b = static_cast<std::size_t>(spec_.is_interleaved ? 2 * i + 1 : i + half);
    const double x = head[a] * spec_.rope_magnitude;
    const double y = head[b] * spec_.rope_magnitude;
    head[a] = x * std::cos(angle) - y * std::sin(angle);
    head[b] = x * std::sin(angle) + y * std::cos(angle);
  }
}

void TinyModel::attend(int layer, Matrix& stream) const {
  const auto dim = static_cast<std::size_t>(spec_.dim);
  // The heads of a projection, each [tokens][dim].
  const auto heads_of = [&](const char* name, int count, bool turns) {
    std::vector<Matrix> heads(static_cast<std::size_t>(count));
    for (std::size_t t = 0; t < stream.size(); ++t) {
      const Row x = norm(in_layer(layer, "attn_norm.weight"), stream[t]);
      const Row all = apply(in_layer(layer, name), x);
      for (std::size_t h = 0; h < heads.size(); ++h) {
        Row head(all.begin() + static_cast<std::ptrdiff_t>(h * dim),
                 all.begin() + static_cast<std::ptrdiff_t>((h + 1) * dim));
        if (turns && spec_.has_qk_norm) {
          head = norm(in_layer(layer, name) + "_norm.weight", head);
        }
        if (turns) turn(head, layer, t);
        heads[h].push_back(head);
      }
    }
    return heads;
  };
  const std::vector<Matrix> queries = heads_of("attn_q", spec_.heads, true);
  const std::vector<Matrix> keys = heads_of("attn_k", spec_.kv_heads, true);
  const std::vector<Matrix> values = heads_of("attn_v", spec_.kv_heads, false);
  const int window = spec_.windows.empty() ? 0 : spec_.windows[static_cast<std::size_t>(layer)];
  for (std::size_t t = 0; t < stream.size(); ++t) {
    const auto seen = static_cast<std::size_t>(window > 0 ? window : 1 << 30);
    const std::size_t first = t + 1 > seen ? t + 1 - seen : 0;
    Row mixed;
    for (std::size_t h = 0; h < queries.size(); ++h) {
      const std::size_t kv = h * keys.size() / queries.size();
      Row weights;
      double sum = 0;
      for (std::size_t j = first; j <= t; ++j) {
        double logit = 0;
        for (std::size_t c = 0; c < dim; ++c) logit += queries[h][t][c] * keys[kv][j][c];
        logit /= std::sqrt(static_cast<double>(dim));
        if (spec_.attention_cap > 0) {
          logit = spec_.attention_cap * std::tanh(logit / spec_.attention_cap);
        }
        weights.push_back(std::exp(logit));
        sum += weights.back();
      }
      for (std::size_t c = 0; c < dim; ++c) {
        double value = 0;
        for (std::size_t j = first; j <= t; ++j) {
          value += weights[j - first] / sum * values[kv][j][c];
        }
        mixed.push_back(value);
      }
    }
    Row part = apply(in_layer(layer, "attn_output"), mixed);
    if (spec_.has_after_norm) part = norm(in_layer(layer, "post_attention_norm.weight"), part);
    for (std::size_t i = 0; i < part.size(); ++i) stream[t][i] += part[i];
  }
}

void TinyModel::feed(int layer, Matrix& stream) const {
  for (Row& row : stream) {
    const Row x = norm(in_layer(layer, "ffn_norm.weight"), row);
    Row gate = apply(in_layer(layer, "ffn_gate"), x);
    const Row up = apply(in_layer(layer, "ffn_up"), x);
    for (std::size_t i = 0; i < gate.size(); ++i) {
      const double v = gate[i];
      const double gelu =
          0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
      gate[i] = (spec_.is_gelu ? gelu : v / (1 + std::exp(-v))) * up[i];
    }
    Row part = apply(in_layer(layer, "ffn_down"), gate);
    if (spec_.has_after_norm) part = norm(in_layer(layer, "post_ffw_norm.weight"), part);
    for (std::size_t i = 0; i < part.size(); ++i) row[i] += part[i];
  }
}

std::vector<std::vector<double>> TinyModel::logits(const std::vector<int>& tokens) const {
  Matrix stream;
  for (const int token : tokens) {
    Row row = matrices_.at("token_embd.weight")[static_cast<std::size_t>(token)];
    for (double& value : row) value *= spec_.embedding_scale;
    stream.push_back(row);
  }
  for (int layer = 0; layer < spec_.layers; ++layer) {
    attend(layer, stream);
    feed(layer, stream);
  }
  Matrix result;
  for (const Row& row : stream) {
    Row logits =
        apply(spec_.has_own_output ? "output" : "token_embd", norm("output_norm.weight", row));
    for (double& logit : logits) {
      if (spec_.output_cap > 0) logit = spec_.output_cap * std::tanh(logit / spec_.output_cap);
    }
    result.push_back(logits);
  }
  return result;
}

}  // namespace quire::model::test
