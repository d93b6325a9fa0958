#include "model/ops.h"

#include <algorithm>
#include <cmath>

namespace quire::model {
namespace {

constexpr std::size_t kLanes = 16;

// Sums f(i) for i < count in 16 lanes, folded in double.
template <typename F>
double sum_lanes(std::size_t count, F f) {
  constexpr std::size_t kBlock = 1024;  // f32 sums stay short, whatever the row's length
  double total = 0;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, count);
    float lanes[kLanes] = {};
    std::size_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += f(i + lane);
    }
    for (; i < end; ++i) lanes[i % kLanes] += f(i);
    for (const float lane : lanes) total += lane;
  }
  return total;
}

float max_lanes(std::span<const float> x) {
  float lanes[kLanes];
  std::fill(std::begin(lanes), std::end(lanes), x[0]);
  std::size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
    }
  }
  for (; i < x.size(); ++i) lanes[0] = std::max(lanes[0], x[i]);
  return *std::max_element(std::begin(lanes), std::end(lanes));
}

}  // namespace

void rms_norm(std::span<const float> x, std::span<const float> weight, float epsilon, float* out) {
  const double squares = sum_lanes(x.size(), [&](std::size_t i) { return x[i] * x[i]; });
  const float scale =
      1.0f / std::sqrt(static_cast<float>(squares / static_cast<double>(x.size())) + epsilon);
  for (std::size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weight[i];
}

Rotator::Rotator(const Rope& rope, float magnitude, std::span<const std::int64_t> positions)
    : pairs_(rope.pairs), offset_(rope.offset), size_(rope.size) {
  std::vector<double> powers;
  for (int i = 0; i < size_ / 2; ++i) powers.push_back(std::pow(rope.base, -2.0 * i / size_));
  for (const std::int64_t position : positions) {
    for (std::size_t i = 0; i < powers.size(); ++i) {
      double angle = static_cast<double>(position) * rope.frequency_scale * powers[i];
      if (!rope.factors.empty()) angle /= rope.factors[i];
      cosines_.push_back(static_cast<float>(std::cos(angle)) * magnitude);
      sines_.push_back(static_cast<float>(std::sin(angle)) * magnitude);
    }
  }
}

void Rotator::apply(std::size_t position, float* row, int heads, int dim) const {
  const int half = size_ / 2;
  const int step = pairs_ == Rope::Pairs::interleaved ? 2 : 1;      // from one pair to the next
  const int apart = pairs_ == Rope::Pairs::interleaved ? 1 : half;  // inside a pair
  const float* cosines = cosines_.data() + position * static_cast<std::size_t>(half);
  const float* sines = sines_.data() + position * static_cast<std::size_t>(half);
  for (int head = 0; head < heads; ++head, row += dim) {
    float* channel = row + offset_;
    for (int i = 0; i < half; ++i, channel += step) {
      const float a = channel[0];
      const float b = channel[apart];
      channel[0] = a * cosines[i] - b * sines[i];
      channel[apart] = a * sines[i] + b * cosines[i];
    }
  }
}

void gate_silu(const float* gate, const float* up, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = gate[i] / (1.0f + fast_exp(-gate[i])) * up[i];
  }
}

void gate_gelu(const float* gate, const float* up, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) {
    // x (1 + tanh(y)) / 2 = x / (1 + exp(-2 y))
    const float x = gate[i];
    const float y = 0.797884561f * x * (1.0f + 0.044715f * x * x);
    out[i] = x / (1.0f + fast_exp(-2.0f * y)) * up[i];
  }
}

void soft_cap(std::span<float> x, float cap) {
  for (float& value : x) value = cap * std::tanh(value / cap);
}

void log_softmax(std::span<float> x) {
  const float largest = max_lanes(x);
  const double sum = sum_lanes(x.size(), [&](std::size_t i) { return fast_exp(x[i] - largest); });
  const float shift = static_cast<float>(largest + std::log(sum));
  for (float& value : x) value -= shift;
}

double divergence(std::span<const float> p, std::span<const float> q) {
  return sum_lanes(p.size(), [&](std::size_t i) { return fast_exp(p[i]) * (p[i] - q[i]); });
}

std::size_t argmax(std::span<const float> x) {
  const auto found = std::find(x.begin(), x.end(), max_lanes(x));
  return found == x.end() ? 0 : static_cast<std::size_t>(found - x.begin());
}

}  // namespace quire::model
