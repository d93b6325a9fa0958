// Kernels of every codec and instruction set, called directly: their sums against sums in double of
// what the codes decode to, and what they promise to the bit.
#include "codec/kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/isa.h"
#include "base/numbers.h"
#include "base/seed.h"
#include "base/slow_build.h"
#include "kernel_cases.h"

namespace quire {
namespace {

using test::has_kernel;
using test::kInf;
using test::kNan;
using test::kUntouched;
using test::mix;
using test::normals;
using test::Page;
using test::page_rows;
using test::prepare;
using test::Prepared;
using test::random_weights;
using test::same_bits;
using test::scores;
using test::size_of;
using test::weigh;

constexpr int kKeyDims[] = {1, 3, 5, 6, 16, 20, 27, 64, 80, 128, 200, 512, 576};
constexpr int kValueDims[] = {16, 64, 80, 128, 208, 512};
// For planes of codes whose last unit has all sizes there are.
constexpr int kPlaneKeyDims[] = {36, 44, 96, 112, 192, 256};
constexpr int kPlaneValueDims[] = {48, 96, 112, 192, 256};
constexpr int kSlots[] = {16, 48, 64, 256};

// Every codec with kernels on every instruction set, with keys of any size or values of whole
// tiles.
void for_each_page(Side side, const std::function<void(const Codec&, Isa, const TileShape&)>& f,
                   std::initializer_list<int> page_sizes = {16, 48, 64, 256}) {
  for (const Codec* codec : all_codecs()) {
    for (const Isa isa : isas_found()) {
      for (const int slots : page_sizes) {
        const auto visit = [&](int dim) {
          const TileShape shape{side, slots, dim, side == Side::key && dim == 576 ? 512 : 0, 9};
          if (!has_kernel(*codec, isa, shape)) return;
          // Encoding them takes most of the time.
          if (test::kSlowBuild && codec->rotate[0] != nullptr && (slots == 256 || dim > 256))
            return;
          SCOPED_TRACE(test::describe(*codec, shape) + ", " + name_of(isa));
          f(*codec, isa, shape);
        };
        const auto visit_plane = [&](int dim) {
          if (codec->rotate[0] != nullptr && slots == 48) visit(dim);
        };
        if (side == Side::key) {
          for (const int dim : kKeyDims) visit(dim);
          for (const int dim : kPlaneKeyDims) visit_plane(dim);
        } else {
          for (const int dim : kValueDims) visit(dim);
          for (const int dim : kPlaneValueDims) visit_plane(dim);
        }
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

double rounding_of_sums(int terms) { return (4.0 + std::sqrt(terms)) * 0x1p-23; }

TEST(Kernel, ScoresAreTheDotProducts) {
  std::mt19937_64 random(test::announce_seed());
  for_each_page(Side::key, [&](const Codec& codec, Isa isa, const TileShape& shape) {
    const Page page(codec, isa, shape, page_rows(random, shape));
    constexpr int kRows = 3;
    std::vector<float> queries = normals(random, kRows * shape.dim);
    for (int c = 0; c < shape.dim; ++c) queries[size_of(c)] *= 1e-6f;  // no row is like another
    const std::vector<float> out = scores(page, queries);
    for (int row = 0; row < kRows; ++row) {
      const float* q = &queries[size_of(row * shape.dim)];
      double largest[2] = {0, 0};  // of the parts
      for (int c = 0; c < shape.dim; ++c) {
        double& part = largest[c < page.split() ? 0 : 1];
        part = std::max(part, std::fabs(double{q[c]}));
      }
      std::optional<test::ScoreRounding> rounding;
      if (page.rotates()) rounding.emplace(page.coded_side(isa), q);
      for (int slot = 0; slot < shape.slots; ++slot) {
        double expected = 0;
        double size = 0;
        double code_rounding = 0;
        for (int c = 0; c < shape.dim; ++c) {
          const double k = page.value(slot, c);
          expected += double{q[c]} * k;
          size += std::fabs(double{q[c]} * k);
          code_rounding += 0.51 * largest[c < page.split() ? 0 : 1] / 32767.0 * std::fabs(k);
        }
        double bound = 1e-30 + rounding_of_sums(shape.dim) * size;
        if (page.is_int8()) bound += code_rounding;
        if (rounding) bound += rounding->of(slot);
        if (page.rounds()) bound += 0x1p-8 * size;
        ASSERT_NEAR(double{out[size_of(row * shape.slots + slot)]}, expected, bound)
            << "row " << row << ", slot " << slot;
      }
    }
  });
}

TEST(Kernel, MixAddsTheWeightedValues) {
  std::mt19937_64 random(test::announce_seed());
  for_each_page(Side::value, [&](const Codec& codec, Isa isa, const TileShape& shape) {
    const Page page(codec, isa, shape, page_rows(random, shape));
    constexpr int kRows = 3;
    const std::vector<float> weights = random_weights(random, kRows * shape.slots);
    const std::vector<float> before = normals(random, kRows * shape.dim);
    const std::vector<float> keep = {1.0f, 0.25f, 0.0f};
    const std::vector<float> out = mix(page, weights, keep, before);
    for (int row = 0; row < kRows; ++row) {
      const float* w = &weights[size_of(row * shape.slots)];
      double largest = 0;  // weight times scale
      for (int t = 0; t < shape.slots && page.is_int8(); ++t) {
        const double scale = load_element(DType::f16, page.sealed.scales.data(), size_of(t));
        largest = std::max(largest, double{w[t]} * scale);
      }
      std::optional<test::MixRounding> rounding;
      if (page.rotates()) {
        rounding.emplace(page.coded_side(isa), std::vector<double>(w, w + shape.slots));
      }
      for (int c = 0; c < shape.dim; ++c) {
        const double kept =
            double{before[size_of(row * shape.dim + c)]} * double{keep[size_of(row)]};
        double expected = kept;
        double size = 0;
        double code_rounding = 0;
        for (int t = 0; t < shape.slots; ++t) {
          const double v = page.value(t, c);
          expected += double{w[t]} * v;
          size += std::fabs(double{w[t]} * v);
          if (page.rotates() && w[t] > 0 && page.coded_side(isa).scale(t) > 0) {
            code_rounding += rounding->codes * std::fabs(v) / page.coded_side(isa).scale(t);
          }
          if (!page.is_int8()) continue;
          const double scale = load_element(DType::f16, page.sealed.scales.data(), size_of(t));
          if (scale > 0) code_rounding += 0.51 * largest / 32767.0 * std::fabs(v) / scale;
        }
        double bound = 1e-30 + rounding_of_sums(shape.slots) * (size + std::fabs(kept));
        bound += code_rounding + (rounding ? rounding->levels : 0);
        if (page.rounds()) bound += 0x1p-8 * size;
        ASSERT_NEAR(double{out[size_of(row * shape.dim + c)]}, expected, bound)
            << "row " << row << ", channel " << c;
      }
    }
  });
}

TEST(Kernel, ExpandedPagesGiveTheSameBits) {
  std::mt19937_64 random(test::announce_seed());
  for_each_page(Side::key, [&](const Codec& codec, Isa isa, const TileShape& shape) {
    const Page page(codec, isa, shape, page_rows(random, shape));
    if (page.forms().size() < 2) return;
    const std::vector<float> queries = normals(random, 13 * shape.dim);
    EXPECT_TRUE(same_bits(scores(page, queries, true), scores(page, queries, false)));
  });
  for_each_page(Side::value, [&](const Codec& codec, Isa isa, const TileShape& shape) {
    const Page page(codec, isa, shape, page_rows(random, shape));
    if (page.forms().size() < 2) return;
    const std::vector<float> weights = random_weights(random, 13 * shape.slots);
    const std::vector<float> o = normals(random, 13 * shape.dim);
    const std::vector<float> keep(13, 0.5f);
    EXPECT_TRUE(same_bits(mix(page, weights, keep, o, true), mix(page, weights, keep, o, false)));
  });
}

// Into a page that held other rows, as sealed pages travel.
TEST(Kernel, CopiedBytesGiveTheSameBits) {
  std::mt19937_64 random(test::announce_seed());
  const auto check = [&](const Codec& codec, Isa isa, const TileShape& shape) {
    Page from(codec, isa, shape, page_rows(random, shape));
    Page to(codec, isa, shape, page_rows(random, shape));
    const bool keys = shape.side == Side::key;
    constexpr int kRows = 5;
    const std::vector<float> in =
        keys ? normals(random, kRows * shape.dim) : random_weights(random, kRows * shape.slots);
    const std::vector<float> o = normals(random, kRows * shape.dim);
    const std::vector<float> keep = random_weights(random, kRows);
    const auto products = [&](const Page& page) {
      std::vector<std::vector<float>> all;
      for (const bool of_expanded : page.forms()) {
        all.push_back(keys ? scores(page, in, of_expanded) : mix(page, in, keep, o, of_expanded));
      }
      return all;
    };
    const auto expected = products(from);
    const auto before = products(to);
    to.sealed = from.sealed;
    for (test::Bytes* bytes : {&from.sealed.data, &from.sealed.scales, &from.expanded}) {
      std::fill(bytes->begin(), bytes->end(), std::byte{0x5a});
    }
    if (to.expands()) to.kernel->expand(shape.side, to.side(false), to.expanded.data());
    const auto found = products(to);
    for (std::size_t form = 0; form < expected.size(); ++form) {
      EXPECT_TRUE(same_bits(found[form], expected[form]));
      EXPECT_FALSE(same_bits(before[form], expected[form]));
    }
  };
  for_each_page(Side::key, check, {48});
  for_each_page(Side::value, check, {48});
}

// A latent may be split anywhere.
TEST(Kernel, ExpandedLatentsGiveTheSameBitsWhereverTheyAreSplit) {
  std::mt19937_64 random(test::announce_seed());
  for (const Codec* codec : all_codecs()) {
    for (const Isa isa : isas_found()) {
      for (const int dim : {17, 20, 22, 48}) {
        for (int split = 1; split < dim; ++split) {
          const TileShape shape{Side::key, 48, dim, split};
          if (!has_kernel(*codec, isa, shape)) continue;
          const Page page(*codec, isa, shape, page_rows(random, shape));
          if (!page.expands() || !page.kernel->takes_keys(dim, page.split())) continue;
          const std::vector<float> queries = normals(random, 5 * dim);
          EXPECT_TRUE(same_bits(scores(page, queries, true), scores(page, queries, false)))
              << test::describe(*codec, shape) << ", " << name_of(isa);
        }
      }
    }
  }
}

constexpr int kManyRows = 96;

TEST(Kernel, RowsDoNotDependOnOtherRows) {
  std::mt19937_64 random(test::announce_seed());
  std::vector<int> counts = {kManyRows};
  for (int rows = 13; rows > 0; --rows) counts.push_back(rows);
  const auto check = [&](const Codec& codec, Isa isa, const TileShape& shape) {
    const Page page(codec, isa, shape, page_rows(random, shape));
    const bool keys = shape.side == Side::key;
    const int width = keys ? shape.dim : shape.slots;      // of a row that goes in
    const int out_width = keys ? shape.slots : shape.dim;  // and of one that comes out
    const std::vector<float> in =
        keys ? normals(random, kManyRows * width) : random_weights(random, kManyRows * width);
    const std::vector<float> o = normals(random, kManyRows * shape.dim);
    const std::vector<float> keep = random_weights(random, kManyRows);
    for (const bool of_expanded : page.forms()) {
      // Rows [first, first + count) in one call.
      const auto run = [&](int first, int count) {
        const auto part = [&](const std::vector<float>& of, int row_width) {
          return std::vector<float>(of.begin() + first * row_width,
                                    of.begin() + (first + count) * row_width);
        };
        return keys ? scores(page, part(in, width), of_expanded)
                    : mix(page, part(in, width), part(keep, 1), part(o, shape.dim), of_expanded);
      };
      std::vector<float> alone;
      for (int row = 0; row < kManyRows; ++row) {
        const std::vector<float> one = run(row, 1);
        alone.insert(alone.end(), one.begin(), one.end());
      }
      for (const int count : counts) {
        const int first = count == kManyRows ? 0 : 5;
        EXPECT_TRUE(same_bits(run(first, count),
                              std::vector<float>(alone.begin() + first * out_width,
                                                 alone.begin() + (first + count) * out_width)))
            << count << " rows" << (of_expanded ? ", expanded" : "");
      }
    }
  };
  for_each_page(Side::key, check, {48});
  for_each_page(Side::value, check, {48});
}

TEST(Kernel, AnyRangeOfTilesGivesItsScores) {
  std::mt19937_64 random(test::announce_seed());
  for_each_page(
      Side::key,
      [&](const Codec& codec, Isa isa, const TileShape& shape) {
        const Page page(codec, isa, shape, page_rows(random, shape));
        for (const int rows : {1, 4, 7}) {
          const Prepared queries = prepare(page, normals(random, rows * shape.dim));
          for (const bool of_expanded : page.forms()) {
            const std::vector<float> whole = scores(page, queries, 0, shape.slots, of_expanded);
            for (int first = 0; first < shape.slots; first += 16) {
              for (int end = first; end <= shape.slots; end += 16) {
                const std::vector<float> part = scores(page, queries, first, end, of_expanded);
                for (int i = 0; i < rows * shape.slots; ++i) {
                  const bool inside = i % shape.slots >= first && i % shape.slots < end;
                  ASSERT_EQ(part[size_of(i)], inside ? whole[size_of(i)] : kUntouched)
                      << rows << " rows, [" << first << ", " << end << "), " << i;
                }
              }
            }
          }
        }
      },
      {64});
}

TEST(Kernel, MixOfARangeIsThatOfThePageWithNoWeightElsewhere) {
  std::mt19937_64 random(test::announce_seed());
  for_each_page(Side::value,
                [&](const Codec& codec, Isa isa, const TileShape& shape) {
                  const Page page(codec, isa, shape, page_rows(random, shape));
                  for (const int rows : {1, 6}) {
                    const std::vector<float> o = normals(random, rows * shape.dim);
                    const std::vector<float> keep = random_weights(random, rows);
                    for (int first = 0; first < shape.slots; first += 16) {
                      for (int end = first + 16; end <= shape.slots; end += 16) {
                        std::vector<float> weights = random_weights(random, rows * shape.slots);
                        for (int i = 0; i < rows * shape.slots; ++i) {
                          const int t = i % shape.slots;
                          if (t < first + 3 || t >= end - 2) weights[size_of(i)] = 0.0f;
                        }
                        const std::vector<float> whole = mix(page, weights, keep, o);
                        for (const bool of_expanded : page.forms()) {
                          ASSERT_TRUE(same_bits(mix(page, weigh(page, weights, first, end), first,
                                                    end, keep, o, of_expanded),
                                                whole))
                              << rows << " rows, [" << first << ", " << end << ')';
                        }
                      }
                    }
                  }
                },
                {64, 96});
}

// The largest floats round to an infinite bf16.
TEST(Kernel, TheLargestQueriesHaveScores) {
  constexpr int kDim = 32;
  for (const char* name : {"f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2"}) {
    for (const Isa isa : isas_found()) {
      std::vector<float> rows(16 * kDim, 0.0f);
      for (int slot = 0; slot < 16; ++slot) rows[size_of(slot * kDim + slot)] = 0x1p-9f;
      const Page page(*find_codec(name), isa, {Side::key, 16, kDim, 0}, rows);
      std::vector<float> query(kDim, 1.0f);
      query[3] = std::numeric_limits<float>::max();
      query[5] = -query[3];
      const std::vector<float> found = scores(page, query);
      for (int slot = 0; slot < 16; ++slot) {
        const float expected = slot == 3 ? query[3] * 0x1p-9f : slot == 5 ? query[5] * 0x1p-9f : 0;
        ASSERT_NEAR(found[size_of(slot)] / query[3], expected / query[3], 1e-6)
            << name << ' ' << name_of(isa) << ' ' << slot;
      }
    }
  }
}

TEST(Kernel, BrokenQueriesGiveNoFiniteScoreAndHarmNoOtherRow) {
  std::mt19937_64 random(test::announce_seed());
  for_each_page(Side::key,
                [&](const Codec& codec, Isa isa, const TileShape& shape) {
                  const Page page(codec, isa, shape, page_rows(random, shape));
                  constexpr int kRows = 5;
                  const std::vector<float> queries = normals(random, kRows * shape.dim);
                  for (const bool of_expanded : page.forms()) {
                    const std::vector<float> clean = scores(page, queries, of_expanded);
                    for (const float wrong : {kNan, -kNan, kInf, -kInf}) {
                      const int row = std::uniform_int_distribution<int>(0, kRows - 1)(random);
                      const int channel =
                          std::uniform_int_distribution<int>(0, shape.dim - 1)(random);
                      std::vector<float> broken = queries;
                      broken[size_of(row * shape.dim + channel)] = wrong;
                      const std::vector<float> out = scores(page, broken, of_expanded);
                      for (int i = 0; i < kRows * shape.slots; ++i) {
                        if (i / shape.slots == row) {
                          ASSERT_FALSE(std::isfinite(out[size_of(i)]))
                              << wrong << " at channel " << channel << ", slot " << i % shape.slots;
                        } else {
                          ASSERT_EQ(out[size_of(i)], clean[size_of(i)]) << wrong;
                        }
                      }
                    }
                  }
                },
                {48});
}

TEST(Kernel, BrokenWeightsGiveNoFiniteMixAndHarmNoOtherRow) {
  std::mt19937_64 random(test::announce_seed());
  for_each_page(Side::value,
                [&](const Codec& codec, Isa isa, const TileShape& shape) {
                  const Page page(codec, isa, shape, page_rows(random, shape));
                  constexpr int kRows = 5;
                  const std::vector<float> weights = random_weights(random, kRows * shape.slots);
                  const std::vector<float> o = normals(random, kRows * shape.dim);
                  const std::vector<float> keep(kRows, 1.0f);
                  for (const bool of_expanded : page.forms()) {
                    const std::vector<float> clean = mix(page, weights, keep, o, of_expanded);
                    std::vector<float> broken = weights;
                    broken[size_of(2 * shape.slots + 33)] = kNan;
                    const std::vector<float> out = mix(page, broken, keep, o, of_expanded);
                    for (int i = 0; i < kRows * shape.dim; ++i) {
                      if (i / shape.dim == 2) {
                        ASSERT_FALSE(std::isfinite(out[size_of(i)])) << i;
                      } else {
                        ASSERT_EQ(out[size_of(i)], clean[size_of(i)]) << i;
                      }
                    }
                  }
                },
                {48});
}

TEST(Kernel, NothingGivesNothing) {
  std::mt19937_64 random(test::announce_seed());
  for_each_page(
      Side::key,
      [&](const Codec& codec, Isa isa, const TileShape& shape) {
        const Page page(codec, isa, shape, page_rows(random, shape));
        for (const bool of_expanded : page.forms()) {
          for (const float s : scores(page, std::vector<float>(size_of(shape.dim)), of_expanded)) {
            ASSERT_EQ(s, 0.0f);
          }
        }
      },
      {48});
  for_each_page(
      Side::value,
      [&](const Codec& codec, Isa isa, const TileShape& shape) {
        const Page page(codec, isa, shape, page_rows(random, shape));
        const std::vector<float> o = normals(random, shape.dim);
        const std::vector<float> none(size_of(shape.slots));
        for (const bool of_expanded : page.forms()) {
          EXPECT_EQ(mix(page, none, {1.0f}, o, of_expanded), o);
          EXPECT_EQ(mix(page, none, {0.0f}, o, of_expanded), std::vector<float>(o.size(), 0.0f));
        }
        const Page zeros(codec, isa, shape, std::vector<float>(size_of(shape.slots * shape.dim)));
        EXPECT_EQ(mix(zeros, random_weights(random, shape.slots), {1.0f}, o), o);
      },
      {48});
}

// --- int8 ------------------------------------------------------------------------------------

const Codec& int8() { return *find_codec("int8"); }

const Kernel& int8_kernel(Isa isa) { return *int8().kernels[static_cast<std::size_t>(isa)]; }

// All codes and all query codes at their ends, of equal sign: the largest sums there are.
TEST(Int8Kernel, TheLargestScoresDoNotOverflow) {
  for (const Isa isa : isas_found()) {
    for (const int dim : {512, 576}) {
      const TileShape shape{Side::key, 32, dim, dim == 576 ? 512 : 0};
      std::vector<float> rows;
      for (int i = 0; i < 32 * dim; ++i) {
        const bool negative = i / dim % 2 != i % 3 % 2;
        rows.push_back(negative ? -127.0f : 127.0f);
      }
      const Page page(int8(), isa, shape, rows);
      for (const int slot : {0, 1, 17}) {
        // As the key of that slot, and against it.
        std::vector<float> queries(rows.begin() + slot * dim, rows.begin() + (slot + 1) * dim);
        for (int c = 0; c < dim; ++c) queries.push_back(-queries[size_of(c)]);
        for (const bool of_expanded : {false, true}) {
          const std::vector<float> out = scores(page, queries, of_expanded);
          const float expected = static_cast<float>(127 * 127 * dim);
          EXPECT_NEAR(out[size_of(slot)], expected, 1e-6f * expected) << name_of(isa);
          EXPECT_NEAR(out[size_of(32 + slot)], -expected, 1e-6f * expected) << name_of(isa);
        }
      }
    }
  }
}

TEST(Int8Kernel, TheLargestMixDoesNotOverflow) {
  for (const Isa isa : isas_found()) {
    const TileShape shape{Side::value, 256, 32, 0};
    std::vector<float> rows;
    for (int i = 0; i < 256 * 32; ++i) rows.push_back(i % 2 == 0 ? 127.0f : -127.0f);
    const Page page(int8(), isa, shape, rows);
    for (const float weight : {1.0f, 0x1p-66f, 0x1p-98f}) {
      for (const bool of_expanded : {false, true}) {
        const std::vector<float> out = mix(page, std::vector<float>(256, weight), {0.0f},
                                           std::vector<float>(32, 5.0f), of_expanded);
        const float expected = 256.0f * 127.0f * weight;
        for (std::size_t c = 0; c < 32; ++c) {
          ASSERT_NEAR(out[c], c % 2 == 0 ? expected : -expected, 1e-6f * expected) << name_of(isa);
        }
      }
    }
  }
}

// 32767 / max has no finite value for them: what they add is not seen beside a weight of 1.
TEST(Int8Kernel, WeightsAndQueriesTooSmallForAReciprocalGiveNothing) {
  std::mt19937_64 random(test::announce_seed());
  for (const Isa isa : isas_found()) {
    const TileShape values{Side::value, 48, 32, 0};
    const Page page(int8(), isa, values, normals(random, 48 * 32));
    const std::vector<float> o = normals(random, 32);
    const TileShape keys{Side::key, 48, 20, 0};
    const Page key_page(int8(), isa, keys, normals(random, 48 * 20));
    for (const float tiny : {0x1p-110f, 0x1p-117f, 0x1p-125f, 0x1p-126f, 0x1p-133f, 0x1p-149f}) {
      EXPECT_EQ(mix(page, std::vector<float>(48, tiny), {1.0f}, o), o) << name_of(isa) << tiny;
      for (const float s : mix(page, std::vector<float>(48, tiny), {0.0f}, o)) {
        EXPECT_LE(std::fabs(s), 1e-30f) << name_of(isa) << ' ' << tiny;
      }
      for (const float s : scores(key_page, std::vector<float>(20, tiny))) {
        EXPECT_LE(std::fabs(s), 1e-30f) << name_of(isa) << ' ' << tiny;
      }
    }
  }
}

TEST(Int8Kernel, TakesKeysWhoseSumsCannotOverflow) {
  for (const Isa isa : isas_found()) {
    const auto takes = int8_kernel(isa).takes_keys;
    for (const int dim : {1, 3, 64, 511, 512}) EXPECT_TRUE(takes(dim, dim)) << dim;
    for (const int dim : {513, 576, 1024}) EXPECT_FALSE(takes(dim, dim)) << dim;
    EXPECT_TRUE(takes(576, 512));
    EXPECT_TRUE(takes(576, 64));
    EXPECT_TRUE(takes(1024, 512));
    EXPECT_FALSE(takes(1025, 512));
    EXPECT_FALSE(takes(1024, 516));
    EXPECT_FALSE(takes(576, 14));  // the parts are no whole steps
    EXPECT_FALSE(takes(576, 510));
    for (const Codec* codec : all_codecs()) {
      if (codec == &int8() || !has_kernel(*codec, isa, {Side::key, 16, 577, 511})) continue;
      EXPECT_TRUE(codec->kernels[static_cast<std::size_t>(isa)]->takes_keys(4096, 4096));
      EXPECT_TRUE(codec->kernels[static_cast<std::size_t>(isa)]->takes_keys(577, 511));
    }
  }
}

// The sums are of integers: sets differ by the rounding of a few float products at most.
TEST(Int8Kernel, EveryInstructionSetHasTheSameSums) {
  std::mt19937_64 random(test::announce_seed());
  for (const int slots : kSlots) {
    for (const int dim : kKeyDims) {
      const TileShape shape{Side::key, slots, dim, dim == 576 ? 512 : 0};
      const std::vector<float> rows = page_rows(random, shape);
      const std::vector<float> queries = normals(random, 5 * dim);
      const Page scalar_page(int8(), Isa::scalar, shape, rows);
      const std::vector<float> scalar = scores(scalar_page, queries);
      for (const Isa isa : isas_found()) {
        const std::vector<float> found = scores(Page(int8(), isa, shape, rows), queries);
        for (std::size_t i = 0; i < found.size(); ++i) {
          // Two parts that cancel leave the rounding of both.
          const float size = dim == 576 ? 100.0f : std::fabs(scalar[i]);
          ASSERT_NEAR(found[i], scalar[i], 4 * 0x1p-24f * size)
              << name_of(isa) << ' ' << test::describe(int8(), shape);
        }
      }
    }
    for (const int dim : kValueDims) {
      const TileShape shape{Side::value, slots, dim, 0};
      const std::vector<float> rows = page_rows(random, shape);
      const std::vector<float> weights = random_weights(random, 5 * slots);
      const std::vector<float> o(size_of(5 * dim), 0.0f);
      const std::vector<float> keep(5, 0.0f);
      const std::vector<float> scalar =
          mix(Page(int8(), Isa::scalar, shape, rows), weights, keep, o);
      for (const Isa isa : isas_found()) {
        const std::vector<float> found = mix(Page(int8(), isa, shape, rows), weights, keep, o);
        for (std::size_t i = 0; i < found.size(); ++i) {
          ASSERT_NEAR(found[i], scalar[i], 4 * 0x1p-24f * std::fabs(scalar[i]))
              << name_of(isa) << ' ' << test::describe(int8(), shape);
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire
