// The best choice under a budget: every place takes one of its offers, each with bytes and a loss;
// both add up.
//
// Exact, by dynamic programming over bytes. Bytes count in units of what the offers' differences
// have in common; where that would make more than 65,536 steps, offers are rounded up to coarser
// units, so that a budget still holds but some of it may be left.
#pragma once

#include <cstddef>
#include <vector>

#include "quire/result.hpp"

namespace quire::model {

struct Offer {
  std::size_t bytes = 0;
  double loss = 0;
};

using Offers = std::vector<std::vector<Offer>>;  // of every place, at least one

struct Choice {
  std::vector<std::size_t> taken;  // per place, which of its offers
  std::size_t bytes = 0;
  double loss = 0;
};

// The least loss with at most that many bytes; refused when the smallest offers take more.
Result<Choice> least_loss(const Offers& places, std::size_t most_bytes);

// The fewest bytes with at most that loss; refused when the best offers lose more.
Result<Choice> fewest_bytes(const Offers& places, double most_loss);

}  // namespace quire::model
