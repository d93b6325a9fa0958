// How a model's predictions suffer when one side of one layer is coded: a place and its codecs.
//
// The loss of a codec at a place is KL(f16 || coded) of predictions, in nats, with that side of
// that layer coded and all else in f16. Losses of places nearly add up, so that they say what an
// assignment costs. They are found from chunks of text, whose second halves are predicted as in
// evaluate:
//
// - A pass in f16 keeps the residual stream before each layer: a pass with one layer coded starts
//   there, and its predictions are compared with those of f16.
// - In the same pass the queries, keys and values of each layer meet every codec, in a cache of
//   that layer alone. The mean square of what changes in the layer's attention is a codec's noise.
//   This is cheap: no products of weights.
// - Loss over noise is nearly the same for all codecs of a place. So a place's loss is measured
//   with one codec per chunk, and the others' follow from their noise; of several measurements
//   those with a noise near the codec's own count most.
//
// Thread-safety: none; one thread measures.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/model.h"
#include "quire/cache.hpp"

namespace quire::model {

// One codec at one place.
struct Candidate {
  std::string codec;
  std::size_t page_bytes = 0;  // of sealed pages, with scales
  double noise = 0;            // mean over the chunks so far; 0 for f16
};

struct Measurement {
  std::size_t candidate = 0;
  double noise = 0;  // on the same chunk
  double loss = 0;
};

struct Place {
  int layer = 0;
  Side side = Side::key;
  std::size_t page_values = 0;        // numbers of a page
  std::vector<Candidate> candidates;  // f16, and all with kernels that take fewer bytes
  std::vector<Measurement> measured;

  double bits_of(std::size_t candidate) const {
    return 8.0 * static_cast<double>(candidates[candidate].page_bytes) /
           static_cast<double>(page_values);
  }
  // What a candidate costs, by what was measured so far: 0 for f16, infinite where nothing tells.
  double loss_of(std::size_t candidate) const;
};

class Sensitivity {
 public:
  // `context` is the tokens of a chunk: two pages at least, so that every prediction reads coded
  // ones.
  static Result<Sensitivity> create(const Model& model, std::int64_t context);

  const std::vector<Place>& places() const { return places_; }

  // Takes a chunk: the pass in f16, and the noise of all candidates. On an error there is no chunk
  // to measure on.
  Result<void> observe(std::span<const int> chunk);
  // Measures, on that chunk, the loss of a candidate of a place.
  Result<void> measure(std::size_t place, std::size_t candidate);

 private:
  Sensitivity(const Model& model, std::int64_t context) : model_(&model), context_(context) {}

  Result<void> add_noise(Step& step, int layer, SequenceId sequence, const TensorView& q,
                         const OutputView& exact);
  // Log-probabilities of a chunk's second half, from a stream that has run all layers.
  Result<void> predict(const std::vector<float>& stream, std::vector<float>& predictions) const;

  const Model* model_;
  std::int64_t context_;
  std::int64_t chunks_ = 0;
  std::vector<Place> places_;                // [layer][side]
  std::vector<std::vector<double>> noises_;  // of the last chunk, [place][candidate]
  std::vector<std::vector<float>> streams_;  // before each layer, [tokens][embedding]
  std::vector<float> exact_;                 // [context / 2][vocabulary], of f16
  std::vector<float> coded_;
};

}  // namespace quire::model
