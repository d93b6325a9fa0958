// A sampler chooses the next token from a row of logits.
//
// With temperature 0 it takes the largest logit; the generator is not used. Otherwise, in this
// order:
//
//     temperature  logits are divided by it
//     top_k        the k largest stay
//     top_p        of the probabilities of those, largest first, as many stay as reach p together
//     min_p        those stay whose probability is at least min_p times the largest
//     choice       one of the rest, by its probability
//
// Of equal logits the lowest id comes first, everywhere. At least one token stays at each stage. A
// logit of minus infinity is a token that must not come. The same seed and the same logits give the
// same tokens on every machine: the generator is integer arithmetic, and probabilities are made of
// additions, multiplications and divisions of doubles in a fixed order, without the exponential
// function of the system, whose last bit differs between systems.
//
// Thread-safety: none; a sampler belongs to one sequence. Copies go on independently from the same
// state.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quire/result.hpp"

namespace quire::model {

struct SamplerOptions {
  double temperature = 0;  // 0: the largest logit
  int top_k = 0;           // 0: all
  double top_p = 1;        // in (0, 1]; 1: all
  double min_p = 0;        // in [0, 1]; 0: all
  std::uint64_t seed = 0;
};

class Sampler {
 public:
  // Refuses options outside their ranges.
  static Result<Sampler> create(const SamplerOptions& options);

  // The index of the chosen logit. Refused, with the state as it was: no logits, a NaN, plus
  // infinity, or nothing but minus infinity.
  // Cost: linear in the logits; with top_p and no top_k they are sorted.
  Result<int> choose(std::span<const float> logits);

 private:
  struct Candidate {
    float logit;
    int id;
    double weight;  // its probability times a constant
  };

  explicit Sampler(const SamplerOptions& options) : options_(options), state_(options.seed) {}

  void keep_top_k();
  void weigh();
  void keep_top_p();
  void keep_min_p();
  double draw();

  SamplerOptions options_;
  std::uint64_t state_;
  std::vector<Candidate> candidates_;  // of the call in progress; the largest first once sorted
};

}  // namespace quire::model
