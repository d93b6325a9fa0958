// What rounding queries and levels to integers costs logits, in parts of their deviation: normal
// queries times normal keys, against sums in double of what the page decodes to.
#include <gtest/gtest.h>

#include <cmath>
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

// What queries in 8 bits cost depends on how many steps the levels take. AVX2 adds products up in
// 16 bits, for which tq has fewer steps and shorter queries; dual has neither.
double most(std::string_view codec, Isa isa) {
  if (codec == "int8" || codec == "dual6") return 0.0005;  // 15 bits
  if (codec.starts_with("dual")) return 0.01;
  const bool short_sums = isa == Isa::avx2;
  if (codec == "tq5") return short_sums ? 0.013 : 0.0108;
  if (codec == "tq4") return short_sums ? 0.0145 : 0.01;
  if (codec == "tq3") return short_sums ? 0.0105 : 0.0085;
  return 0.0085;
}

TEST(OperandError, IsAPercentWith8BitsAndNextToNothingWith15) {
  int measured = 0;
  for (const Codec* codec : all_codecs()) {
    const std::string_view name = codec->name;
    if (name != "int8" && !name.starts_with("tq") && !name.starts_with("dual")) continue;
    for (const Isa isa : isas_found()) {
      for (const int dim : {64, 80, 128, 256}) {
        const double error = logit_error(*codec, isa, dim);
        EXPECT_LT(error, most(name, isa)) << name << ' ' << name_of(isa) << ", dim " << dim;
        EXPECT_GT(error, 0) << name;
        ++measured;
      }
    }
  }
  EXPECT_EQ(measured, 10 * 4 * static_cast<int>(isas_found().size()));
}

}  // namespace
}  // namespace quire::test
