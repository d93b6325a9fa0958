// Attention on tq pages, for the instruction set whose integers were included before.
//
// Codes become levels, in bytes: the multiples of a step that are nearest to those of the codebook.
// Queries and weights are in the basis of the codes. Operands have 8 bits (byte_dots.h), or 15
// (word_dots.h) where 8 would add too much to what the codes lost: for 6 bits.
#pragma once

#include "codec/byte_dots.h"
#include "codec/plane_products.h"
#include "codec/tq/codebooks.h"
#include "codec/unpack_planes.h"
#include "codec/word_dots.h"

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

// The levels of one codebook as multiples of a step, up to kLargest of them; the step for which
// they are off by the least mean square, over normal numbers.
template <int kBits>
struct TqLevels {
  static constexpr int kHalf = 1 << (kBits - 1);
  static constexpr bool kWords = kBits == 6;
  // Where the instruction adds pairs of products in 16 bits, one of the factors must be small: the
  // levels; or, since more of them would be too far off, pairs of queries' and weights' codes.
  static constexpr bool kSmallPairs = kBits == 5 && kLargestLevel < 127;
  static constexpr int kLargest = kWords || kSmallPairs ? 127 : kLargestLevel;
  static constexpr int kMiddle = kLargest + 1;  // what makes levels of keys unsigned

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
    double best = level(kHalf - 1) / kLargest;
    for (int most = kLargest - 1; most > kLargest / 2; --most) {
      const double step = level(kHalf - 1) / most;
      if (error_of(step) < error_of(best)) best = step;
    }
    return best;
  }
  static constexpr double kExactStep = best_step();
  static constexpr float kStep = static_cast<float>(kExactStep);

  std::int8_t bytes[64] = {};  // the levels, again and again

  constexpr explicit TqLevels(int middle) {
    for (int i = 0; i < 64; ++i) {
      const int code = i % (2 * kHalf) - kHalf;
      const int level = code < 0 ? -multiple(-1 - code, kExactStep) : multiple(code, kExactStep);
      bytes[i] = static_cast<std::int8_t>(static_cast<std::uint8_t>(middle + level));
    }
  }
};

// What the scale of a row is made of where its pairs must be small: codes of a pair are rounded
// twice, so they may add up to one more. Levels of keys are at most 255, those of values 127.
struct QueryPairs {  // codes of a pair up to 127
  template <class F>
  QUIRE_INLINE static F of(const F& a) {
    return pair_sums(magnitudes(a));
  }
  static_assert((127 + 1) * 255 <= 32767);
};
struct WeightPairs {  // codes of a pair up to 257, each up to 255
  template <class F>
  QUIRE_INLINE static F of(const F& a) {
    return larger(a, mul(pair_sums(a), spread(255.0f / 257.0f)));
  }
  static_assert((257 + 1) * 127 <= 32767);
};

template <int kBits>
struct Tq {
  using Levels = TqLevels<kBits>;
  // Words are multiplied with unsigned bytes, bytes with such of the other sign.
  static constexpr int kKeyMiddle = Levels::kMiddle;
  static constexpr int kValueMiddle = Levels::kWords ? 128 : 0;
  static constexpr Levels kKeyLevels{kKeyMiddle};
  static constexpr Levels kValueLevels{kValueMiddle};

  static bool takes_keys(int dim, int split) noexcept {
    return split >= dim && dim <= (Levels::kWords ? kLargestPart : kMostChannels);
  }

  static std::size_t row_bytes(int count) noexcept {
    return Levels::kWords ? code_bytes(count) : byte_row_bytes(count);
  }

  static void prepare(const float* query, int dim, int, std::byte* prepared) noexcept {
    float padded[kMostChannels + kTile];
    int count = 0;
    for (; count < dim; ++count) padded[count] = query[count];
    for (; count % kTile != 0; ++count) padded[count] = 0.0f;
    const float largest =
        largest_magnitude<Select<Levels::kSmallPairs, QueryPairs, AsTheyAre>>(padded, count);
    store_rows<Select<Levels::kWords, Words, QueryBytes>, 1>(
        [&](int, int i) QUIRE_INLINED { return load_floats(padded + i); }, count, Quad{largest},
        Levels::kStep, kKeyMiddle, prepared, 0);
  }

  template <int R, int V>
  struct Weights : ScaledWeights<R, V, Select<Levels::kSmallPairs, WeightPairs, AsTheyAre>> {
    using Scaled = ScaledWeights<R, V, Select<Levels::kSmallPairs, WeightPairs, AsTheyAre>>;
    using Scaled::Scaled;
    static constexpr int kDegree = Levels::kWords ? 4 : 3;
    QUIRE_INLINE void done() {
      Scaled::done();
      const Logits& all = this->logits;
      store_rows<Select<Levels::kWords, Words, WeightBytes>, R>(
          [&](int r, int i) QUIRE_INLINED { return this->at(r, i); }, this->count(),
          this->largest_of_row, Levels::kStep, kValueMiddle, all.prepared_row(this->row),
          all.prepared_stride, all.first * (Levels::kWords ? 2 : 1));
    }
  };

  static void expand(Side side, const PageSide& page, std::byte* to) noexcept {
    const ByteTable<kBits> table((side == Side::key ? kKeyLevels : kValueLevels).bytes);
    unpack_page<kBits>(side, page, to, table);
  }

  using KeyOps = Select<Levels::kWords, UnsignedWordOps, KeyByteOps>;
  using ValueOps = Select<Levels::kWords, UnsignedWordOps, ValueByteOps>;

  static bool takes_coded(Side side, int dim) noexcept { return whole_units<kBits>(side, dim); }

  static void coded_scores(const PageSide& keys, int first, int end, const Operands& queries,
                           float* out, std::ptrdiff_t out_stride, const Ahead& ahead) noexcept {
    plane_scores<FewRows<KeyOps>, kBits>(keys, first, end, queries, out, out_stride, ahead,
                                         ByteTable<kBits>(kKeyLevels.bytes));
  }
  static void coded_mix(const PageSide& values, int first, int end, const Operands& weights,
                        const float* keep, float* o, std::ptrdiff_t o_stride,
                        const Ahead& ahead) noexcept {
    plane_mix<FewRows<ValueOps>, kBits>(values, first, end, weights, keep, o, o_stride, ahead,
                                        ByteTable<kBits>(kValueLevels.bytes));
  }

  static constexpr Kernel kernel() {
    return {.takes_keys = takes_keys,
            .query_bytes = row_bytes,
            .prepare = prepare,
            .weight_bytes = row_bytes,
            .weigh = weigh<Weights>,
            .coded = kFuses ? Products{coded_scores, coded_mix} : Products{},
            .takes_coded = takes_coded,
            .expanded_bytes = expanded_tile_bytes,
            .expand = expand,
            .expanded = {scores<KeyOps, 4>, mix<ValueOps>}};
  }
};

}  // namespace
}  // namespace quire
