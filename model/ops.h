// The parts of a layer that are not products: norms, rotation, gates, softmax. All in f32, on rows.
//
// Loops are written in 16 lanes with no branches, so that the compiler makes vectors of them for
// any instruction set; sums and maxima then run in that fixed order.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quire/spec.hpp"

namespace quire::model {

// exp(x) to about 2 units in the last place for x in [-87, 88]; 0 below, and the value at 88 above.
// Requires: x is not NaN.
inline float fast_exp(float x) {
  const float limited = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);
  // 2^n e^r with n the nearest whole number: adding 1.5 * 2^23 rounds.
  const float shifted = limited * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = limited - n * 0.693145752f - n * 1.42860677e-6f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const std::uint32_t power = (std::bit_cast<std::uint32_t>(shifted) + 127u) << 23;
  return x < -87.0f ? 0.0f : p * std::bit_cast<float>(power);
}

// out = x / sqrt(mean(x^2) + epsilon) * weight. `out` may be `x`.
void rms_norm(std::span<const float> x, std::span<const float> weight, float epsilon, float* out);

// Turns rows by a Rope. The sines of a batch's positions are computed once, in double.
class Rotator {
 public:
  Rotator(const Rope& rope, float magnitude, std::span<const std::int64_t> positions);
  // Turns the channels of the rotary part of one row, [heads][dim], in place, for the position of
  // that number.
  void apply(std::size_t position, float* row, int heads, int dim) const;

 private:
  Rope::Pairs pairs_;
  int offset_;
  int size_;                    // channels
  std::vector<float> cosines_;  // [positions][size / 2]
  std::vector<float> sines_;
};

// out = silu(gate) * up, element by element; or gelu, in its tanh form. `out` may be `gate`.
void gate_silu(const float* gate, const float* up, std::size_t count, float* out);
void gate_gelu(const float* gate, const float* up, std::size_t count, float* out);

// x = cap * tanh(x / cap).
void soft_cap(std::span<float> x, float cap);

// x = x - log(sum exp(x)).
void log_softmax(std::span<float> x);

// sum exp(p) (p - q) of two rows of log-probabilities: KL(p || q) in nats.
double divergence(std::span<const float> p, std::span<const float> q);

// The first place of the largest element; some place when there are NaNs. Requires: not empty.
std::size_t argmax(std::span<const float> x);

}  // namespace quire::model
