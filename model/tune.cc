#include "model/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/budget.h"
#include "model/error.h"
#include "model/sensitivity.h"

namespace quire::model {
namespace {

// The candidate of about 4 bits that the first chunk measures: losses are then well above rounding
// and well below what a model can bear. Candidates that another beats in bytes and noise are left.
std::size_t first_candidate(const Place& place) {
  const std::vector<Candidate>& all = place.candidates;
  std::size_t best = 0;
  for (std::size_t i = 1; i < all.size(); ++i) {
    const bool is_beaten = std::any_of(all.begin() + 1, all.end(), [&](const Candidate& other) {
      return other.page_bytes <= all[i].page_bytes && other.noise < all[i].noise;
    });
    if (is_beaten) continue;
    if (best == 0 || std::abs(place.bits_of(i) - 4) < std::abs(place.bits_of(best) - 4)) best = i;
  }
  return best;
}

std::vector<std::size_t> first_choice(const Sensitivity& sensitivity) {
  std::vector<std::size_t> candidates;
  for (const Place& place : sensitivity.places()) candidates.push_back(first_candidate(place));
  return candidates;
}

std::size_t values_of(const Sensitivity& sensitivity) {
  std::size_t values = 0;
  for (const Place& place : sensitivity.places()) values += place.page_values;
  return values;
}

Result<Choice> choose(const Sensitivity& sensitivity, const Budget& budget) {
  Offers offers;
  for (const Place& place : sensitivity.places()) {
    std::vector<Offer>& own = offers.emplace_back();
    for (std::size_t i = 0; i < place.candidates.size(); ++i) {
      own.push_back({place.candidates[i].page_bytes, place.loss_of(i)});
      if (std::isnan(own.back().loss)) {
        return Error{ErrorCode::non_finite,
                     fmt::format("tune: layer {}: the divergence with {} is not a number",
                                 place.layer, place.candidates[i].codec)};
      }
    }
  }
  if (budget.kld) return fewest_bytes(offers, *budget.kld);
  const double bytes = *budget.bits * static_cast<double>(values_of(sensitivity)) / 8;
  return least_loss(offers, static_cast<std::size_t>(bytes));
}

// Refuses a budget of bits that the smallest codecs do not meet.
Result<void> check_budget(const Sensitivity& sensitivity, const Budget& budget) {
  if (budget.bits.has_value() == budget.kld.has_value()) {
    return refuse("tune: a budget is either bits or a divergence");
  }
  if (budget.kld && !(*budget.kld >= 0)) return refuse("tune: a divergence of {}", *budget.kld);
  if (!budget.bits) return {};
  std::size_t bytes = 0;
  for (const Place& place : sensitivity.places()) {
    std::size_t fewest = place.candidates.front().page_bytes;
    for (const Candidate& candidate : place.candidates) {
      fewest = std::min(fewest, candidate.page_bytes);
    }
    bytes += fewest;
  }
  const double least =
      8.0 * static_cast<double>(bytes) / static_cast<double>(values_of(sensitivity));
  if (!(*budget.bits >= least && std::isfinite(*budget.bits))) {
    return refuse("tune: {} bits per value, the smallest codecs take {}", *budget.bits, least);
  }
  return {};
}

TunedSide side_of(const Place& place, std::size_t taken) {
  return {place.candidates[taken].codec, place.bits_of(taken), place.loss_of(taken),
          place.loss_of(first_candidate(place))};
}

Tuning tuning_of(const Sensitivity& sensitivity, const Choice& choice) {
  Tuning tuning;
  tuning.bits_per_value =
      8.0 * static_cast<double>(choice.bytes) / static_cast<double>(values_of(sensitivity));
  tuning.kld = choice.loss;
  const std::vector<Place>& places = sensitivity.places();
  for (std::size_t i = 0; i < places.size(); i += 2) {
    tuning.layers.push_back({side_of(places[i], choice.taken[i]),  //
                             side_of(places[i + 1], choice.taken[i + 1])});
  }
  return tuning;
}

}  // namespace

Assignment Tuning::assignment() const {
  Assignment assignment;
  for (const TunedLayer& layer : layers) {
    assignment.layers.push_back({layer.key.codec, layer.value.codec});
  }
  return assignment;
}

Result<Tuning> tune(const Model& model, std::span<const int> tokens, const TuneOptions& options) {
  MODEL_TRY(Sensitivity sensitivity, Sensitivity::create(model, options.context));
  MODEL_CHECK(check_budget(sensitivity, options.budget));
  const std::int64_t chunks =
      std::min(options.chunks, static_cast<std::int64_t>(tokens.size()) / options.context);
  if (chunks < 1) {
    return refuse("tune: {} chunks of {} tokens, the text has {} tokens", options.chunks,
                  options.context, tokens.size());
  }
  const auto places = static_cast<std::int64_t>(sensitivity.places().size());
  std::int64_t done = 0;
  const auto report = [&](const std::string& what) {
    if (options.progress) options.progress(what, done, chunks * (places + 1));
    ++done;
  };
  Choice choice;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    report(fmt::format("chunk {} of {}, f16", chunk + 1, chunks));
    MODEL_CHECK(
        sensitivity.observe(tokens.subspan(static_cast<std::size_t>(chunk * options.context),
                                           static_cast<std::size_t>(options.context))));
    if (chunk == 0) choice.taken = first_choice(sensitivity);
    for (std::size_t i = 0; i < choice.taken.size(); ++i) {
      const Place& place = sensitivity.places()[i];
      // f16 loses nothing: a place that has it is measured with what could replace it.
      const std::size_t candidate = choice.taken[i] == 0 ? first_candidate(place) : choice.taken[i];
      report(fmt::format("chunk {} of {}, layer {} {} {}", chunk + 1, chunks, place.layer,
                         place.side == Side::key ? "keys" : "values",
                         place.candidates[candidate].codec));
      MODEL_CHECK(sensitivity.measure(i, candidate));
    }
    MODEL_TRY(choice, choose(sensitivity, options.budget));
  }
  Tuning tuning = tuning_of(sensitivity, choice);
  tuning.chunks = chunks;
  tuning.predictions = chunks * (options.context / 2);
  return tuning;
}

}  // namespace quire::model
