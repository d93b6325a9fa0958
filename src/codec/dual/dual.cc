// Keys of a page, with d channels and b bits; t is a token, c a channel, all numbers stored are
// f16:
//
//     y_t = rotated x_t                                   codec/rotation
//     u_t = |y_t| / sqrt(d)                               stored first
//     z_tc = y_tc (1 / u_t)                               tokens of norm 0 (u_t = 0) are left out
//     lo_c = min over t of z_tc,  step_c = (max - min) / (2^b - 1)       stored before codes
//     code_tc = (z_tc - lo_c) (1 / step_c) rounded, from 0 to 2^b - 1;   0 where step_c or u_t is 0
//     x'_t = u_t (lo_c + step_c code_tc), rotated back
//
// Keys differ in two ways that a codec of single tokens cannot take apart: some tokens are much
// larger than others, and some channels carry a constant that is much larger than what differs
// between tokens. The norm takes the first out, each channel's own range the second. Queries are
// multiplied with step once per page and with lo once, so the codes are multiplied as they are.
//
// A code is rounded by adding 1/2 and cutting off, after it was limited to [0, 2^b - 1]; the limits
// are felt by half a unit of f16 of lo and step. Sums are those of codec/lane_sums.h. Scales lie
// [u: padded slots] [lo: d] [step: d].
#include "codec/dual/dual.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/numbers.h"
#include "codec/dual/kernels.h"
#include "codec/encode.h"
#include "codec/lane_sums.h"
#include "codec/planes.h"
#include "codec/rotation/rotation.h"

namespace quire {
namespace {

// |y| / sqrt(d) fits f16 for |y| up to that and more; one bound for all sizes.
constexpr float kLargestNorm = 65504.0f;

// Where the numbers of the scales lie, counted in f16.
struct Scales {
  std::size_t low;
  std::size_t step;
  std::size_t end;

  explicit Scales(const TileShape& shape) noexcept
      : low(static_cast<std::size_t>(shape.padded_slots())),
        step(low + static_cast<std::size_t>(shape.dim)),
        end(step + static_cast<std::size_t>(shape.dim)) {}
};

float load_scale(const std::byte* scales, std::size_t index) noexcept {
  return f32_from_f16(load_code<std::uint16_t>(scales, index));
}

// Writes a number as f16 and answers what was written.
float store_scale(std::byte* scales, std::size_t index, float value) noexcept {
  store_code(scales, index, f16_from_f32(value));
  return load_scale(scales, index);
}

template <int kBits>
struct Dual {
  static constexpr int kSteps = (1 << kBits) - 1;

  static std::size_t data_bytes(const TileShape& shape) noexcept {
    return PlaneTiles(shape, kBits).bytes();
  }
  static std::size_t scale_bytes(const TileShape& shape) noexcept {
    return Scales(shape).end * sizeof(std::uint16_t);
  }

  static float norm_of(const TileShape& shape, const float* y) noexcept {
    LaneSum yy;
    for (std::size_t ch = 0; ch < static_cast<std::size_t>(shape.dim); ++ch) {
      yy.add(ch, y[ch] * y[ch]);
    }
    return std::min(std::sqrt(yy.total()) / std::sqrt(static_cast<float>(shape.dim)), kLargestNorm);
  }

  static unsigned code_of(float z, float low, float inverse) noexcept {
    const float steps = (z - low) * inverse;
    const float limited = std::min(std::max(0.0f, steps), static_cast<float>(kSteps));
    return static_cast<unsigned>(static_cast<int>(limited + 0.5f));
  }

  // Rows are rotated twice, once for the ranges and once for the codes: a page of them may be
  // large.
  static void encode(const TileShape& shape, const float* rows, int count, std::byte* data,
                     std::byte* scales) noexcept {
    const auto dim = static_cast<std::size_t>(shape.dim);
    const Scales at(shape);
    std::memset(data, 0, data_bytes(shape));
    std::memset(scales, 0, scale_bytes(shape));
    float y[kMaxRotatedDim];
    float low[kMaxRotatedDim];
    float high[kMaxRotatedDim];
    std::fill_n(low, dim, std::numeric_limits<float>::infinity());
    std::fill_n(high, dim, -std::numeric_limits<float>::infinity());
    bool any = false;
    for (int t = 0; t < count; ++t) {
      std::copy_n(rows + static_cast<std::size_t>(t) * dim, dim, y);
      rotate(shape, y);
      const float norm = store_scale(scales, static_cast<std::size_t>(t), norm_of(shape, y));
      if (norm == 0.0f) continue;
      any = true;
      const float inverse = 1.0f / norm;
      for (std::size_t ch = 0; ch < dim; ++ch) {
        const float z = y[ch] * inverse;
        low[ch] = std::min(low[ch], z);
        high[ch] = std::max(high[ch], z);
      }
    }
    if (!any) return;

    for (std::size_t ch = 0; ch < dim; ++ch) {
      const float step =
          store_scale(scales, at.step + ch, (high[ch] - low[ch]) / static_cast<float>(kSteps));
      low[ch] = store_scale(scales, at.low + ch, low[ch]);
      high[ch] = step > 0.0f ? 1.0f / step : 0.0f;  // from here on the inverse
    }
    const PlaneTiles tiles(shape, kBits);
    for (int t = 0; t < count; ++t) {
      const float norm = load_scale(scales, static_cast<std::size_t>(t));
      if (norm == 0.0f) continue;
      std::copy_n(rows + static_cast<std::size_t>(t) * dim, dim, y);
      rotate(shape, y);
      const float inverse = 1.0f / norm;
      const PlaneTiles::Slot place = tiles.slot(t);
      for (std::size_t ch = 0; ch < dim; ++ch) {
        place.set(data, ch, code_of(y[ch] * inverse, low[ch], high[ch]));
      }
    }
  }

  static void decode(const TileShape& shape, const std::byte* data, const std::byte* scales,
                     int first, int count, float* rows) noexcept {
    const Scales at(shape);
    const PlaneTiles tiles(shape, kBits);
    for (int slot = first; slot < first + count; ++slot, rows += shape.dim) {
      const PlaneTiles::Slot place = tiles.slot(slot);
      const float norm = load_scale(scales, static_cast<std::size_t>(slot));
      if (norm == 0.0f) {
        std::fill_n(rows, shape.dim, 0.0f);
        continue;
      }
      for (std::size_t ch = 0; ch < static_cast<std::size_t>(shape.dim); ++ch) {
        const auto code = static_cast<float>(place.get(data, ch));
        rows[ch] =
            norm * (load_scale(scales, at.low + ch) + load_scale(scales, at.step + ch) * code);
      }
      rotate_back(shape, rows);
    }
  }

  static constexpr Codec codec(const char* name, const Encoders& encoders,
                               const std::array<const Kernel*, kIsas>& kernels) {
    return {.name = name,
            .lossless = std::nullopt,
            .data_bytes = data_bytes,
            .scale_bytes = scale_bytes,
            .largest = kLargestNorm,
            .largest_norm = kLargestNorm,
            .encode = encode,
            .decode = decode,
            .encode_rows = encoders,
            .kernels = kernels,
            .rotate = kRotators,
            .rotate_back = kRotatorsBack,
            .encodes_values = false,
            .encodes_latents = false,
            .takes = rotates,
            .encode_slot = nullptr,
            .copy_slot = nullptr};
  }
};

}  // namespace

constexpr Codec kDual3Codec = Dual<3>::codec("dual3", kDual3Encoders, QUIRE_KERNELS(kDual3Kernel));
constexpr Codec kDual4Codec = Dual<4>::codec("dual4", kDual4Encoders, QUIRE_KERNELS(kDual4Kernel));
constexpr Codec kDual5Codec = Dual<5>::codec("dual5", kDual5Encoders, QUIRE_KERNELS(kDual5Kernel));
constexpr Codec kDual6Codec = Dual<6>::codec("dual6", kDual6Encoders, QUIRE_KERNELS(kDual6Kernel));

}  // namespace quire
