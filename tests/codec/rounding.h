// By how much the kernels of tq and dual can be off from sums over what their pages decode to.
//
// Such kernels round three things: numbers of a query to the nearest codes of max / 127, or of
// max / 32767 where operands have 15 bits; weights times the scales of their values to one of the
// two codes of max / 255 beside them, since they are dithered; either to up to 1.7 times as much
// where pairs of them must be small; and the levels of tq to the nearest multiples of a step. Sums
// of what is left are exact. The bounds here are the sums of all that at its worst, made from the
// bytes of a page.
//
// Queries are in the basis of the codes (Codec::rotate).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <vector>

#include "base/isa.h"
#include "base/numbers.h"
#include "codec/codec.h"
#include "codec/planes.h"
#include "codec/tq/codebooks.h"

namespace quire::test {

// One side of one head of one page of a codec that rotates, and who multiplies it.
struct CodedSide {
  const Codec* codec;
  Isa isa;
  TileShape shape;
  const std::byte* data;
  const std::byte* scales;

  bool is_tq() const { return std::string_view(codec->name).starts_with("tq"); }
  int bits() const { return std::string_view(codec->name).back() - '0'; }
  bool has_words() const { return !is_tq() && bits() == 6; }
  bool has_small_pairs() const { return is_tq() && bits() >= 5 && isa == Isa::avx2; }
  // With AVX2 the products of two steps of up to 4 bits fit 16 bits together, so levels and codes
  // are smaller.
  bool adds_two_steps() const { return is_tq() && bits() <= 4 && isa == Isa::avx2; }
  int largest_level() const {
    return isa != Isa::avx2 ? 127 : bits() >= 5 ? 108 : bits() == 4 ? 41 : bits() == 3 ? 43 : 10;
  }
  // The largest codes of queries and weights, or the least that those of a pair leave to one.
  int largest_query() const {
    if (has_words()) return 32767;
    if (has_small_pairs()) return 75;
    return adds_two_steps() ? std::min(127, 32767 / 4 / (2 * largest_level() + 1)) : 127;
  }
  int largest_weight() const {
    if (has_small_pairs()) return 151;
    return adds_two_steps() ? std::min(255, 32767 / 4 / largest_level()) : 255;
  }
  // What a code can be off by, as a part of the largest number; the hundredth is for the floats
  // that make it.
  double query_grain() const { return 0.51 / largest_query(); }
  double weight_grain() const { return 1.01 / largest_weight(); }
  double scale(int slot) const {
    return load_element(DType::f16, scales, static_cast<std::size_t>(slot));
  }
};

// The positive levels of tq.
inline std::vector<double> tq_levels(int bits) {
  const auto list = [](const auto& levels) {
    return std::vector<double>(std::begin(levels), std::end(levels));
  };
  switch (bits) {
    case 2:
      return list(Codebook<2>::kLevels);
    case 3:
      return list(Codebook<3>::kLevels);
    case 4:
      return list(Codebook<4>::kLevels);
    case 5:
      return list(Codebook<5>::kLevels);
    default:
      return list(Codebook<6>::kLevels);
  }
}

// The step of a kernel of tq, whose largest level is a whole number of them: that number is what a
// page of the highest codes expands to.
inline double tq_step(const Codec& codec, Isa isa, int bits) {
  constexpr int kSlots = 16;
  constexpr int kDim = 16;
  const std::vector<std::byte> data(codec.data_bytes({Side::value, kSlots, kDim}), std::byte{0xff});
  const Kernel& kernel = *codec.kernels[static_cast<std::size_t>(isa)];
  std::vector<std::byte> expanded(kernel.expanded_bytes(Side::value, kSlots, kDim));
  kernel.expand(Side::value, {data.data(), nullptr, kSlots, kDim, kDim}, expanded.data());
  return tq_levels(bits).back() / static_cast<double>(static_cast<signed char>(expanded[0]));
}

// What the levels of tq are off by as multiples of their step; 0 for dual.
inline double level_error(const CodedSide& side) {
  if (!side.is_tq()) return 0;
  const double step = tq_step(*side.codec, side.isa, side.bits());
  double worst = 0;
  for (const double level : tq_levels(side.bits())) {
    worst = std::max(worst, std::fabs(std::nearbyint(level / step) * step - level));
  }
  return worst + 0x1p-22;  // the step is kept in f32
}

// Scores of one query, in the basis of the codes.
class ScoreRounding {
 public:
  ScoreRounding(const CodedSide& keys, const float* query)
      : keys_(keys),
        levels_(tq_levels(keys.bits())),
        level_error_(level_error(keys)),
        query_(query) {
    for (int c = 0; c < keys.shape.dim; ++c) {
      largest_ = std::max(largest_, std::fabs(double{query[c]}) * (keys.is_tq() ? 1 : step(c)));
    }
  }

  double of(int slot) const {
    const PlaneTiles::Slot codes = PlaneTiles(keys_.shape, keys_.bits()).slot(slot);
    const int half = 1 << (keys_.bits() - 1);
    double sum = 0;
    for (int c = 0; c < keys_.shape.dim; ++c) {
      const int code = static_cast<int>(codes.get(keys_.data, static_cast<std::size_t>(c)));
      const double q = std::fabs(double{query_[c]});
      if (keys_.is_tq()) {
        const int index = code >= half ? code - half : half - 1 - code;
        const double level = levels_[static_cast<std::size_t>(index)] + level_error_;
        sum += keys_.query_grain() * largest_ * level + q * level_error_;
      } else {
        // Codes count from the middle; the rest is a sum of floats that may be as large.
        const double distance = std::abs(code - half);
        sum += keys_.query_grain() * largest_ * distance + 0x1p-20 * q * step(c) * distance;
      }
    }
    return keys_.scale(slot) * sum;
  }

 private:
  // Of dual: behind the scales of tokens and the lowest values of channels.
  double step(int channel) const {
    return keys_.scale(keys_.shape.padded_slots() + keys_.shape.dim + channel);
  }

  CodedSide keys_;
  std::vector<double> levels_;
  double level_error_;
  const float* query_;
  double largest_ = 0;  // |query|, for dual |query| times the channel's step
};

// A mix of tq values with `weights` [slots]: the sum of a channel is off by up to `codes` times
// |value| / scale of each token with a weight, and by `levels` besides.
struct MixRounding {
  double codes = 0;
  double levels = 0;

  MixRounding(const CodedSide& values, const std::vector<double>& weights) {
    const double error = level_error(values);
    double largest = 0;
    double sum = 0;
    for (std::size_t t = 0; t < weights.size(); ++t) {
      const double scaled = weights[t] * values.scale(static_cast<int>(t));
      largest = std::max(largest, scaled);
      sum += scaled;
    }
    codes = values.weight_grain() * largest;
    for (const double weight : weights) levels += weight > 0 ? codes * error : 0;
    levels += sum * error;
  }
};

}  // namespace quire::test
