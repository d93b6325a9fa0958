// Turning keys and queries by a distance, for rotary embeddings whose angle is linear in the
// position.
#pragma once

#include <cstdint>
#include <vector>

#include "quire/spec.hpp"

namespace quire {

class RopeTurner {
 public:
  RopeTurner() = default;
  // Requires: a checked Rope; dim is the key size.
  RopeTurner(const Rope& rope, int dim);

  // The rotation by `distance` positions: [pairs] cosines, then [pairs] sines. Angles are made in
  // double, so that a distance of a million positions loses nothing.
  std::vector<float> angles(std::int64_t distance) const;
  // Turns one head's channels in place.
  void apply(const std::vector<float>& angles, float* head) const noexcept;

 private:
  std::vector<double> frequencies_;  // radians per position and pair
  int offset_ = 0;
  int first_step_ = 0;  // pair i = (offset + i * first_step, ... + pair_step)
  int pair_step_ = 0;
};

}  // namespace quire
