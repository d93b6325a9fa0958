// Small float formats written out as the list of their values: what the conversions are checked
// against. Nothing here looks at the bits of an f32; rounding compares distances in double, which
// holds every value and every midpoint of these formats exactly.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace quire::test {

class NumberOracle {
 public:
  enum class Overflow { infinity, saturate };

  // `codes` counts the finite codes without sign: 0 .. codes - 1.
  NumberOracle(int bits, int mantissa, int bias, std::uint32_t codes, Overflow overflow)
      : sign_bit_(1u << (bits - 1)), overflow_(overflow) {
    for (std::uint32_t code = 0; code < codes; ++code) {
      const int exponent = static_cast<int>(code >> mantissa);
      const int fraction = static_cast<int>(code) - (exponent << mantissa);
      // A subnormal has the exponent of the smallest normal and no leading one.
      const double significand = exponent == 0 ? fraction : fraction + (1 << mantissa);
      values_.push_back(std::ldexp(significand, std::max(exponent, 1) - bias - mantissa));
    }
  }

  std::uint32_t codes() const { return static_cast<std::uint32_t>(values_.size()); }
  std::uint32_t sign_bit() const { return sign_bit_; }
  double value(std::uint32_t code) const { return values_[code]; }
  // Halfway between a code and the next; above the last, where the next would be.
  double midpoint(std::uint32_t code) const {
    if (code + 1 < codes()) return (values_[code] + values_[code + 1]) / 2;
    return values_[code] + (values_[code] - values_[code - 1]) / 2;
  }

  // Nearest, ties to the even code. The code after the last is infinity. Requires: x is no NaN.
  std::uint32_t encode(double x) const {
    const double magnitude = std::fabs(x);
    const auto above = std::upper_bound(values_.begin(), values_.end(), magnitude);
    auto code = static_cast<std::uint32_t>(above - values_.begin()) - 1;  // value(code) <= |x|
    const double middle = midpoint(code);
    if (magnitude > middle || (magnitude == middle && code % 2 == 1)) ++code;
    if (overflow_ == Overflow::saturate) code = std::min(code, codes() - 1);
    return std::signbit(x) ? code | sign_bit_ : code;
  }

  double decode(std::uint32_t code) const {
    const double magnitude = (code & ~sign_bit_) < codes() ? values_[code & ~sign_bit_] : INFINITY;
    return (code & sign_bit_) != 0 ? -magnitude : magnitude;
  }

 private:
  std::vector<double> values_;
  std::uint32_t sign_bit_;
  Overflow overflow_;
};

inline const NumberOracle& f16_oracle() {
  static const NumberOracle oracle(16, 10, 15, 0x7c00, NumberOracle::Overflow::infinity);
  return oracle;
}
inline const NumberOracle& bf16_oracle() {
  static const NumberOracle oracle(16, 7, 127, 0x7f80, NumberOracle::Overflow::infinity);
  return oracle;
}
inline const NumberOracle& e4m3_oracle() {
  static const NumberOracle oracle(8, 3, 7, 0x7f, NumberOracle::Overflow::saturate);
  return oracle;
}
inline const NumberOracle& e5m2_oracle() {
  static const NumberOracle oracle(8, 2, 15, 0x7c, NumberOracle::Overflow::saturate);
  return oracle;
}

}  // namespace quire::test
