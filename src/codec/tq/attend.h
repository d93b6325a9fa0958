// Attention on tq pages, for the instruction set whose integers were included before.
//
// Codes become levels, in bytes: the multiples of a step that are nearest to those of the codebook.
// Queries and weights are in the basis of the codes. Operands have 8 bits (byte_dots.h), or 15
// (word_dots.h) where 8 would add too much to what the codes lost: for 6 bits, and for 5 where
// bytes must be small.
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
  // Bytes that are multiplied with bytes must be small where the instruction adds pairs in 16 bits;
  // rounded to that, more than 16 levels would be too far off.
  static constexpr bool kWords = kBits == 6 || (kBits == 5 && kLargestLevel < 127);
  static constexpr int kLargest = kWords ? 127 : kLargestLevel;
  static constexpr int kMiddle = kLargestLevel + 1;  // what makes levels of keys unsigned

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

template <int kBits>
struct Tq {
  using Levels = TqLevels<kBits>;
  // Words are multiplied with unsigned bytes, bytes with such of the other sign.
  static constexpr int kKeyMiddle = Levels::kWords ? 128 : Levels::kMiddle;
  static constexpr int kValueMiddle = Levels::kWords ? 128 : 0;
  static constexpr Levels kKeyLevels{kKeyMiddle};
  static constexpr Levels kValueLevels{kValueMiddle};

  static bool takes_keys(int dim, int split) noexcept {
    return split >= dim && dim <= (Levels::kWords ? kLargestPart : kMostChannels);
  }

  static std::size_t row_bytes(int count) noexcept {
    return Levels::kWords ? code_bytes(count) : byte_row_bytes(count + 3 * kTile);
  }

  static void prepare(const float* query, int dim, int, std::byte* prepared) noexcept {
    float padded[kMostChannels + kTile];
    int count = 0;
    for (; count < dim; ++count) padded[count] = query[count];
    for (; count % kTile != 0; ++count) padded[count] = 0.0f;
    const float largest = largest_magnitude(padded, count);
    store_rows<Select<Levels::kWords, Words, QueryBytes>, 1>(
        padded, 0, count, &largest, Levels::kStep, kKeyMiddle, prepared, 0);
  }

  template <int R>
  struct Weights : ScaledWeights<R> {
    using ScaledWeights<R>::ScaledWeights;
    QUIRE_INLINE void done() {
      ScaledWeights<R>::done();
      const Logits& all = this->logits;
      store_rows<Select<Levels::kWords, Words, WeightBytes>, R>(
          all.row(this->row) + all.first, all.stride, all.end - all.first, this->largest_of_row,
          Levels::kStep, kValueMiddle, all.prepared_row(this->row), all.prepared_stride,
          all.first * (Levels::kWords ? 2 : 1));
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
