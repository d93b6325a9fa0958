#include "distortion.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace quire::tool {
namespace {

constexpr double kBiasNorm = 605;  // the first layer of Qwen2.5 7B
constexpr int kBiasPairs = 4;
constexpr double kRopeBase = 1e6;
constexpr float kNormSigma = 0.3f;
constexpr int kOutlierEvery = 16;
constexpr float kOutlier = 8;

class Noise {
 public:
  explicit Noise(std::uint32_t seed) : engine_(seed) {}
  float next() { return normal_(engine_); }

 private:
  std::mt19937 engine_;
  std::normal_distribution<float> normal_;
};

double dot(const float* a, const float* b, int dim) {
  double sum = 0;
  for (int c = 0; c < dim; ++c) sum += static_cast<double>(a[c]) * static_cast<double>(b[c]);
  return sum;
}

// Calls f(exact row, decoded row) for all.
template <typename F>
void for_each_pair(const Rows& exact, const Rows& decoded, F&& f) {
  for (std::int64_t token = 0; token < exact.tokens; ++token) {
    for (int head = 0; head < exact.heads; ++head) {
      f(exact.at(token, head), decoded.at(token, head));
    }
  }
}

// Of one head, before the softmax and after it in logarithms.
std::vector<double> log_weights(const Rows& keys, int head, const std::vector<float>& query) {
  std::vector<double> logits;
  const double scale = 1 / std::sqrt(static_cast<double>(keys.dim));
  for (std::int64_t token = 0; token < keys.tokens; ++token) {
    logits.push_back(scale * dot(query.data(), keys.at(token, head), keys.dim));
  }
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - top);
  for (double& logit : logits) logit -= top + std::log(sum);
  return logits;
}

}  // namespace

Rows gaussian_rows(std::int64_t tokens, int heads, int dim, std::uint32_t seed) {
  Rows rows(tokens, heads, dim);
  Noise noise(seed);
  for (float& number : rows.data) number = noise.next();
  return rows;
}

Rows biased_rows(std::int64_t tokens, int heads, int dim, std::uint32_t seed) {
  Rows rows = gaussian_rows(tokens, heads, dim, seed);
  const int half = dim / 2;
  Noise noise(seed + 1);
  for (int head = 0; head < heads; ++head) {
    std::vector<float> bias(static_cast<std::size_t>(dim));
    for (int pair = half - kBiasPairs; pair < half; ++pair) {
      bias[static_cast<std::size_t>(pair)] = noise.next();
      bias[static_cast<std::size_t>(pair + half)] = noise.next();
    }
    const double norm = std::sqrt(dot(bias.data(), bias.data(), dim));
    for (std::int64_t token = 0; token < tokens; ++token) {
      float* row = rows.at(token, head);
      for (int c = 0; c < dim; ++c) {
        row[c] += static_cast<float>(kBiasNorm / norm) * bias[static_cast<std::size_t>(c)];
      }
      for (int pair = 0; pair < half; ++pair) {
        const double angle = static_cast<double>(token) * std::pow(kRopeBase, -2.0 * pair / dim);
        const double a = row[pair];
        const double b = row[pair + half];
        row[pair] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
        row[pair + half] = static_cast<float>(a * std::sin(angle) + b * std::cos(angle));
      }
    }
  }
  return rows;
}

Rows uneven_rows(std::int64_t tokens, int heads, int dim, std::uint32_t seed) {
  Rows rows = gaussian_rows(tokens, heads, dim, seed);
  Noise noise(seed + 1);
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (int head = 0; head < heads; ++head) {
      const float length = std::exp(kNormSigma * noise.next());
      float* row = rows.at(token, head);
      for (int c = 0; c < dim; ++c) row[c] *= c % kOutlierEvery == 0 ? kOutlier * length : length;
    }
  }
  return rows;
}

double relative_mse(const Rows& exact, const Rows& decoded) {
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < exact.data.size(); ++i) {
    const double x = exact.data[i];
    const double difference = decoded.data[i] - x;
    error += difference * difference;
    norm += x * x;
  }
  return error / norm;
}

double inner_product_bias(const Rows& exact, const Rows& decoded) {
  Noise noise(11);
  std::vector<float> q(static_cast<std::size_t>(exact.dim));
  double found = 0;
  double expected = 0;
  for_each_pair(exact, decoded, [&](const float* x, const float* coded) {
    for (int c = 0; c < exact.dim; ++c) q[static_cast<std::size_t>(c)] = x[c] + noise.next();
    found += dot(q.data(), coded, exact.dim);
    expected += dot(q.data(), x, exact.dim);
  });
  return found / expected - 1;
}

double inner_product_variance(const Rows& exact, const Rows& decoded) {
  Noise noise(12);
  std::vector<float> q(static_cast<std::size_t>(exact.dim));
  double sum = 0;
  double squares = 0;
  for_each_pair(exact, decoded, [&](const float* x, const float* coded) {
    for (float& number : q) number = noise.next();
    const double lengths = dot(q.data(), q.data(), exact.dim) * dot(x, x, exact.dim);
    const double error =
        (dot(q.data(), coded, exact.dim) - dot(q.data(), x, exact.dim)) / std::sqrt(lengths);
    sum += error;
    squares += error * error;
  });
  const double count = static_cast<double>(exact.tokens) * exact.heads;
  return exact.dim * (squares / count - sum / count * sum / count);
}

double attention_kl(const Rows& exact, const Rows& decoded, int queries) {
  Noise noise(13);
  std::vector<float> q(static_cast<std::size_t>(exact.dim));
  double divergence = 0;
  for (int head = 0; head < exact.heads; ++head) {
    for (int i = 0; i < queries; ++i) {
      for (float& number : q) number = noise.next();
      const std::vector<double> right = log_weights(exact, head, q);
      const std::vector<double> coded = log_weights(decoded, head, q);
      for (std::size_t t = 0; t < right.size(); ++t) {
        divergence += std::exp(right[t]) * (right[t] - coded[t]);
      }
    }
  }
  return divergence / exact.heads / queries;
}

}  // namespace quire::tool
