// The rows of tokens one after another, each as blocks of 32 channels:
//
//     q8_0   f16 d, then 32 codes of 8 bits        d = max |x| / 127
//            code = x (1 / d) rounded, halves away from 0;          x' = code d
//     q4_0   f16 d, then 16 bytes: channel j in the lower and j + 16 in the upper half of byte j
//            d = m / -8, where m is the x of the largest magnitude, the first of several
//            code = min(15, x (1 / d) + 8.5 cut off);               x' = (code - 8) d
//
// 1 / d is taken before d is rounded, and where it is not finite all x count as 0: this is how
// llama.cpp computes, so its pages and these can be exchanged. Sums and products are rounded one by
// one; a build of llama.cpp that fuses them may differ where x / d + 8.5 is within a rounding of a
// whole number.
//
// These codecs are for exchange and comparison: pages are decoded to be attended to.
#include "codec/ggml/ggml.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/numbers.h"
#include "codec/tile.h"

namespace quire {
namespace {

constexpr std::size_t kBlock = 32;

float inverse_of(float d) noexcept {
  const float inverse = d != 0.0f ? 1.0f / d : 0.0f;
  return std::isfinite(inverse) ? inverse : 0.0f;
}

struct Q80 {
  static constexpr std::size_t kBytes = 2 + kBlock;
  static constexpr float kLargest = 8321039.5f;  // below 127 * 65520, from where on d is infinite

  static void encode(const float* x, std::byte* block) noexcept {
    float largest = 0.0f;
    for (std::size_t i = 0; i < kBlock; ++i) largest = std::max(largest, std::fabs(x[i]));
    const float d = largest / 127.0f;
    const float inverse = inverse_of(d);
    store_code(block, 0, f16_from_f32(d));
    for (std::size_t i = 0; i < kBlock; ++i) {
      store_code(block + 2, i, static_cast<std::int8_t>(std::round(x[i] * inverse)));
    }
  }

  static void decode(const std::byte* block, float* x) noexcept {
    const float d = f32_from_f16(load_code<std::uint16_t>(block, 0));
    for (std::size_t i = 0; i < kBlock; ++i) {
      x[i] = static_cast<float>(load_code<std::int8_t>(block + 2, i)) * d;
    }
  }
};

struct Q40 {
  static constexpr std::size_t kBytes = 2 + kBlock / 2;
  static constexpr float kLargest = 524159.97f;  // below 8 * 65520, from where on d is infinite

  static unsigned code_of(float x, float inverse) noexcept {
    return std::min(15u, static_cast<unsigned>(static_cast<int>(x * inverse + 8.5f)));
  }

  static void encode(const float* x, std::byte* block) noexcept {
    float largest = 0.0f;  // with its sign
    for (std::size_t i = 0; i < kBlock; ++i) {
      if (std::fabs(largest) < std::fabs(x[i])) largest = x[i];
    }
    const float d = largest / -8.0f;
    const float inverse = inverse_of(d);
    store_code(block, 0, f16_from_f32(d));
    for (std::size_t i = 0; i < kBlock / 2; ++i) {
      const unsigned upper = code_of(x[i + kBlock / 2], inverse);
      store_code(block + 2, i, static_cast<std::uint8_t>(code_of(x[i], inverse) | upper << 4));
    }
  }

  static void decode(const std::byte* block, float* x) noexcept {
    const float d = f32_from_f16(load_code<std::uint16_t>(block, 0));
    for (std::size_t i = 0; i < kBlock / 2; ++i) {
      const int codes = load_code<std::uint8_t>(block + 2, i);
      x[i] = static_cast<float>((codes & 15) - 8) * d;
      x[i + kBlock / 2] = static_cast<float>((codes >> 4) - 8) * d;
    }
  }
};

template <typename Block>
struct BlockCodec {
  static std::size_t row_bytes(const TileShape& shape) noexcept {
    return static_cast<std::size_t>(shape.dim) / kBlock * Block::kBytes;
  }
  static std::size_t slot_byte(const TileShape& shape, int slot) noexcept {
    return static_cast<std::size_t>(slot) * row_bytes(shape);
  }
  static std::size_t data_bytes(const TileShape& shape) noexcept {
    return slot_byte(shape, shape.padded_slots());
  }
  static std::size_t scale_bytes(const TileShape&) noexcept { return 0; }

  static void encode_slot(const TileShape& shape, const float* row, int slot, std::byte* data,
                          std::byte*) noexcept {
    std::byte* block = data + slot_byte(shape, slot);
    for (int ch = 0; ch < shape.dim; ch += static_cast<int>(kBlock), block += Block::kBytes) {
      Block::encode(row + ch, block);
    }
  }

  static void encode(const TileShape& shape, const float* rows, int count, std::byte* data,
                     std::byte* scales) noexcept {
    std::memset(data, 0, data_bytes(shape));
    for (int slot = 0; slot < count; ++slot, rows += shape.dim) {
      encode_slot(shape, rows, slot, data, scales);
    }
  }

  static void decode(const TileShape& shape, const std::byte* data, const std::byte*, int first,
                     int count, float* rows) noexcept {
    const std::byte* block = data + slot_byte(shape, first);
    const float* end = rows + static_cast<std::ptrdiff_t>(count) * shape.dim;
    for (; rows != end; rows += kBlock, block += Block::kBytes) Block::decode(block, rows);
  }

  static void copy_slot(const TileShape& shape, const std::byte* data, const std::byte*, int slot,
                        std::byte* to_data, std::byte*, int to_slot) noexcept {
    std::memmove(to_data + slot_byte(shape, to_slot), data + slot_byte(shape, slot),
                 row_bytes(shape));
  }

  static bool takes(const TileShape& shape) noexcept {
    return shape.dim % static_cast<int>(kBlock) == 0;
  }

  static constexpr Codec codec(const char* name) {
    return {.name = name,
            .lossless = std::nullopt,
            .data_bytes = data_bytes,
            .scale_bytes = scale_bytes,
            .largest = Block::kLargest,
            .encode = encode,
            .decode = decode,
            .encode_rows = {},
            .kernels = {},
            .encodes_latents = false,
            .takes = takes,
            .encode_slot = encode_slot,
            .copy_slot = copy_slot};
  }
};

}  // namespace

constexpr Codec kQ80Codec = BlockCodec<Q80>::codec("q8_0");
constexpr Codec kQ40Codec = BlockCodec<Q40>::codec("q4_0");

}  // namespace quire
