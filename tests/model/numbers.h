// What the row types and codecs do to numbers, written from their definitions: a format is a
// number of mantissa bits, a smallest exponent and a largest value. Nothing here looks at bits,
// and nothing is shared with the library.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "quire/spec.hpp"

namespace quire::test {

struct NumberFormat {
  int mantissa;    // bits after the leading one
  int low;         // exponent of the smallest normal number
  double largest;  // finite
  bool saturates;  // above the largest: it, or infinity
};

inline constexpr NumberFormat kF32{23, -126, 3.4028234663852886e38, false};
inline constexpr NumberFormat kF16{10, -14, 65504, false};
inline constexpr NumberFormat kBf16{7, -126, 3.3895313892515355e38, false};
inline constexpr NumberFormat kE4m3{3, -6, 448, true};
inline constexpr NumberFormat kE5m2{2, -14, 57344, true};

// Nearest, ties to even; the processor rounds so too.
inline float round_to(const NumberFormat& format, double x) {
  if (x == 0 || !std::isfinite(x)) return static_cast<float>(x);
  const double unit = std::ldexp(1.0, std::max(std::ilogb(x), format.low) - format.mantissa);
  const double rounded = std::nearbyint(x / unit) * unit;
  if (std::fabs(rounded) <= format.largest) return static_cast<float>(rounded);
  const double beyond = format.saturates ? format.largest : std::numeric_limits<double>::infinity();
  return static_cast<float>(std::copysign(beyond, x));
}

inline const NumberFormat& format_of(DType dtype) {
  return dtype == DType::f32 ? kF32 : dtype == DType::f16 ? kF16 : kBf16;
}

// The row type the rule gives: f32 if a codec is f32 or if f16 and bf16 meet, else bf16 if one is
// bf16, else f16.
inline DType row_type_of(const LayerSpec& layer) {
  if (layer.row_type) return *layer.row_type;
  const auto has = [&](const char* name) {
    return layer.codec.key == name || layer.codec.value == name;
  };
  if (has("f32") || (has("f16") && has("bf16"))) return DType::f32;
  return has("bf16") ? DType::bf16 : DType::f16;
}

// One scale for channels [begin, end): f16(largest / 127), made before the codes.
inline void code_int8(float* row, int begin, int end) {
  double largest = 0;
  for (int c = begin; c < end; ++c) largest = std::max(largest, std::fabs(double{row[c]}));
  const float scale = round_to(kF16, largest / 127);
  for (int c = begin; c < end; ++c) {
    const double code = scale > 0 ? std::nearbyint(double{row[c]} / double{scale}) : 0.0;
    row[c] = static_cast<float>(std::clamp(code, -127.0, 127.0) + 0.0) * scale;
  }
}

// What one head's row becomes when its page is sealed. `split`: channels of the first part of an
// MLA latent, 0 for other rows.
inline void code_row(const std::string& codec, float* row, int dim, int split) {
  if (codec == "int8") {
    const bool parts = split > 0 && split < dim;
    code_int8(row, 0, parts ? split : dim);
    if (parts) code_int8(row, split, dim);
    return;
  }
  const NumberFormat& format = codec == "f32"        ? kF32
                               : codec == "f16"      ? kF16
                               : codec == "bf16"     ? kBf16
                               : codec == "fp8_e4m3" ? kE4m3
                                                     : kE5m2;
  for (int c = 0; c < dim; ++c) row[c] = round_to(format, double{row[c]});
}

// Whether a codec gives back every row of a type bit for bit.
inline bool is_lossless(const std::string& codec, DType row_type) {
  return codec == name_of(row_type);
}

// Whether a row value can be stored: finite, and finite as a code.
inline bool can_store(const std::string& codec, float value) {
  if (!std::isfinite(value)) return false;
  if (codec == "int8") return std::isfinite(round_to(kF16, std::fabs(double{value}) / 127));
  float coded = value;
  code_row(codec, &coded, 1, 0);
  return std::isfinite(coded);
}

}  // namespace quire::test
