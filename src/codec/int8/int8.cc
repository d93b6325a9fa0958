// For each part of a row:
//
//     s = f16(max |x| / 127)        rounded first, so that codes are made for the scale stored
//     code = round_half_even(x / s), clamped to [-127, 127]; 0 when s = 0
//     x' = code s                   exact in f32: 7 bits times 11 bits
//
// The clamp is felt only when s is subnormal in f16 (max |x| below 0.0078), where rounding s can
// take off up to a third of it. Both divisions are done in f32 and give what exact arithmetic
// would: the quotient of a 24-bit number by 127, or by an 11-bit scale, that is not a tie is
// further from every tie than half a unit of f32.
#include "codec/int8/int8.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/numbers.h"
#include "codec/encode.h"
#include "codec/int8/kernels.h"
#include "codec/tile.h"

namespace quire {
namespace {

constexpr int kPack = 4;
constexpr float kLargestCode = 127.0f;
constexpr float kLargest = 8321039.5f;  // below 127 * 65520, from where on the scale is infinite

std::uint16_t scale_of(float largest) noexcept { return f16_from_f32(largest / kLargestCode); }

// Written with comparisons and a truncation, not with the processor's rounding mode. The order of
// the arguments of max makes a NaN, which no row holds, a code and not undefined behaviour.
std::int8_t code_of(float quotient) noexcept {
  const float clamped = std::min(std::max(-kLargestCode, quotient), kLargestCode);
  int code = static_cast<int>(clamped);
  const float rest = std::fabs(clamped - static_cast<float>(code));
  if (rest > 0.5f || (rest == 0.5f && code % 2 != 0)) code += clamped < 0.0f ? -1 : 1;
  return static_cast<std::int8_t>(code);
}

// Scales are [part][padded slot].
std::size_t scale_index(const TileShape& shape, int part, int slot) noexcept {
  return static_cast<std::size_t>(part * shape.padded_slots() + slot);
}

struct Channels {
  std::size_t begin;
  std::size_t end;
};

Channels channels_of(const TileShape& shape, int part) noexcept {
  const auto dim = static_cast<std::size_t>(shape.dim);
  if (shape.parts() == 1) return {0, dim};
  const auto split = static_cast<std::size_t>(shape.split);
  return part == 0 ? Channels{0, split} : Channels{split, dim};
}

std::size_t data_bytes(const TileShape& shape) noexcept { return stored_codes(shape, kPack); }

std::size_t scale_bytes(const TileShape& shape) noexcept {
  return scale_index(shape, shape.parts(), 0) * sizeof(std::uint16_t);
}

void encode_slot(const TileShape& shape, const float* row, int slot, std::byte* data,
                 std::byte* scales) noexcept {
  const SlotPlace place = slot_place(shape, kPack, slot);
  for (int part = 0; part < shape.parts(); ++part) {
    const auto [begin, end] = channels_of(shape, part);
    float largest = 0.0f;
    for (std::size_t ch = begin; ch < end; ++ch) largest = std::max(largest, std::fabs(row[ch]));

    const std::uint16_t scale_bits = scale_of(largest);
    store_code(scales, scale_index(shape, part, slot), scale_bits);
    const float scale = f32_from_f16(scale_bits);
    for (std::size_t ch = begin; ch < end; ++ch) {
      const std::int8_t code = scale > 0.0f ? code_of(row[ch] / scale) : std::int8_t{0};
      store_code(data, place.at(ch), code);
    }
  }
  clear_padding<std::int8_t>(shape, kPack, place, data);
}

void encode(const TileShape& shape, const float* rows, int count, std::byte* data,
            std::byte* scales) noexcept {
  std::memset(data, 0, data_bytes(shape));
  std::memset(scales, 0, scale_bytes(shape));
  for (int slot = 0; slot < count; ++slot) {
    encode_slot(shape, rows, slot, data, scales);
    rows += shape.dim;
  }
}

void decode(const TileShape& shape, const std::byte* data, const std::byte* scales, int first,
            int count, float* rows) noexcept {
  for (int slot = first; slot < first + count; ++slot) {
    const SlotPlace place = slot_place(shape, kPack, slot);
    for (int part = 0; part < shape.parts(); ++part) {
      const auto [begin, end] = channels_of(shape, part);
      const auto scale_bits = load_code<std::uint16_t>(scales, scale_index(shape, part, slot));
      const float scale = f32_from_f16(scale_bits);
      for (std::size_t ch = begin; ch < end; ++ch) {
        rows[ch] = static_cast<float>(load_code<std::int8_t>(data, place.at(ch))) * scale;
      }
    }
    rows += shape.dim;
  }
}

void copy_slot(const TileShape& shape, const std::byte* data, const std::byte* scales, int slot,
               std::byte* to_data, std::byte* to_scales, int to_slot) noexcept {
  copy_slot_codes<std::int8_t>(shape, kPack, data, slot, to_data, to_slot);
  for (int part = 0; part < shape.parts(); ++part) {
    store_code(to_scales, scale_index(shape, part, to_slot),
               load_code<std::uint16_t>(scales, scale_index(shape, part, slot)));
  }
}

}  // namespace

constexpr Codec kInt8Codec = {.name = "int8",
                              .lossless = std::nullopt,
                              .data_bytes = data_bytes,
                              .scale_bytes = scale_bytes,
                              .largest = kLargest,
                              .encode = encode,
                              .decode = decode,
                              .encode_rows = kInt8Encoders,
                              .kernels = QUIRE_KERNELS(kInt8Kernel),
                              .encode_slot = encode_slot,
                              .copy_slot = copy_slot};

}  // namespace quire
