// The assignment of codecs to layers and sides that costs least within a budget.
//
// The first chunk of text measures every place (a side of a layer) with a codec of about 4 bits;
// each later one with what the chunks before it would choose, so that measurements gather where the
// decision falls.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/assignment.h"
#include "model/model.h"

namespace quire::model {

// One of the two.
struct Budget {
  std::optional<double> bits = {};  // sealed bits per value, at most
  std::optional<double> kld = {};   // mean divergence from f16 in nats, at most
};

struct TuneOptions {
  Budget budget;
  std::int64_t context = 1024;  // tokens of a chunk, at least two pages
  std::int64_t chunks = 2;      // at most; the text may have fewer
  // Called before each measurement: what it is, and how many are done.
  std::function<void(const std::string& what, std::int64_t done, std::int64_t all)> progress;
};

// What was chosen for one side of a layer.
struct TunedSide {
  std::string codec;
  double bits = 0;         // per value
  double kld = 0;          // what it adds to the divergence, by the measurements
  double sensitivity = 0;  // what a codec of about 4 bits would add
};

struct TunedLayer {
  TunedSide key;
  TunedSide value;
};

struct Tuning {
  std::int64_t chunks = 0;
  std::int64_t predictions = 0;
  double bits_per_value = 0;  // sealed bits, as evaluate counts them
  double kld = 0;             // predicted: the layers' own, added up
  std::vector<TunedLayer> layers;

  Assignment assignment() const;
};

// Refused when the text has no chunk, or no assignment meets the budget.
// Cost: per chunk, a pass of half the layers on average for each side of each layer.
Result<Tuning> tune(const Model& model, std::span<const int> tokens, const TuneOptions& options);

}  // namespace quire::model
