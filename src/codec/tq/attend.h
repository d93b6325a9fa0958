// Attention on tq pages, for the instruction set whose integers were included before.
//
// Codes become levels, in bytes: in the steps that are nearest to those of the codebook.
// Queries and weights are in the basis of the codes, with 8 bits (byte_dots.h).
#pragma once

#include "codec/byte_dots.h"
#include "codec/plane_products.h"
#include "codec/tq/codebooks.h"
#include "codec/unpack_planes.h"

namespace quire {
namespace {

// e^(-x^2 / 2), the density of a normal variable but for a factor.
constexpr double density(double x) {
  double sum = 1;
  double term = 1;
  for (int i = 1; i < 60; ++i) {
    term *= x * x / 2 / i;
    sum += term;
  }
  return 1 / sum;
}

// The levels of one codebook in bytes: in whole steps up to kCap, or in halves up to kCap and a
// half; with the step for which they are off by the least mean square, over normal numbers.
//
// Where products are added in 16 bits before they are widened, levels are small, so that the pairs
// of two steps fit: at 1 % of the codebook's own error up to 4 bits and 2.6 % with 5; those of 6
// bits are such by themselves.
template <int kBits>
struct TqLevels {
  using Book = Codebook<kBits>;
  static constexpr int kHalf = 1 << (kBits - 1);
  static constexpr bool kHalves = kHasShortSums && kBits > 4;
  static constexpr int kCap = !kHasShortSums ? 127
                              : kBits == 6   ? 48
                              : kBits == 5   ? 73
                              : kBits == 4   ? 41
                              : kBits == 3   ? 43
                                             : 10;

  static constexpr double level(int i) { return Book::kLevels[i]; }
  static constexpr double kRest = kHalves ? 0.5 : 0;  // of a positive level, behind its whole steps
  static constexpr int whole_steps(int i, double step) {
    return static_cast<int>(level(i) / step + (kHalves ? 1e-4 : 0.5));
  }
  static constexpr double error_of(double step) {
    double error = 0;
    for (int i = 0; i < kHalf; ++i) {
      const double off = (whole_steps(i, step) + kRest) * step - level(i);
      const double width = i + 1 < kHalf ? level(i + 1) - level(i) : 1;
      error += density(level(i)) * width * off * off;
    }
    return error;
  }
  static constexpr double best_step() {
    double best = level(kHalf - 1) / (kCap + kRest);
    for (int most = kCap - 1; most > kCap / 2; --most) {
      const double step = level(kHalf - 1) / (most + kRest);
      if (error_of(step) < error_of(best)) best = step;
    }
    return best;
  }
  static constexpr double kExactStep = best_step();
  static constexpr float kStep = static_cast<float>(kExactStep);
  static constexpr double kLargest = whole_steps(kHalf - 1, kExactStep) + kRest;

  // What is added to levels in steps to make bytes of them: unsigned for keys.
  static constexpr double kKeyMiddle = kLargest;
  static constexpr double kValueMiddle = kRest;
  static constexpr int kLargestKey = static_cast<int>(kLargest + kKeyMiddle);
  static constexpr int kLargestValue = static_cast<int>(kLargest + kValueMiddle);

  std::int8_t bytes[64] = {};  // those of all codes, again and again

  constexpr explicit TqLevels(double middle) {
    for (int i = 0; i < 64; ++i) {
      const int rank = (i + Book::kFirst) % (2 * kHalf) - kHalf;
      const double steps = whole_steps(rank < 0 ? -1 - rank : rank, kExactStep) + kRest;
      const int byte = static_cast<int>((rank < 0 ? -steps : steps) + middle);
      bytes[i] = static_cast<std::int8_t>(static_cast<std::uint8_t>(byte));
    }
  }
};

// What the scale of a query is made of: its magnitudes, whose codes go up to kEach, and in the two
// sets of four channels of which products are added up in 16 bits, the larger of the sums of those
// of either sign, which must not exceed kSum in codes.
template <int kEach, int kSum>
struct SmallSums {
  template <class F>
  QUIRE_INLINE static F of(const F& a) {
    const F magnitude = magnitudes(a);
    const F factor = spread(static_cast<float>(kEach) / (2 * kSum));  // before sums overflow
    const F sums = add(quad_sums(mul(magnitude, factor)), magnitudes(quad_sums(mul(a, factor))));
    return larger_number(magnitude, sums);  // NaN where one of the two is
  }
};

// What the scale of weights is made of where pairs of them must not exceed the largest code.
struct PairSums {
  template <class F>
  QUIRE_INLINE static F of(const F& a) {
    return pair_sums(a);
  }
};

template <int kBits>
struct Tq {
  using Levels = TqLevels<kBits>;
  static constexpr Levels kKeyLevels{Levels::kKeyMiddle};
  static constexpr Levels kValueLevels{Levels::kValueMiddle};

  // Sums of four products must not exceed 32767 where kHasShortSums. Rounding raises the sum of
  // four codes of a query by 2 at most.
  static constexpr int kMostSum = 32767 / Levels::kLargestKey - 2;
  using QueryScale =
      Select<(kHasShortSums && kMostSum < 4 * 127), SmallSums<127, kMostSum>, AsTheyAre>;
  // Those of weights are a fourth of what four may be, but of 5 bits that would be too few: there a
  // pair has the half. Rounding, dithered, raises the sum of a pair by 1 at most.
  static constexpr bool kPairs = kHasShortSums && kBits == 5;
  static constexpr int kMostOfFour = 32767 / Levels::kLargestValue;
  static constexpr int kMostInShort = kPairs ? kMostOfFour / 2 - 1 : kMostOfFour / 4;
  static constexpr int kMostWeight = kHasShortSums && kMostInShort < 255 ? kMostInShort : 255;
  using WeightScale = Select<kPairs, PairSums, AsTheyAre>;
  using Bytes = WeightBytes<kMostWeight, Levels::kHalves>;

  static bool takes_keys(int dim, int split) noexcept {
    return split >= dim && dim <= kMostChannels;
  }

  static void prepare(const float* query, int dim, int, std::byte* prepared) noexcept {
    float padded[kMostChannels + kTile];
    int count = 0;
    for (; count < dim; ++count) padded[count] = query[count];
    for (; count % kTile != 0; ++count) padded[count] = 0.0f;
    const float largest = largest_magnitude<QueryScale>(padded, count);
    store_rows<QueryBytes<kCopies>, 1>(
        [&](int, int i) QUIRE_INLINED { return load_floats(padded + i); }, count, Quad{largest},
        Levels::kStep, static_cast<float>(Levels::kKeyMiddle), prepared, 0);
  }

  template <int R, int V>
  struct Weights : ScaledWeights<R, V, WeightScale> {
    using Scaled = ScaledWeights<R, V, WeightScale>;
    using Scaled::Scaled;
    static constexpr int kDegree = 3;
    QUIRE_INLINE void done() {
      Scaled::done();
      const Logits& all = this->logits;
      store_rows<Bytes, R>([&](int r, int i) QUIRE_INLINED { return this->at(r, i); },
                           this->count(), this->largest_of_row, Levels::kStep,
                           static_cast<float>(Levels::kValueMiddle), all.prepared_row(this->row),
                           all.prepared_stride, all.first);
    }
  };

  static void expand(Side side, const PageSide& page, std::byte* to) noexcept {
    const ByteTable<kBits> table((side == Side::key ? kKeyLevels : kValueLevels).bytes);
    unpack_page<kBits>(side, page, to, table);
  }

  static bool takes_coded(Side side, int dim) noexcept { return fits_units<kBits>(side, dim); }

  static void coded_scores(const PageSide& keys, int first, int end, const Operands& queries,
                           float* out, std::ptrdiff_t out_stride, const Ahead& ahead) noexcept {
    using Ops = Select<kHasShortSums, TwoSteps<CopiedKeyOps>, CopiedKeyOps>;
    plane_scores<FewRows<Ops>, kBits>(keys, first, end, queries, out, out_stride, ahead,
                                      ByteTable<kBits>(kKeyLevels.bytes));
  }
  static void coded_mix(const PageSide& values, int first, int end, const Operands& weights,
                        const float* keep, float* o, std::ptrdiff_t o_stride,
                        const Ahead& ahead) noexcept {
    using Ops = Select<kHasShortSums, TwoSteps<ValueByteOps>, ValueByteOps>;
    plane_mix<FewRows<Ops>, kBits>(values, first, end, weights, keep, o, o_stride, ahead,
                                   ByteTable<kBits>(kValueLevels.bytes));
  }

  static constexpr Kernel kernel() {
    return {.takes_keys = takes_keys,
            .query_bytes = byte_row_bytes<kCopies>,
            .prepare = prepare,
            .weight_bytes = byte_row_bytes<>,
            .weigh = weigh<Weights>,
            .coded = kFuses ? Products{coded_scores, coded_mix} : Products{},
            .takes_coded = takes_coded,
            .expanded_bytes = expanded_tile_bytes,
            .expand = expand,
            .expanded = {scores<CopiedKeyOps, 4>, mix<ValueByteOps>}};
  }
};

}  // namespace
}  // namespace quire
