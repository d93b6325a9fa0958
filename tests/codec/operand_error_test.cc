// What rounding queries and levels to integers costs logits, in parts of their deviation: normal
// queries times normal keys, against sums in double of what the page decodes to.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "kernel_cases.h"

namespace quire::test {
namespace {

// The mean square error of logits over their mean square, as a root.
double logit_error(const Codec& codec, Isa isa, int dim) {
  constexpr int kSlots = 64;
  constexpr int kQueries = 8;
  std::mt19937_64 random(815);
  double error = 0;
  double energy = 0;
  for (int page = 0; page < 6; ++page) {
    const TileShape shape{Side::key, kSlots, dim, 0, random()};
    const Page keys(codec, isa, shape, normals(random, kSlots * dim));
    const std::vector<float> queries = normals(random, kQueries * dim);
    const std::vector<float> found = scores(keys, queries);
    for (int q = 0; q < kQueries; ++q) {
      for (int slot = 0; slot < kSlots; ++slot) {
        double logit = 0;
        for (int c = 0; c < dim; ++c)
          logit += double{queries[size_of(q * dim + c)]} * keys.value(slot, c);
        error += std::pow(double{found[size_of(q * kSlots + slot)]} - logit, 2);
        energy += logit * logit;
      }
    }
  }
  return std::sqrt(error / energy);
}

TEST(OperandError, Is2PercentWith8BitsAndNextToNothingWith15) {
  int measured = 0;
  for (const Codec* codec : all_codecs()) {
    const std::string_view name = codec->name;
    const bool words = name == "int8" || name == "dual6";
    if (!words && !name.starts_with("tq") && !name.starts_with("dual")) continue;
    for (const Isa isa : isas_found()) {
      for (const int dim : {64, 80, 128, 256}) {
        const double error = logit_error(*codec, isa, dim);
        EXPECT_LT(error, words ? 0.0005 : 0.02) << name << ' ' << name_of(isa) << ", dim " << dim;
        EXPECT_GT(error, 0) << name;
        ++measured;
      }
    }
  }
  EXPECT_EQ(measured, 10 * 4 * static_cast<int>(isas_found().size()));
}

}  // namespace
}  // namespace quire::test
