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

// Each of the following unpacks one block of a quantised type.

void set_scale(CodeGroup& group, float scale) { group.scales = {scale, scale}; }

void unpack_q8_0(const std::byte* block, CodeGroup* out) {
  set_scale(*out, f16_at(block, 0));
  for (int i = 0; i < kGroupCodes; ++i) {
    out->codes[static_cast<std::size_t>(i)] =
        static_cast<std::uint8_t>(byte_at(block, 2 + i) ^ 0x80);
  }
}

// Byte i of 16 holds elements i (low nibble) and i + 16; bit 4 of element i is bit i of `highs`.
void unpack_nibbles(const std::byte* pairs, std::uint32_t highs, CodeGroup* out) {
  for (int i = 0; i < 16; ++i) {
    const unsigned pair = byte_at(pairs, i);
    const unsigned low = (pair & 15) | (highs >> i & 1) << 4;
    const unsigned upper = pair >> 4 | (highs >> (i + 16) & 1) << 4;
    out->codes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(low);
    out->codes[static_cast<std::size_t>(i + 16)] = static_cast<std::uint8_t>(upper);
  }
}

void unpack_q4_0(const std::byte* block, CodeGroup* out) {
  set_scale(*out, f16_at(block, 0));
  unpack_nibbles(block + 2, 0, out);
}

void unpack_q4_1(const std::byte* block, CodeGroup* out) {
  set_scale(*out, f16_at(block, 0));
  out->least = f16_at(block, 2);
  unpack_nibbles(block + 4, 0, out);
}

void unpack_q5_0(const std::byte* block, CodeGroup* out) {
  set_scale(*out, f16_at(block, 0));
  unpack_nibbles(block + 6, u32_at(block, 2), out);
}

void unpack_q5_1(const std::byte* block, CodeGroup* out) {
  set_scale(*out, f16_at(block, 0));
  out->least = f16_at(block, 2);
  unpack_nibbles(block + 8, u32_at(block, 4), out);
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
void unpack_k(const std::byte* block, const std::byte* codes, const std::byte* highs,
              CodeGroup* out) {
  const float scale = f16_at(block, 0);
  const float least = f16_at(block, 2);
  for (int group = 0; group < 8; ++group, ++out) {
    const KScale k = k_scale(block + 4, group);
    set_scale(*out, scale * k.scale);
    out->least = -(least * k.least);
    for (int i = 0; i < kGroupCodes; ++i) {
      int code = byte_at(codes + group / 2 * 32, i) >> (group % 2 * 4) & 15;
      if (highs != nullptr) code |= (byte_at(highs, i) >> group & 1) << 4;
      out->codes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(code);
    }
  }
}

void unpack_q4_k(const std::byte* block, CodeGroup* out) {
  unpack_k(block, block + 16, nullptr, out);
}

void unpack_q5_k(const std::byte* block, CodeGroup* out) {
  unpack_k(block, block + 48, block + 16, out);
}

// Two halves of 128: 64 bytes of low nibbles, 32 bytes with the upper two bits of four quarters,
// a signed scale for each 16.
void unpack_q6_k(const std::byte* block, CodeGroup* out) {
  const float scale = f16_at(block, 208);
  for (int group = 0; group < 8; ++group, ++out) {
    const int half = group / 4;
    const int quarter = group % 4;
    for (int i = 0; i < kGroupCodes; ++i) {
      const int low = byte_at(block, half * 64 + quarter % 2 * 32 + i) >> (quarter / 2 * 4) & 15;
      const int high = byte_at(block, 128 + half * 32 + i) >> (quarter * 2) & 3;
      out->codes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(low | high << 4);
    }
    for (int i = 0; i < 2; ++i) {
      const auto factor = static_cast<std::int8_t>(byte_at(block, 192 + group * 2 + i));
      out->scales[static_cast<std::size_t>(i)] = scale * static_cast<float>(factor);
    }
  }
}

void expand_group(const CodeForm& form, const CodeGroup& group, float* out) {
  for (int i = 0; i < kGroupCodes; ++i) {
    const int code = group.codes[static_cast<std::size_t>(i)] - form.zero;
    out[i] = static_cast<float>(code) * group.scales[static_cast<std::size_t>(i / 16)];
    if (form.has_least) out[i] += group.least;
  }
}

float float_at(BlockType type, const std::byte* at) {
  if (type == BlockType::f16) return f16_at(at, 0);
  if (type == BlockType::f32) return std::bit_cast<float>(u32_at(at, 0));
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

struct Format {
  BlockType type;
  const char* name;
  BlockShape shape;
  CodeForm form;
  void (*unpack_block)(const std::byte* block, CodeGroup* out);
};

constexpr Format kFormats[] = {
    {BlockType::f32, "F32", {1, 4}, {}, nullptr},
    {BlockType::f16, "F16", {1, 2}, {}, nullptr},
    {BlockType::bf16, "BF16", {1, 2}, {}, nullptr},
    {BlockType::q8_0, "Q8_0", {32, 34}, {8, 128}, unpack_q8_0},
    {BlockType::q4_0, "Q4_0", {32, 18}, {4, 8}, unpack_q4_0},
    {BlockType::q4_1, "Q4_1", {32, 20}, {4, 0, true}, unpack_q4_1},
    {BlockType::q5_0, "Q5_0", {32, 22}, {5, 16}, unpack_q5_0},
    {BlockType::q5_1, "Q5_1", {32, 24}, {5, 0, true}, unpack_q5_1},
    {BlockType::q4_k, "Q4_K", {256, 144}, {4, 0, true}, unpack_q4_k},
    {BlockType::q5_k, "Q5_K", {256, 176}, {5, 0, true}, unpack_q5_k},
    {BlockType::q6_k, "Q6_K", {256, 210}, {6, 32, false, true}, unpack_q6_k},
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

CodeForm code_form_of(BlockType type) { return format_of(type).form; }

void unpack(BlockType type, std::span<const std::byte> blocks, std::span<CodeGroup> out) {
  const Format& format = format_of(type);
  const auto groups = static_cast<std::size_t>(format.shape.elements / kGroupCodes);
  const auto bytes = static_cast<std::size_t>(format.shape.bytes);
  assert(format.form.bits > 0 && out.size() % groups == 0);
  assert(blocks.size() >= out.size() / groups * bytes);
  for (std::size_t i = 0; i < out.size() / groups; ++i) {
    format.unpack_block(blocks.data() + i * bytes, out.data() + i * groups);
  }
}

void expand(BlockType type, std::span<const std::byte> blocks, std::span<float> out) {
  const Format& format = format_of(type);
  const auto elements = static_cast<std::size_t>(format.shape.elements);
  const auto bytes = static_cast<std::size_t>(format.shape.bytes);
  assert(out.size() % elements == 0 && blocks.size() >= out.size() / elements * bytes);
  CodeGroup groups[8];
  for (; !out.empty(); out = out.subspan(elements), blocks = blocks.subspan(bytes)) {
    if (format.unpack_block == nullptr) {
      out[0] = float_at(type, blocks.data());
      continue;
    }
    format.unpack_block(blocks.data(), groups);
    for (std::size_t g = 0; g < elements / kGroupCodes; ++g) {
      expand_group(format.form, groups[g], out.data() + g * kGroupCodes);
    }
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
