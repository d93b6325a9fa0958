#include "model/budget.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>

#include "model/error.h"

namespace quire::model {
namespace {

constexpr std::size_t kMostSteps = 65536;
constexpr double kNone = std::numeric_limits<double>::infinity();

std::size_t fewest_of(const std::vector<Offer>& offers) {
  std::size_t fewest = offers.front().bytes;
  for (const Offer& offer : offers) fewest = std::min(fewest, offer.bytes);
  return fewest;
}

// The least loss for every number of units above what the smallest offers take.
class Table {
 public:
  explicit Table(const Offers& places) : places_(places) {
    std::size_t total = 0;
    for (const std::vector<Offer>& offers : places) {
      const std::size_t fewest = fewest_of(offers);
      std::size_t most = 0;
      for (const Offer& offer : offers) {
        unit_ = std::gcd(unit_, offer.bytes - fewest);
        most = std::max(most, offer.bytes - fewest);
      }
      fewest_.push_back(fewest);
      total += most;
    }
    unit_ = std::max({unit_, total / kMostSteps + 1});
    std::vector<double> losses = {0};
    for (std::size_t place = 0; place < places.size(); ++place) losses = add(place, losses);
    losses_ = std::move(losses);
  }

  std::size_t fewest_bytes() const {
    return std::accumulate(fewest_.begin(), fewest_.end(), std::size_t{0});
  }
  std::size_t unit() const { return unit_; }
  // By units; infinite where no choice takes exactly so many.
  const std::vector<double>& losses() const { return losses_; }

  // The choice behind losses()[units].
  Choice choice(std::size_t units) const {
    Choice choice;
    choice.loss = losses_[units];
    choice.taken.resize(places_.size());
    for (std::size_t place = places_.size(); place-- > 0;) {
      const std::size_t taken = taken_[place][units];
      const Offer& offer = places_[place][taken];
      choice.taken[place] = taken;
      choice.bytes += offer.bytes;
      units -= units_of(place, offer);
    }
    return choice;
  }

 private:
  std::size_t units_of(std::size_t place, const Offer& offer) const {
    return (offer.bytes - fewest_[place] + unit_ - 1) / unit_;
  }

  std::vector<double> add(std::size_t place, const std::vector<double>& before) {
    std::size_t most = 0;
    for (const Offer& offer : places_[place]) most = std::max(most, units_of(place, offer));
    std::vector<double> after(before.size() + most, kNone);
    std::vector<std::uint16_t>& taken = taken_.emplace_back(after.size());
    for (std::size_t i = 0; i < places_[place].size(); ++i) {
      const Offer& offer = places_[place][i];
      const std::size_t units = units_of(place, offer);
      for (std::size_t u = 0; u < before.size(); ++u) {
        const double loss = before[u] + offer.loss;
        if (loss >= after[u + units]) continue;
        after[u + units] = loss;
        taken[u + units] = static_cast<std::uint16_t>(i);
      }
    }
    return after;
  }

  const Offers& places_;
  std::vector<std::size_t> fewest_;                // bytes of each place's smallest offer
  std::size_t unit_ = 0;                           // bytes
  std::vector<double> losses_;                     // [units]
  std::vector<std::vector<std::uint16_t>> taken_;  // [place][units]
};

}  // namespace

Result<Choice> least_loss(const Offers& places, std::size_t most_bytes) {
  const Table table(places);
  if (table.fewest_bytes() > most_bytes) {
    return refuse("budget: {} bytes, the smallest choice takes {}", most_bytes,
                  table.fewest_bytes());
  }
  const std::size_t most = (most_bytes - table.fewest_bytes()) / table.unit();
  const std::vector<double>& losses = table.losses();
  const auto end = losses.begin() + static_cast<std::ptrdiff_t>(std::min(most + 1, losses.size()));
  return table.choice(
      static_cast<std::size_t>(std::min_element(losses.begin(), end) - losses.begin()));
}

Result<Choice> fewest_bytes(const Offers& places, double most_loss) {
  const Table table(places);
  const std::vector<double>& losses = table.losses();
  const auto found =
      std::find_if(losses.begin(), losses.end(), [&](double loss) { return loss <= most_loss; });
  if (found == losses.end()) {
    return refuse("budget: a loss of {}, the best choice loses {}", most_loss,
                  *std::min_element(losses.begin(), losses.end()));
  }
  return table.choice(static_cast<std::size_t>(found - losses.begin()));
}

}  // namespace quire::model
