// For each row, with d channels and b bits:
//
//     y = rotated x                        codec/rotation
//     z = y (sqrt(d) / |y|)                about normal numbers with variance 1
//     c = the level nearest to each z      codebooks.h; of two as near, the one nearer to 0
//     keys    S = <y, y> / <y, c>          <q, S c> is right on average for q along y
//     values  S = <y, c> / <c, c>          the least |y - S c|
//     x' = S c rotated back                S rounded to f16 first; not more than 65504
//
// Which S is stored costs no bit, and each side has the one it needs: a key that is multiplied with
// a query like itself must not come out too small, a value is summed with others and should be
// near. Codes count the levels from the lowest up, of tq6 from the ninth (codebooks.h).
// Where S is 0 all codes are 0. Sums are those of codec/lane_sums.h.
//
// S fits f16 when |y| <= 65504. For every set of levels |c| >= 0.46 |z| up to z = 3.2, and c is at
// least 1.5 beyond; z has squares that add up to d. So <z, c> is at least sqrt(d), being concave in
// how the squares are shared between small and large z and more than that at both ends, and |c| is
// at least 1; then S = |y| sqrt(d) / <z, c> for keys and S <= |y| / |c| for values are at most |y|.
#include "codec/tq/tq.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/numbers.h"
#include "codec/encode.h"
#include "codec/lane_sums.h"
#include "codec/planes.h"
#include "codec/rotation/rotation.h"
#include "codec/tq/codebooks.h"
#include "codec/tq/kernels.h"

namespace quire {
namespace {

constexpr float kLargestScale = 65504.0f;

template <int kBits>
struct Tq {
  using Book = Codebook<kBits>;
  static constexpr int kHalf = 1 << (kBits - 1);  // levels of one sign

  static unsigned code_of(float z) noexcept {
    const float magnitude = std::fabs(z);
    int level = 0;
    for (const float border : Book::kBorders) level += border < magnitude;
    const int rank = std::signbit(z) ? kHalf - 1 - level : kHalf + level;
    return static_cast<unsigned>(rank - Book::kFirst) % (2 * kHalf);
  }
  static float level_of(unsigned code) noexcept {
    const int level = static_cast<int>(code + Book::kFirst) % (2 * kHalf) - kHalf;
    return level < 0 ? -Book::kLevels[-1 - level] : Book::kLevels[level];
  }

  static std::size_t data_bytes(const TileShape& shape) noexcept {
    return PlaneTiles(shape, kBits).bytes();
  }
  static std::size_t scale_bytes(const TileShape& shape) noexcept {
    return static_cast<std::size_t>(shape.padded_slots()) * sizeof(std::uint16_t);
  }

  static void encode_slot(const TileShape& shape, const float* row, int slot, std::byte* data,
                          std::byte* scales) noexcept {
    const auto dim = static_cast<std::size_t>(shape.dim);
    const PlaneTiles tiles(shape, kBits);
    const PlaneTiles::Slot place = tiles.slot(slot);
    float y[kMaxRotatedDim];
    std::copy_n(row, dim, y);
    rotate(shape, y);

    LaneSum yy;
    for (std::size_t ch = 0; ch < dim; ++ch) yy.add(ch, y[ch] * y[ch]);
    const float square = yy.total();
    const float to_z =
        square > 0.0f ? std::sqrt(static_cast<float>(shape.dim)) / std::sqrt(square) : 0.0f;

    LaneSum yc;
    LaneSum cc;
    for (std::size_t ch = 0; ch < dim; ++ch) {
      const float c = level_of(code_of(y[ch] * to_z));
      yc.add(ch, y[ch] * c);
      cc.add(ch, c * c);
    }
    float scale = 0.0f;
    if (square > 0.0f) {
      scale = shape.side == Side::key ? square / yc.total() : yc.total() / cc.total();
    }
    const std::uint16_t scale_bits = f16_from_f32(std::min(scale, kLargestScale));
    store_code(scales, static_cast<std::size_t>(slot), scale_bits);
    for (std::size_t ch = 0; ch < tiles.channels(); ++ch) {
      place.set(data, ch, ch < dim && scale_bits != 0 ? code_of(y[ch] * to_z) : 0);
    }
  }

  static void encode(const TileShape& shape, const float* rows, int count, std::byte* data,
                     std::byte* scales) noexcept {
    std::memset(data, 0, data_bytes(shape));
    std::memset(scales, 0, scale_bytes(shape));
    for (int slot = 0; slot < count; ++slot, rows += shape.dim) {
      encode_slot(shape, rows, slot, data, scales);
    }
  }

  static void decode(const TileShape& shape, const std::byte* data, const std::byte* scales,
                     int first, int count, float* rows) noexcept {
    const PlaneTiles tiles(shape, kBits);
    for (int slot = first; slot < first + count; ++slot, rows += shape.dim) {
      const PlaneTiles::Slot place = tiles.slot(slot);
      const auto scale_bits = load_code<std::uint16_t>(scales, static_cast<std::size_t>(slot));
      const float scale = f32_from_f16(scale_bits);
      if (scale == 0.0f) {
        std::fill_n(rows, shape.dim, 0.0f);
        continue;
      }
      for (std::size_t ch = 0; ch < static_cast<std::size_t>(shape.dim); ++ch) {
        rows[ch] = scale * level_of(place.get(data, ch));
      }
      rotate_back(shape, rows);
    }
  }

  static void copy_slot(const TileShape& shape, const std::byte* data, const std::byte* scales,
                        int slot, std::byte* to_data, std::byte* to_scales, int to_slot) noexcept {
    PlaneTiles(shape, kBits).copy_slot(data, slot, to_data, to_slot);
    store_code(to_scales, static_cast<std::size_t>(to_slot),
               load_code<std::uint16_t>(scales, static_cast<std::size_t>(slot)));
  }

  static constexpr Codec codec(const char* name, const Encoders& encoders,
                               const std::array<const Kernel*, kIsas>& kernels) {
    return {.name = name,
            .lossless = std::nullopt,
            .data_bytes = data_bytes,
            .scale_bytes = scale_bytes,
            .largest = kLargestScale,
            .largest_norm = kLargestScale,
            .encode = encode,
            .decode = decode,
            .encode_rows = encoders,
            .kernels = kernels,
            .rotate = kRotators,
            .rotate_back = kRotatorsBack,
            .encodes_latents = false,
            .takes = rotates,
            .encode_slot = encode_slot,
            .copy_slot = copy_slot};
  }
};

}  // namespace

constexpr Codec kTq2Codec = Tq<2>::codec("tq2", kTq2Encoders, QUIRE_KERNELS(kTq2Kernel));
constexpr Codec kTq3Codec = Tq<3>::codec("tq3", kTq3Encoders, QUIRE_KERNELS(kTq3Kernel));
constexpr Codec kTq4Codec = Tq<4>::codec("tq4", kTq4Encoders, QUIRE_KERNELS(kTq4Kernel));
constexpr Codec kTq5Codec = Tq<5>::codec("tq5", kTq5Encoders, QUIRE_KERNELS(kTq5Kernel));
constexpr Codec kTq6Codec = Tq<6>::codec("tq6", kTq6Encoders, QUIRE_KERNELS(kTq6Kernel));

}  // namespace quire
