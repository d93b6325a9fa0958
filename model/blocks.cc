#include "model/blocks.h"

#include <bit>
#include <cassert>
#include <cstring>

namespace quire::model {
namespace {

std::uint8_t byte_at(const std::byte* block, int index) {
  return static_cast<std::uint8_t>(block[index]);
}

float f16_at(const std::byte* block, int offset) {
  std::uint16_t bits;
  std::memcpy(&bits, block + offset, sizeof bits);
  return f16_to_f32(bits);
}

std::uint32_t u32_at(const std::byte* block, int offset) {
  std::uint32_t bits;
  std::memcpy(&bits, block + offset, sizeof bits);
  return bits;
}

// Each of the following expands one block.

void expand_f32(const std::byte* block, float* out) { std::memcpy(out, block, sizeof *out); }

void expand_f16(const std::byte* block, float* out) { *out = f16_at(block, 0); }

void expand_bf16(const std::byte* block, float* out) {
  std::uint16_t bits;
  std::memcpy(&bits, block, sizeof bits);
  *out = std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

void expand_q8_0(const std::byte* block, float* out) {
  const float scale = f16_at(block, 0);
  for (int i = 0; i < 32; ++i) {
    out[i] = static_cast<float>(static_cast<std::int8_t>(byte_at(block, 2 + i))) * scale;
  }
}

// Byte i of 16 holds elements i (low nibble) and i + 16.
void expand_q4_0(const std::byte* block, float* out) {
  const float scale = f16_at(block, 0);
  for (int i = 0; i < 16; ++i) {
    const int pair = byte_at(block, 2 + i);
    out[i] = static_cast<float>((pair & 15) - 8) * scale;
    out[i + 16] = static_cast<float>((pair >> 4) - 8) * scale;
  }
}

void expand_q4_1(const std::byte* block, float* out) {
  const float scale = f16_at(block, 0);
  const float least = f16_at(block, 2);
  for (int i = 0; i < 16; ++i) {
    const int pair = byte_at(block, 4 + i);
    out[i] = static_cast<float>(pair & 15) * scale + least;
    out[i + 16] = static_cast<float>(pair >> 4) * scale + least;
  }
}

// As q4, with bit 4 of element i at bit i of a word.
void expand_q5_0(const std::byte* block, float* out) {
  const float scale = f16_at(block, 0);
  const std::uint32_t high = u32_at(block, 2);
  for (int i = 0; i < 16; ++i) {
    const int pair = byte_at(block, 6 + i);
    const int low = (pair & 15) | static_cast<int>((high >> i & 1) << 4);
    const int upper = (pair >> 4) | static_cast<int>((high >> (i + 16) & 1) << 4);
    out[i] = static_cast<float>(low - 16) * scale;
    out[i + 16] = static_cast<float>(upper - 16) * scale;
  }
}

void expand_q5_1(const std::byte* block, float* out) {
  const float scale = f16_at(block, 0);
  const float least = f16_at(block, 2);
  const std::uint32_t high = u32_at(block, 4);
  for (int i = 0; i < 16; ++i) {
    const int pair = byte_at(block, 8 + i);
    const int low = (pair & 15) | static_cast<int>((high >> i & 1) << 4);
    const int upper = (pair >> 4) | static_cast<int>((high >> (i + 16) & 1) << 4);
    out[i] = static_cast<float>(low) * scale + least;
    out[i + 16] = static_cast<float>(upper) * scale + least;
  }
}

// Eight scales and eight minima of 6 bits in 12 bytes: the first four of each as they are, the
// others split between a nibble and the two bits left over.
struct KScale {
  float scale = 0;
  float least = 0;
};

KScale k_scale(const std::byte* packed, int index) {
  if (index < 4) {
    return {static_cast<float>(byte_at(packed, index) & 63),
            static_cast<float>(byte_at(packed, index + 4) & 63)};
  }
  const int nibbles = byte_at(packed, index + 4);
  return {static_cast<float>((nibbles & 15) | (byte_at(packed, index - 4) >> 6) << 4),
          static_cast<float>((nibbles >> 4) | (byte_at(packed, index) >> 6) << 4)};
}

// Eight groups of 32; two neighbours share 32 bytes, low nibbles first. With `highs`, bit 4 of
// group g, element i is bit g of byte i there.
void expand_k(const std::byte* block, const std::byte* codes, const std::byte* highs, float* out) {
  const float scale = f16_at(block, 0);
  const float least = f16_at(block, 2);
  for (int group = 0; group < 8; ++group) {
    const KScale k = k_scale(block + 4, group);
    const float d = scale * k.scale;
    const float m = least * k.least;
    for (int i = 0; i < 32; ++i) {
      int code = byte_at(codes + group / 2 * 32, i) >> (group % 2 * 4) & 15;
      if (highs != nullptr) code |= (byte_at(highs, i) >> group & 1) << 4;
      out[group * 32 + i] = d * static_cast<float>(code) - m;
    }
  }
}

void expand_q4_k(const std::byte* block, float* out) { expand_k(block, block + 16, nullptr, out); }

void expand_q5_k(const std::byte* block, float* out) {
  expand_k(block, block + 48, block + 16, out);
}

// Two halves of 128: 64 bytes of low nibbles, 32 bytes with the upper two bits of four quarters,
// a signed scale for each 16.
void expand_q6_k(const std::byte* block, float* out) {
  const float scale = f16_at(block, 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int quarter = i % 128 / 32;
    const int lane = i % 32;
    const int low = byte_at(block, half * 64 + quarter % 2 * 32 + lane) >> (quarter / 2 * 4) & 15;
    const int high = byte_at(block, 128 + half * 32 + lane) >> (quarter * 2) & 3;
    const auto group = static_cast<std::int8_t>(byte_at(block, 192 + i / 16));
    out[i] = scale * static_cast<float>(group) * static_cast<float>((low | high << 4) - 32);
  }
}

struct Format {
  BlockType type;
  const char* name;
  BlockShape shape;
  void (*expand_block)(const std::byte* block, float* out);
};

constexpr Format kFormats[] = {
    {BlockType::f32, "F32", {1, 4}, expand_f32},
    {BlockType::f16, "F16", {1, 2}, expand_f16},
    {BlockType::bf16, "BF16", {1, 2}, expand_bf16},
    {BlockType::q8_0, "Q8_0", {32, 34}, expand_q8_0},
    {BlockType::q4_0, "Q4_0", {32, 18}, expand_q4_0},
    {BlockType::q4_1, "Q4_1", {32, 20}, expand_q4_1},
    {BlockType::q5_0, "Q5_0", {32, 22}, expand_q5_0},
    {BlockType::q5_1, "Q5_1", {32, 24}, expand_q5_1},
    {BlockType::q4_k, "Q4_K", {256, 144}, expand_q4_k},
    {BlockType::q5_k, "Q5_K", {256, 176}, expand_q5_k},
    {BlockType::q6_k, "Q6_K", {256, 210}, expand_q6_k},
};

const Format& format_of(BlockType type) {
  for (const Format& format : kFormats) {
    if (format.type == type) return format;
  }
  assert(false && "every BlockType has a format");
  return kFormats[0];
}

}  // namespace

std::optional<BlockType> block_type_of(std::uint32_t number) {
  for (const Format& format : kFormats) {
    if (static_cast<std::uint32_t>(format.type) == number) return format.type;
  }
  return std::nullopt;
}

BlockShape shape_of(BlockType type) { return format_of(type).shape; }
const char* name_of(BlockType type) { return format_of(type).name; }

void expand(BlockType type, std::span<const std::byte> blocks, std::span<float> out) {
  const Format& format = format_of(type);
  const auto elements = static_cast<std::size_t>(format.shape.elements);
  const auto bytes = static_cast<std::size_t>(format.shape.bytes);
  const std::size_t count = out.size() / elements;
  assert(out.size() % elements == 0 && blocks.size() >= count * bytes);
  for (std::size_t i = 0; i < count; ++i) {
    format.expand_block(blocks.data() + i * bytes, out.data() + i * elements);
  }
}

float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = bits >> 10 & 31u;
  const std::uint32_t fraction = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent == 0) {  // fraction * 2^-24 is exact
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

}  // namespace quire::model
