#include "model/budget.h"

#include <gtest/gtest.h>

#include <random>

#include "base/seed.h"

namespace quire::model {
namespace {

// All choices, one after the other; `visit` gets the bytes and the loss of each.
template <typename Visit>
void for_each_choice(const Offers& places, std::size_t place, Choice choice, const Visit& visit) {
  if (place == places.size()) return visit(choice);
  for (const Offer& offer : places[place]) {
    Choice next = choice;
    next.bytes += offer.bytes;
    next.loss += offer.loss;
    for_each_choice(places, place + 1, next, visit);
  }
}

// Bytes are multiples of `unit`; losses whole numbers, so that sums are exact.
Offers random_offers(std::mt19937_64& random, std::size_t unit) {
  Offers places(1 + random() % 5);
  for (std::vector<Offer>& offers : places) {
    offers.resize(1 + random() % 5);
    for (Offer& offer : offers) {
      offer = {unit * (random() % 40), static_cast<double>(random() % 100)};
    }
  }
  return places;
}

void expect_adds_up(const Offers& places, const Choice& choice) {
  ASSERT_EQ(choice.taken.size(), places.size());
  std::size_t bytes = 0;
  double loss = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    ASSERT_LT(choice.taken[i], places[i].size());
    bytes += places[i][choice.taken[i]].bytes;
    loss += places[i][choice.taken[i]].loss;
  }
  EXPECT_EQ(choice.bytes, bytes);
  EXPECT_EQ(choice.loss, loss);
}

TEST(Budget, IsSpentAsWellAsByTryingAllChoices) {
  std::mt19937_64 random(quire::test::announce_seed());
  for (int round = 0; round < 300; ++round) {
    const Offers places = random_offers(random, 1 + random() % 100);
    const std::size_t most_bytes = random() % 20000;
    const double most_loss = static_cast<double>(random() % 300);
    bool has_bytes = false;
    bool has_loss = false;
    Choice least;   // within most_bytes: least loss, then fewest bytes
    Choice fewest;  // within most_loss
    for_each_choice(places, 0, {}, [&](const Choice& choice) {
      if (choice.bytes <= most_bytes &&
          (!has_bytes || choice.loss < least.loss ||
           (choice.loss == least.loss && choice.bytes < least.bytes))) {
        least = choice;
        has_bytes = true;
      }
      if (choice.loss <= most_loss && (!has_loss || choice.bytes < fewest.bytes)) {
        fewest = choice;
        has_loss = true;
      }
    });
    const Result<Choice> by_bytes = least_loss(places, most_bytes);
    ASSERT_EQ(static_cast<bool>(by_bytes), has_bytes);
    if (has_bytes) {
      expect_adds_up(places, *by_bytes);
      EXPECT_EQ(by_bytes->loss, least.loss);
      EXPECT_EQ(by_bytes->bytes, least.bytes);
    }
    const Result<Choice> by_loss = fewest_bytes(places, most_loss);
    ASSERT_EQ(static_cast<bool>(by_loss), has_loss);
    if (has_loss) {
      expect_adds_up(places, *by_loss);
      EXPECT_LE(by_loss->loss, most_loss);
      EXPECT_EQ(by_loss->bytes, fewest.bytes);
    }
  }
}

TEST(Budget, HoldsWhereUnitsAreRounded) {
  // Sizes without a common factor, of 10^9 bytes: units of some 10^5 bytes.
  const Offers places(100, {{1, 9.0}, {5'000'011, 4.0}, {10'000'019, 1.0}});
  const std::size_t most_bytes = 400'000'000;
  const Choice choice = least_loss(places, most_bytes).value();
  expect_adds_up(places, choice);
  EXPECT_LE(choice.bytes, most_bytes);
  // 79 places can have the middle offer, or half of them one more step: 5 per step, then 3.
  EXPECT_LE(choice.loss, 900 - 5 * 78);
  const Choice small = fewest_bytes(places, 505).value();
  EXPECT_LE(small.loss, 505);
  EXPECT_LE(small.bytes, 80u * 5'000'011 + 21);
}

TEST(Budget, OneOfEqualOffersIsTaken) {
  const Offers places = {{{8, 2.0}}, {{8, 0.0}, {8, 1.0}}};
  EXPECT_EQ(least_loss(places, 16).value().taken, (std::vector<std::size_t>{0, 0}));
  EXPECT_EQ(fewest_bytes(places, 2).value().taken, (std::vector<std::size_t>{0, 0}));
}

TEST(Budget, TooSmallOnesAreRefusedWithNumbers) {
  const Offers places = {{{10, 3.0}, {20, 1.0}}, {{10, 3.0}, {20, 1.0}}};
  EXPECT_EQ(least_loss(places, 19).error().text, "budget: 19 bytes, the smallest choice takes 20");
  EXPECT_EQ(fewest_bytes(places, 1.5).error().text,
            "budget: a loss of 1.5, the best choice loses 2");
}

}  // namespace
}  // namespace quire::model
