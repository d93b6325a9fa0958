// By how much the kernels of tq and dual can be off from sums over what their pages decode to.
//
// Such kernels round three things: numbers of a query to the nearest codes of max / 127, or of
// max / 32767 where operands have 15 bits; weights times the scales of their values to one of the
// two codes of max / 255 beside them, since they are dithered; either to up to 2.3 times as much
// where sums of two or four must be small; and the levels of tq to whole or half steps. Sums
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
  // With AVX2 the products of two steps fit 16 bits together, so levels and codes are smaller, and
  // levels of 5 and 6 bits lie on halves of their step.
  bool adds_two_steps() const { return is_tq() && isa == Isa::avx2; }
  bool has_halves() const { return adds_two_steps() && bits() >= 5; }
  double largest_level() const {
    constexpr double kLargest[] = {10, 43, 41, 73.5, 48.5};
    return adds_two_steps() ? kLargest[bits() - 2] : 127;
  }
  // The largest code of a query, or the least that those of four channels leave to one; of a
  // weight.
  int largest_query() const {
    if (has_words()) return 32767;
    if (!adds_two_steps()) return 127;
    return std::min(127, (32767 / static_cast<int>(2 * largest_level()) - 2) / 4);
  }
  int largest_weight() const {
    if (!adds_two_steps()) return 255;
    return std::min(255, 32767 / 4 / static_cast<int>(largest_level() + 0.5));
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

// Which level a code of tq is, counted from the lowest up.
inline int tq_rank(int bits, unsigned code) {
  const unsigned first = bits == 6 ? Codebook<6>::kFirst : 0;
  return static_cast<int>((code + first) % (1u << bits));
}
inline unsigned tq_code(int bits, int rank) {
  const int first = bits == 6 ? Codebook<6>::kFirst : 0;
  return static_cast<unsigned>(rank - first) % (1u << bits);
}

// The step of a kernel of tq, of which the largest level is a whole number, or one and a half: that
// number is what the highest code expands to.
inline double tq_step(const CodedSide& side) {
  const int bits = side.bits();
  const TileShape shape{Side::value, 16, 16};
  std::vector<std::byte> data(side.codec->data_bytes(shape));
  PlaneTiles(shape, bits).slot(0).set(data.data(), 0, tq_code(bits, (1 << bits) - 1));
  const Kernel& kernel = *side.codec->kernels[static_cast<std::size_t>(side.isa)];
  std::vector<std::byte> expanded(kernel.expanded_bytes(Side::value, 16, 16));
  kernel.expand(Side::value, {data.data(), nullptr, 16, 16, 16}, expanded.data());
  const double byte = static_cast<signed char>(expanded[0]);
  return tq_levels(bits).back() / (byte - (side.has_halves() ? 0.5 : 0.0));
}

// What the levels of tq are off by in whole steps, or on halves of them; 0 for dual.
inline double level_error(const CodedSide& side) {
  if (!side.is_tq()) return 0;
  const double step = tq_step(side);
  const double rest = side.has_halves() ? 0.5 : 0.0;
  double worst = 0;
  for (const double level : tq_levels(side.bits())) {
    const double near = (std::nearbyint(level / step - rest) + rest) * step;
    worst = std::max(worst, std::fabs(near - level));
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
        const int rank = tq_rank(keys_.bits(), static_cast<unsigned>(code));
        const int index = rank >= half ? rank - half : half - 1 - rank;
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
