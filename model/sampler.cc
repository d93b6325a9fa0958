#include "model/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/error.h"

namespace quire::model {
namespace {

// e^x for x <= 0, to the last bits: x = k ln 2 + r with |r| <= ln 2 / 2, a Taylor sum in r whose
// first term left out is below r^14 / 14! = 4e-18, and a scaling that is exact. Below 2^-1000 it is
// 0.
double exponential(double x) {
  constexpr double kLn2High = 0x1.62e42fee00000p-1;  // its last 21 bits are 0: k times it is exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr double kPerLn2 = 0x1.71547652b82fep+0;
  if (x < -693) return 0;
  const double k = std::floor(x * kPerLn2 + 0.5);
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double sum = 1;
  for (int i = 13; i > 0; --i) sum = 1 + sum * r / i;
  return std::ldexp(sum, static_cast<int>(k));
}

}  // namespace

Result<Sampler> Sampler::create(const SamplerOptions& options) {
  // Written so that NaN is refused.
  if (!(options.temperature >= 0 && std::isfinite(options.temperature))) {
    return refuse("sampler: temperature {} is not a number from 0 up", options.temperature);
  }
  if (options.top_k < 0) return refuse("sampler: top_k {} is below 0", options.top_k);
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return refuse("sampler: top_p {} is not above 0 and at most 1", options.top_p);
  }
  if (!(options.min_p >= 0 && options.min_p <= 1)) {
    return refuse("sampler: min_p {} is not from 0 to 1", options.min_p);
  }
  return Sampler(options);
}

Result<int> Sampler::choose(std::span<const float> logits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  candidates_.clear();
  std::size_t largest = 0;  // the first of the largest candidates
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == kInfinity) {
      return Error{ErrorCode::non_finite,
                   fmt::format("sampler: logit {} of {} is {}", i, logits.size(), logits[i])};
    }
    if (logits[i] == -kInfinity) continue;
    candidates_.push_back({logits[i], static_cast<int>(i), 0});
    if (logits[i] > candidates_[largest].logit) largest = candidates_.size() - 1;
  }
  if (candidates_.empty()) {
    return refuse("sampler: none of {} logits is above minus infinity", logits.size());
  }
  if (options_.temperature == 0) return candidates_[largest].id;

  keep_top_k();
  weigh();
  keep_top_p();
  keep_min_p();
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  double left = draw() * total;
  const Candidate* chosen = &candidates_.front();
  for (const Candidate& candidate : candidates_) {
    if (candidate.weight > 0) chosen = &candidate;  // rounding may leave a rest after the last
    left -= candidate.weight;
    if (left < 0) break;
  }
  return chosen->id;
}

// Sorts where a later stage asks for an order.
void Sampler::keep_top_k() {
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  const auto k = static_cast<std::ptrdiff_t>(options_.top_k);
  const auto size = static_cast<std::ptrdiff_t>(candidates_.size());
  if (k > 0 && k < size) {
    const auto end = candidates_.begin() + k;
    std::nth_element(candidates_.begin(), end, candidates_.end(), before);
    candidates_.erase(end, candidates_.end());
  } else if (options_.top_p == 1) {
    return;
  }
  std::sort(candidates_.begin(), candidates_.end(), before);
}

void Sampler::weigh() {
  float largest = candidates_.front().logit;
  for (const Candidate& candidate : candidates_) largest = std::max(largest, candidate.logit);
  for (Candidate& candidate : candidates_) {
    const double below = double{candidate.logit} - double{largest};
    candidate.weight = exponential(below / options_.temperature);
  }
}

void Sampler::keep_top_p() {
  if (options_.top_p == 1) return;
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  double sum = 0;
  std::size_t kept = 0;
  while (kept < candidates_.size() && (kept == 0 || sum < options_.top_p * total)) {
    sum += candidates_[kept++].weight;
  }
  candidates_.resize(kept);
}

// The largest weight is 1.
void Sampler::keep_min_p() {
  std::erase_if(candidates_,
                [&](const Candidate& candidate) { return candidate.weight < options_.min_p; });
}

// In [0, 1), by SplitMix64.
double Sampler::draw() {
  state_ += 0x9e3779b97f4a7c15;
  std::uint64_t bits = state_;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
  bits ^= bits >> 31;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace quire::model
