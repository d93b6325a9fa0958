// A rotation by a distance is one angle per pair of channels. Rotations of a pair add up, so keys
// rotated for position p and turned by d are keys rotated for p + d, and a dot product of a query
// and a key, both turned by d, is unchanged.
#include "attend/rope.h"

#include <cmath>

namespace quire {

RopeTurner::RopeTurner(const Rope& rope, int dim) : offset_(rope.offset) {
  const int size = rope.size > 0 ? rope.size : dim - rope.offset;
  const int pairs = size / 2;
  const bool halves = rope.pairs == Rope::Pairs::halves;
  first_step_ = halves ? 1 : 2;
  pair_step_ = halves ? pairs : 1;
  frequencies_.reserve(static_cast<std::size_t>(pairs));
  for (int i = 0; i < pairs; ++i) {
    const double factor = rope.factors.empty() ? 1.0 : rope.factors[static_cast<std::size_t>(i)];
    frequencies_.push_back(rope.frequency_scale * std::pow(rope.base, -2.0 * i / size) / factor);
  }
}

std::vector<float> RopeTurner::angles(std::int64_t distance) const {
  const std::size_t pairs = frequencies_.size();
  std::vector<float> result(2 * pairs);
  for (std::size_t i = 0; i < pairs; ++i) {
    const double angle = static_cast<double>(distance) * frequencies_[i];
    result[i] = static_cast<float>(std::cos(angle));
    result[pairs + i] = static_cast<float>(std::sin(angle));
  }
  return result;
}

void RopeTurner::apply(const std::vector<float>& angles, float* head) const noexcept {
  const std::size_t pairs = frequencies_.size();
  const float* cosines = angles.data();
  const float* sines = cosines + pairs;
  float* first = head + offset_;
  for (std::size_t i = 0; i < pairs; ++i, first += first_step_) {
    const float x = first[0];
    const float y = first[pair_step_];
    first[0] = x * cosines[i] - y * sines[i];
    first[pair_step_] = x * sines[i] + y * cosines[i];
  }
}

}  // namespace quire
