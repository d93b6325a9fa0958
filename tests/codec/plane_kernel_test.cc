// What only kernels of tq and dual have: levels in bytes, offsets and steps folded into queries,
// operands of 8 bits. That their sums are right, and do not depend on form, rows or cuts, is in
// kernel_test.cc with all other codecs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "base/isa.h"
#include "base/numbers.h"
#include "base/seed.h"
#include "codec/planes.h"
#include "kernel_cases.h"

namespace quire {
namespace {

using test::Bytes;
using test::CodedSide;
using test::mix;
using test::normals;
using test::Page;
using test::page_rows;
using test::random_weights;
using test::same_bits;
using test::scores;
using test::size_of;
using test::weigh_logits;

// Sizes with whole units of planes and with parts of them.
constexpr int kKeyDims[] = {20, 36, 44, 64, 80, 96, 112, 128, 192, 256};
constexpr int kValueDims[] = {16, 48, 64, 80, 96, 112, 128, 192, 256};

void for_each_kernel(Side side, const std::function<void(const Codec&, Isa)>& f) {
  for (const Codec* codec : all_codecs()) {
    if (codec->rotate[0] == nullptr || (side == Side::value && !codec->encodes_values)) continue;
    for (const Isa isa : isas_found()) {
      SCOPED_TRACE(std::string(codec->name) + ", " + name_of(isa));
      f(*codec, isa);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TileShape shape_of(Side side, int slots, int dim) { return {side, slots, dim, 0, 3}; }

// The code of the highest level, or of the lowest.
unsigned end_code(const CodedSide& side, bool high) {
  const int rank = high ? (1 << side.bits()) - 1 : 0;
  return side.is_tq() ? test::tq_code(side.bits(), rank) : static_cast<unsigned>(rank);
}

// Bytes stand where codes of 8 bits would. For tq they are the number of steps, or of halves of
// them, nearest to the level, counted for keys from the lowest; for dual the code.
TEST(PlaneKernel, ExpandedBytesAreTheLevels) {
  std::mt19937_64 random(test::announce_seed());
  const auto check = [&](const Codec& codec, Isa isa, const TileShape& shape) {
    // Any bytes are codes, padding channels included.
    Page page(codec, isa, shape, page_rows(random, shape));
    for (std::byte& b : page.sealed.data) b = static_cast<std::byte>(random() & 0xffu);
    page.kernel->expand(shape.side, page.side(false), page.expanded.data());
    const CodedSide side = page.coded_side(isa);
    const int half = 1 << (side.bits() - 1);
    const std::vector<double> levels = test::tq_levels(side.bits());
    const double step = side.is_tq() ? test::tq_step(side) : 0;
    const double rest = side.has_halves() ? 0.5 : 0.0;
    const auto steps = [&](double level) { return std::round(level / step - rest) + rest; };
    const double middle = shape.side == Side::value ? rest : steps(levels.back());
    const PlaneTiles tiles(shape, side.bits());
    ASSERT_EQ(page.expanded.size(), size_of(shape.padded_slots()) * tiles.channels());
    for (int slot = 0; slot < shape.slots; ++slot) {
      const PlaneTiles::Slot codes = tiles.slot(slot);
      for (std::size_t c = 0; c < tiles.channels(); ++c) {
        const std::byte byte = page.expanded[slot_place(shape, 4, slot).at(c)];
        const int code = static_cast<int>(codes.get(page.sealed.data.data(), c));
        if (side.is_tq()) {
          const int rank = test::tq_rank(side.bits(), static_cast<unsigned>(code));
          const double level = rank >= half ? steps(levels[size_of(rank - half)])
                                            : -steps(levels[size_of(half - 1 - rank)]);
          ASSERT_EQ(byte, static_cast<std::byte>(static_cast<int>(middle + level)))
              << "slot " << slot << ", channel " << c;
        } else {
          ASSERT_EQ(byte, static_cast<std::byte>(code)) << "slot " << slot << ", channel " << c;
        }
      }
    }
  };
  for_each_kernel(Side::key, [&](const Codec& codec, Isa isa) {
    for (const int dim : kKeyDims) check(codec, isa, shape_of(Side::key, 32, dim));
    check(codec, isa, shape_of(Side::key, 16, 22));  // channels are padded to 24
  });
  for_each_kernel(Side::value, [&](const Codec& codec, Isa isa) {
    for (const int dim : kValueDims) check(codec, isa, shape_of(Side::value, 16, dim));
  });
}

// A step is at most twice what the largest level would need in the room that there is, and codes of
// 6 bits lose nothing.
TEST(PlaneKernel, StepsUseTheRoomOfAByte) {
  for_each_kernel(Side::value, [](const Codec& codec, Isa isa) {
    const CodedSide side{&codec, isa, shape_of(Side::value, 16, 16), nullptr, nullptr};
    const double most = test::tq_levels(side.bits()).back() / test::tq_step(side);
    const double room = side.largest_level();
    EXPECT_GT(most, room / 2 - 0.5);
    EXPECT_LT(most, room + 0.5);
    if (side.bits() == 6) {
      EXPECT_LT(test::level_error(side), 1e-6);
    }
    // What is lost is small beside what the codec loses: half the width of the smallest level.
    EXPECT_LT(test::level_error(side), test::tq_levels(side.bits()).front() / 3);
  });
}

// The scalar kernel and that of AVX-512 have the same bytes and, but for ties that no number here
// is near to, codes, so the same sums of integers; what is left is the order of a few float
// products, and for dual that of a sum of floats.
TEST(PlaneKernel, ScalarAndAvx512HaveTheSameSums) {
  std::mt19937_64 random(test::announce_seed());
  for_each_kernel(Side::key, [&](const Codec& codec, Isa isa) {
    if (isa != Isa::avx512) return;
    for (const int dim : kKeyDims) {
      const TileShape shape = shape_of(Side::key, 48, dim);
      const std::vector<float> rows = page_rows(random, shape);
      const std::vector<float> queries = normals(random, 5 * dim);
      const Page page(codec, isa, shape, rows);
      const std::vector<float> scalar = scores(Page(codec, Isa::scalar, shape, rows), queries);
      const std::vector<float> found = scores(page, queries);
      if (page.kernel->fold == nullptr) {
        EXPECT_TRUE(same_bits(found, scalar)) << dim;
        continue;
      }
      for (std::size_t i = 0; i < found.size(); ++i) {
        const float size = test::norm(&queries[i / 48 * size_of(dim)], dim) *
                           test::norm(&page.decoded[i % 48 * size_of(dim)], dim);
        ASSERT_NEAR(found[i], scalar[i], 0x1p-19f * size) << dim << ' ' << i;
      }
    }
  });
  for_each_kernel(Side::value, [&](const Codec& codec, Isa isa) {
    if (isa != Isa::avx512) return;
    for (const int dim : kValueDims) {
      const TileShape shape = shape_of(Side::value, 48, dim);
      const std::vector<float> rows = page_rows(random, shape);
      const std::vector<float> weights = random_weights(random, 5 * 48);
      const std::vector<float> o = normals(random, 5 * dim);
      const std::vector<float> keep(5, 0.5f);
      EXPECT_TRUE(same_bits(mix(Page(codec, isa, shape, rows), weights, keep, o),
                            mix(Page(codec, Isa::scalar, shape, rows), weights, keep, o)))
          << dim;
    }
  });
}

// Tokens of all norms that f16 holds, zeros among them: each score and each mix has the error of
// its own token's scale.
TEST(PlaneKernel, HugeAndTinyTokensKeepTheirBounds) {
  std::mt19937_64 random(test::announce_seed());
  const auto rows_of = [&](const TileShape& shape) {
    std::vector<float> rows = normals(random, shape.slots * shape.dim);
    for (int slot = 0; slot < shape.slots; ++slot) {
      constexpr float kSizes[] = {0.0f, 1e-9f, 1e-6f, 1e-3f, 1.0f, 1e3f};
      for (int c = 0; c < shape.dim; ++c) {
        rows[size_of(slot * shape.dim + c)] *= kSizes[slot % 6];
      }
    }
    return rows;
  };
  for_each_kernel(Side::key, [&](const Codec& codec, Isa isa) {
    const TileShape shape = shape_of(Side::key, 48, 80);
    const Page page(codec, isa, shape, rows_of(shape));
    const std::vector<float> queries = normals(random, shape.dim);
    const test::ScoreRounding rounding(page.coded_side(isa), queries.data());
    for (const bool of_expanded : page.forms()) {
      const std::vector<float> out = scores(page, queries, of_expanded);
      for (int slot = 0; slot < shape.slots; ++slot) {
        double expected = 0;
        double size = 0;
        for (int c = 0; c < shape.dim; ++c) {
          expected += double{queries[size_of(c)]} * page.value(slot, c);
          size += std::fabs(double{queries[size_of(c)]} * page.value(slot, c));
        }
        if (slot % 6 == 0) {
          ASSERT_EQ(out[size_of(slot)], 0.0f) << slot;
        }
        ASSERT_NEAR(out[size_of(slot)], expected, rounding.of(slot) + 0x1p-19 * size) << slot;
      }
    }
  });
  for_each_kernel(Side::value, [&](const Codec& codec, Isa isa) {
    const TileShape shape = shape_of(Side::value, 48, 80);
    const Page page(codec, isa, shape, rows_of(shape));
    // Weights that make all tokens count the same, and those that leave it to the largest.
    for (const bool even : {false, true}) {
      std::vector<float> weights(48, 0.5f);
      for (int slot = 0; slot < 48 && even; ++slot) {
        const double norm = test::norm(&page.decoded[size_of(slot * 80)], 80);
        const double even_weight = norm > 0 ? 0x1p-25 / norm : 1.0;
        weights[size_of(slot)] =
            static_cast<float>(std::exp2(std::min(0.0, std::floor(std::log2(even_weight)))));
      }
      const std::vector<double> exact(weights.begin(), weights.end());
      const test::MixRounding rounding(page.coded_side(isa), exact);
      for (const bool of_expanded : page.forms()) {
        const std::vector<float> out =
            mix(page, weights, {0.0f}, std::vector<float>(80, 3.0f), of_expanded);
        for (int c = 0; c < shape.dim; ++c) {
          double expected = 0;
          double bound = rounding.levels;
          for (int slot = 0; slot < shape.slots; ++slot) {
            const double scale = page.coded_side(isa).scale(slot);
            expected += exact[size_of(slot)] * page.value(slot, c);
            bound += 0x1p-19 * std::fabs(exact[size_of(slot)] * page.value(slot, c));
            if (scale > 0) bound += rounding.codes * std::fabs(page.value(slot, c)) / scale;
          }
          ASSERT_NEAR(out[size_of(c)], expected, bound) << c;
        }
      }
    }
  });
}

// All bytes and all codes at their ends, of equal sign: the largest sums there are.
TEST(PlaneKernel, TheLargestSumsDoNotOverflow) {
  for_each_kernel(Side::key, [](const Codec& codec, Isa isa) {
    for (const int dim : {64, 512, 1024}) {
      const TileShape shape = shape_of(Side::key, 32, dim);
      Page page(codec, isa, shape, std::vector<float>(size_of(32 * dim), 1.0f));
      if (!page.kernel->takes_keys(dim, dim)) continue;
      // The highest codes for even slots, the lowest for odd ones, under scales of 1.
      const CodedSide side = page.coded_side(isa);
      const PlaneTiles tiles(shape, side.bits());
      for (int slot = 0; slot < 32; ++slot) {
        const PlaneTiles::Slot codes = tiles.slot(slot);
        for (std::size_t c = 0; c < size_of(dim); ++c) {
          codes.set(page.sealed.data.data(), c, end_code(side, slot % 2 == 0));
        }
      }
      for (std::size_t i = 0; i < page.sealed.scales.size() / 2; ++i) {
        store_element(DType::f16, page.sealed.scales.data(), i, 1.0f);
      }
      page.kernel->expand(Side::key, page.side(false), page.expanded.data());
      page.decoded = test::decode(codec, shape, page.sealed, 0, 32);
      codec.rotate[0](shape, page.decoded.data(), 32, size_of(dim));
      for (const float q : {1.0f, -1.0f}) {
        for (const bool of_expanded : page.forms()) {
          const std::vector<float> out =
              scores(page, std::vector<float>(size_of(dim), q), of_expanded);
          for (int slot = 0; slot < 32; ++slot) {
            double expected = 0;
            for (int c = 0; c < dim; ++c) expected += q * page.value(slot, c);
            // All codes of such a query are exact, and so is the largest level; but codes whose
            // sums must be small are rounded.
            const double rounded = side.adds_two_steps() ? side.query_grain() : 0;
            ASSERT_NEAR(out[size_of(slot)], expected,
                        1e-5 * dim * 64 + rounded * std::fabs(expected))
                << dim << ' ' << slot;
          }
        }
      }
    }
  });
  for_each_kernel(Side::value, [](const Codec& codec, Isa isa) {
    const TileShape shape = shape_of(Side::value, 256, 64);
    Page page(codec, isa, shape, std::vector<float>(256 * 64, 1.0f));
    const CodedSide side = page.coded_side(isa);
    const double top = test::tq_levels(side.bits()).back();
    for (const bool lowest : {false, true}) {
      for (int t = 0; t < 256; ++t) {
        store_element(DType::f16, page.sealed.scales.data(), size_of(t), 1.0f);
        const PlaneTiles::Slot codes = PlaneTiles(shape, side.bits()).slot(t);
        for (std::size_t c = 0; c < 64; ++c) {
          codes.set(page.sealed.data.data(), c, end_code(side, !lowest));
        }
      }
      page.kernel->expand(Side::value, page.side(false), page.expanded.data());
      for (const float weight : {1.0f, 0x1p-66f, 0x1p-98f}) {
        for (const bool of_expanded : page.forms()) {
          const std::vector<float> out = mix(page, std::vector<float>(256, weight), {0.0f},
                                             std::vector<float>(64, 5.0f), of_expanded);
          const double expected = (lowest ? -256 : 256) * top * double{weight};
          for (const float x : out) ASSERT_NEAR(x, expected, 1e-6 * std::fabs(expected));
        }
      }
    }
  });
}

// A prepared row of 8-bit operands: a header that begins with the scale, the offset and the base,
// then codes, four of them `times` one behind the other.
struct Codes {
  float scale;
  std::int32_t offset;
  float base;
  const std::byte* codes;
  std::size_t times;

  Codes(const std::byte* row, std::size_t copies) : codes(row + 64), times(copies) {
    std::memcpy(&scale, row, sizeof scale);
    std::memcpy(&offset, row + 4, sizeof offset);
    std::memcpy(&base, row + 8, sizeof base);
  }
  std::byte at(std::size_t i) const { return codes[i / 4 * 4 * times + i % 4]; }
  float of(int sum) const { return std::fma(static_cast<float>(sum), scale, base); }
};

// Neighbours that are as large as they may be together, in all proportions and, for queries, of one
// sign or of both, with the highest and the lowest codes of a page: no sum is cut off, they are
// those of integers.
TEST(PlaneKernel, SumsOfNeighboursAreExact) {
  std::mt19937_64 random(test::announce_seed());
  std::uniform_real_distribution<float> part(0.2f, 0.8f);
  constexpr int kDim = 128;
  constexpr int kSlots = 64;
  constexpr int kRows = 100;
  const auto make = [&](Side side, const Codec& codec, Isa isa) {
    const TileShape shape = shape_of(side, kSlots, kDim);
    Page page(codec, isa, shape, std::vector<float>(size_of(kSlots * kDim), 1.0f));
    const PlaneTiles tiles(shape, page.coded_side(isa).bits());
    for (int slot = 0; slot < kSlots; ++slot) {
      store_element(DType::f16, page.sealed.scales.data(), size_of(slot), 1.0f);
      const PlaneTiles::Slot codes = tiles.slot(slot);
      for (std::size_t c = 0; c < kDim; ++c) {
        const bool high = side == Side::key ? slot % 2 == 0 : c % 2 == 0;
        codes.set(page.sealed.data.data(), c, end_code(page.coded_side(isa), high));
      }
    }
    page.kernel->expand(side, page.side(false), page.expanded.data());
    return page;
  };
  for_each_kernel(Side::key, [&](const Codec& codec, Isa isa) {
    const Page page = make(Side::key, codec, isa);
    if (!page.coded_side(isa).is_tq()) return;
    std::vector<float> queries;
    for (int i = 0; i < kRows * kDim / 2; ++i) {
      const float a = part(random);
      const int row = i / (kDim / 2);
      const bool any_sign = row >= kRows / 2 && random() % 4 == 0;
      const float sign = (row % 2 == 0) != any_sign ? 1.0f : -1.0f;
      if (row < 2) {  // each alone as large as it may be
        queries.insert(queries.end(), {sign, sign});
      } else {
        queries.insert(queries.end(), {sign * a, sign * (1.0f - a)});
      }
    }
    const test::Prepared rows = test::prepare(page, queries);
    for (const bool of_expanded : page.forms()) {
      const std::vector<float> out = scores(page, rows, 0, kSlots, of_expanded);
      for (int row = 0; row < kRows; ++row) {
        const Codes query(rows.bytes.data() + row * rows.stride, isa == Isa::avx2 ? 8 : 1);
        for (int slot = 0; slot < kSlots; ++slot) {
          int sum = -query.offset;
          for (std::size_t c = 0; c < kDim; ++c) {
            sum += static_cast<signed char>(query.at(c)) *
                   static_cast<int>(page.expanded[slot_place(page.shape, 4, slot).at(c)]);
          }
          ASSERT_EQ(out[size_of(row * kSlots + slot)], query.of(sum)) << row << ' ' << slot;
        }
      }
    }
  });
  for_each_kernel(Side::value, [&](const Codec& codec, Isa isa) {
    const Page page = make(Side::value, codec, isa);
    std::vector<float> logits;
    for (int i = 0; i < kRows * kSlots / 2; ++i) {
      const float a = part(random);
      if (i < kSlots / 2) {
        logits.insert(logits.end(), {0.0f, 0.0f});
      } else {
        logits.insert(logits.end(), {std::log2(a), std::log2(1.0f - a)});
      }
    }
    const test::Prepared rows = weigh_logits(page, logits, 0, kSlots);
    for (const bool of_expanded : page.forms()) {
      const std::vector<float> out =
          mix(page, rows, 0, kSlots, std::vector<float>(kRows, 0.0f),
              std::vector<float>(size_of(kRows * kDim), 1.0f), of_expanded);
      for (int row = 0; row < kRows; ++row) {
        const Codes weights(rows.bytes.data() + row * rows.stride, 1);
        for (std::size_t c = 0; c < kDim; ++c) {
          int sum = 0;
          for (int slot = 0; slot < kSlots; ++slot) {
            sum += static_cast<int>(weights.at(size_of(slot))) *
                   static_cast<signed char>(page.expanded[slot_place(page.shape, 4, slot).at(c)]);
          }
          ASSERT_EQ(out[size_of(row) * kDim + c], weights.of(sum)) << row << ' ' << c;
        }
      }
    }
  });
}

// Weights that are less than half a code beside a large one count together for what they are.
TEST(PlaneKernel, ManySmallWeightsAreNotLost) {
  for_each_kernel(Side::value, [](const Codec& codec, Isa isa) {
    for (const int slots : {16, 32, 64, 256}) {
      const TileShape shape = shape_of(Side::value, slots, 64);
      const Page page(codec, isa, shape, std::vector<float>(size_of(slots * 64), 1.0f));
      const CodedSide side = page.coded_side(isa);
      const double levels = test::level_error(side) * side.scale(0);
      // With 5 bits and AVX2 it is a pair that is scaled, and one of these is small.
      const bool pairs = side.adds_two_steps() && side.bits() == 5;
      const int most = side.largest_weight() * (pairs ? 2 : 1);
      const double lost = (pairs ? 2.5 : most < 255 ? 2.1 : 2.0) / most;
      for (const float small : {0x1p-8f, 0x1p-9f, 0x1p-10f, 0x1p-12f}) {
        for (const int large : {0, 1, slots / 2 - 1, slots - 2}) {
          std::vector<float> weights(size_of(slots), small);
          weights[size_of(large)] = 1.0f;
          const double sum = 1 + (slots - 1) * double{small};
          for (const bool of_expanded : page.forms()) {
            const std::vector<float> out =
                mix(page, weights, {0.0f}, std::vector<float>(64, 0.0f), of_expanded);
            for (int c = 0; c < shape.dim; ++c) {
              const double expected = sum * page.value(0, c);
              ASSERT_NEAR(out[size_of(c)], expected, lost * std::fabs(expected) + levels * sum)
                  << slots << ' ' << small << ' ' << large;
            }
          }
        }
      }
    }
  });
}

// Such a number has no reciprocal, and what it adds is not seen beside a weight of 1.
TEST(PlaneKernel, WeightsAndQueriesTooSmallForAReciprocalGiveNothing) {
  std::mt19937_64 random(test::announce_seed());
  constexpr float kTinies[] = {0x1p-110f, 0x1p-117f, 0x1p-125f, 0x1p-126f, 0x1p-133f, 0x1p-149f};
  for_each_kernel(Side::key, [&](const Codec& codec, Isa isa) {
    const TileShape shape = shape_of(Side::key, 48, 64);
    const Page page(codec, isa, shape, normals(random, 48 * 64));
    for (const float tiny : kTinies) {
      for (const float s : scores(page, std::vector<float>(64, tiny))) {
        EXPECT_LE(std::fabs(s), 1e-30f) << tiny;
      }
    }
  });
  for_each_kernel(Side::value, [&](const Codec& codec, Isa isa) {
    const TileShape shape = shape_of(Side::value, 48, 64);
    const Page page(codec, isa, shape, normals(random, 48 * 64));
    const std::vector<float> o = normals(random, 64);
    for (const float tiny : kTinies) {
      EXPECT_EQ(mix(page, std::vector<float>(48, tiny), {1.0f}, o), o) << tiny;
    }
  });
}

// A rotation of large finite queries may be infinite. Their codes are then nothing, and may be
// larger than others; no form of the product makes numbers of them.
TEST(PlaneKernel, InfiniteQueriesHaveNoScores) {
  std::mt19937_64 random(test::announce_seed());
  for_each_kernel(Side::key, [&](const Codec& codec, Isa isa) {
    const TileShape shape = shape_of(Side::key, 64, 128);
    const Page page(codec, isa, shape, normals(random, 64 * 128));
    std::vector<float> query = normals(random, 128);
    for (const int infinite : {1, 128}) {
      for (int c = 0; c < infinite; ++c) query[size_of(c)] *= HUGE_VALF;
      for (const bool of_expanded : page.forms()) {
        for (const float s : scores(page, query, of_expanded)) ASSERT_TRUE(std::isnan(s)) << s;
      }
    }
  });
}

TEST(PlaneKernel, TakesKeysWhoseSumsCannotOverflow) {
  for_each_kernel(Side::key, [](const Codec& codec, Isa isa) {
    const CodedSide side{&codec, isa, {}, nullptr, nullptr};
    const auto takes = codec.kernels[static_cast<std::size_t>(isa)]->takes_keys;
    for (const int dim : {2, 64, 80, 512}) EXPECT_TRUE(takes(dim, dim)) << dim;
    EXPECT_EQ(takes(514, 514), !side.has_words());
    EXPECT_EQ(takes(1024, 1024), !side.has_words());
    EXPECT_FALSE(takes(1026, 1026));
    EXPECT_FALSE(takes(576, 512));  // no scales of parts
  });
}

// Codes are multiplied where they lie in vector units, for head sizes whose units are whole, and
// values of those that end with half a unit.
TEST(PlaneKernel, FusedProductsAreThereForCommonSizes) {
  for_each_kernel(Side::key, [](const Codec& codec, Isa isa) {
    for (const int dim : {64, 128, 192, 256}) {
      const TileShape shape = shape_of(Side::key, 16, dim);
      const Page page(codec, isa, shape, std::vector<float>(size_of(16 * dim), 1.0f));
      EXPECT_EQ(page.is_fused(), isa != Isa::scalar) << dim;
    }
  });
  for_each_kernel(Side::value, [](const Codec& codec, Isa isa) {
    for (const int dim : {64, 128, 192, 256}) {
      const TileShape shape = shape_of(Side::value, 16, dim);
      const Page page(codec, isa, shape, std::vector<float>(size_of(16 * dim), 1.0f));
      EXPECT_EQ(page.is_fused(), isa != Isa::scalar) << dim;
    }
  });
}

}  // namespace
}  // namespace quire
