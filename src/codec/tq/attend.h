// Attention on tq pages, for the instruction set whose integers were included before.
//
// Codes become levels, in bytes: the multiples of a step that are nearest to those of the codebook.
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

// The levels of one codebook as multiples of a step, up to kCap of them; the step for which they
// are off by the least mean square, over normal numbers.
template <int kBits>
struct TqLevels {
  static constexpr int kHalf = 1 << (kBits - 1);
  // Where the instruction adds pairs of products in 16 bits, factors must be small. Up to 4 bits
  // levels can be, at 1 % of the codebook's own error, so that the pairs of two steps fit.
  // From 5 bits on coarse levels would be too far off: 108 are as many as those of 6 bits are, and
  // pairs of queries' and weights' codes are small.
  static constexpr bool kTwoSteps = kHasShortSums && kBits <= 4;
  static constexpr bool kSmallPairs = kHasShortSums && kBits > 4;
  static constexpr int kCap = !kHasShortSums ? 127
                              : kBits > 4    ? 108
                              : kBits == 4   ? 41
                              : kBits == 3   ? 43
                                             : 10;

  static constexpr double level(int i) { return Codebook<kBits>::kLevels[i]; }
  static constexpr int multiple(int i, double step) {
    return static_cast<int>(level(i) / step + 0.5);
  }
  static constexpr double error_of(double step) {
    double error = 0;
    for (int i = 0; i < kHalf; ++i) {
      const double off = multiple(i, step) * step - level(i);
      const double width = i + 1 < kHalf ? level(i + 1) - level(i) : 1;
      error += density(level(i)) * width * off * off;
    }
    return error;
  }
  static constexpr double best_step() {
    double best = level(kHalf - 1) / kCap;
    for (int most = kCap - 1; most > kCap / 2; --most) {
      const double step = level(kHalf - 1) / most;
      if (error_of(step) < error_of(best)) best = step;
    }
    return best;
  }
  static constexpr double kExactStep = best_step();
  static constexpr float kStep = static_cast<float>(kExactStep);
  static constexpr int kLargest = multiple(kHalf - 1, kExactStep);
  static constexpr int kMiddle = kLargest + 1;  // what makes levels of keys unsigned

  std::int8_t bytes[64] = {};  // the levels, again and again

  constexpr explicit TqLevels(int middle) {
    for (int i = 0; i < 64; ++i) {
      const int code = i % (2 * kHalf) - kHalf;
      const int level = code < 0 ? -multiple(-1 - code, kExactStep) : multiple(code, kExactStep);
      bytes[i] = static_cast<std::int8_t>(static_cast<std::uint8_t>(middle + level));
    }
  }
};

// What the scale of a row is made of where codes, up to kEach, must not add up to more than kPair
// with their neighbour.
template <int kEach, int kPair>
struct SmallPairs {
  template <class F>
  QUIRE_INLINE static F of(const F& a) {
    const F magnitude = magnitudes(a);
    const F pairs = mul(pair_sums(magnitude), spread(static_cast<float>(kEach) / kPair));
    return larger_number(magnitude, pairs);  // NaN where one of the two is
  }
};

template <int kBits>
struct Tq {
  using Levels = TqLevels<kBits>;
  static constexpr Levels kKeyLevels{Levels::kMiddle};
  static constexpr Levels kValueLevels{0};

  // Sums of four products must not exceed 32767 where kTwoSteps.
  static constexpr int below(int most, int limit) { return most < limit ? most : limit; }
  static constexpr int kMostQuery =
      Levels::kTwoSteps ? below(127, 32767 / 4 / (Levels::kMiddle + Levels::kLargest)) : 127;
  static constexpr int kMostWeight =
      Levels::kTwoSteps ? below(255, 32767 / 4 / Levels::kLargest) : 255;

  // Products of a pair must not exceed it where kSmallPairs. Rounding, dithered or not, raises the
  // sum of two codes by less than 2, so to the next integer at most.
  static constexpr int kQueryPair = 32767 / (Levels::kMiddle + Levels::kLargest) - 1;
  static constexpr int kWeightPair = 32767 / Levels::kLargest - 1;
  using QueryScale = Select<Levels::kSmallPairs, SmallPairs<127, kQueryPair>, AsTheyAre>;
  using WeightScale = Select<Levels::kSmallPairs, SmallPairs<255, kWeightPair>, AsTheyAre>;

  static bool takes_keys(int dim, int split) noexcept {
    return split >= dim && dim <= kMostChannels;
  }

  static void prepare(const float* query, int dim, int, std::byte* prepared) noexcept {
    float padded[kMostChannels + kTile];
    int count = 0;
    for (; count < dim; ++count) padded[count] = query[count];
    for (; count % kTile != 0; ++count) padded[count] = 0.0f;
    const float largest = largest_magnitude<QueryScale>(padded, count);
    store_rows<QueryBytes<kMostQuery>, 1>(
        [&](int, int i) QUIRE_INLINED { return load_floats(padded + i); }, count, Quad{largest},
        Levels::kStep, Levels::kMiddle, prepared, 0);
  }

  template <int R, int V>
  struct Weights : ScaledWeights<R, V, WeightScale> {
    using Scaled = ScaledWeights<R, V, WeightScale>;
    using Scaled::Scaled;
    static constexpr int kDegree = 3;
    QUIRE_INLINE void done() {
      Scaled::done();
      const Logits& all = this->logits;
      store_rows<WeightBytes<kMostWeight>, R>(
          [&](int r, int i) QUIRE_INLINED { return this->at(r, i); }, this->count(),
          this->largest_of_row, Levels::kStep, 0, all.prepared_row(this->row), all.prepared_stride,
          all.first);
    }
  };

  static void expand(Side side, const PageSide& page, std::byte* to) noexcept {
    const ByteTable<kBits> table((side == Side::key ? kKeyLevels : kValueLevels).bytes);
    unpack_page<kBits>(side, page, to, table);
  }

  static bool takes_coded(Side side, int dim) noexcept { return whole_units<kBits>(side, dim); }

  static void coded_scores(const PageSide& keys, int first, int end, const Operands& queries,
                           float* out, std::ptrdiff_t out_stride, const Ahead& ahead) noexcept {
    using Ops = Select<Levels::kTwoSteps, TwoSteps<KeyByteOps>, KeyByteOps>;
    plane_scores<FewRows<Ops>, kBits>(keys, first, end, queries, out, out_stride, ahead,
                                      ByteTable<kBits>(kKeyLevels.bytes));
  }
  static void coded_mix(const PageSide& values, int first, int end, const Operands& weights,
                        const float* keep, float* o, std::ptrdiff_t o_stride,
                        const Ahead& ahead) noexcept {
    using Ops = Select<Levels::kTwoSteps, TwoSteps<ValueByteOps>, ValueByteOps>;
    plane_mix<FewRows<Ops>, kBits>(values, first, end, weights, keep, o, o_stride, ahead,
                                   ByteTable<kBits>(kValueLevels.bytes));
  }

  static constexpr Kernel kernel() {
    return {.takes_keys = takes_keys,
            .query_bytes = byte_row_bytes,
            .prepare = prepare,
            .weight_bytes = byte_row_bytes,
            .weigh = weigh<Weights>,
            .coded = kFuses ? Products{coded_scores, coded_mix} : Products{},
            .takes_coded = takes_coded,
            .expanded_bytes = expanded_tile_bytes,
            .expand = expand,
            .expanded = {scores<KeyByteOps, 4>, mix<ValueByteOps>}};
  }
};

}  // namespace
}  // namespace quire
