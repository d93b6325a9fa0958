// Number formats of weights in model files, and what they mean in f32.
//
// A quantised type stores numbers in blocks of 32 or 256. Whatever the block, its numbers come in
// groups of 32 codes, and a number is
//
//     (code - zero) * scale + least
//
// in f32, with a scale per 32 or per 16 and a `zero` of the type or a `least` of the group. That is
// ggml's formula in its order, so values agree to the bit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace quire::model {

// The numbers are those of the file format.
enum class BlockType : int {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30,
};

struct BlockShape {
  int elements = 1;
  int bytes = 0;
};

inline constexpr int kGroupCodes = 32;

// What codes of a quantised type are.
struct CodeForm {
  int bits = 0;  // 0: not a quantised type
  int zero = 0;
  bool has_least = false;
  bool has_halves = false;  // a scale per 16 codes, otherwise both are the same
};

struct CodeGroup {
  std::array<std::uint8_t, kGroupCodes> codes{};
  std::array<float, 2> scales{};  // of codes 0 to 15 and 16 to 31
  float least = 0;
};

// Nothing when the number stands for no type that is known here.
std::optional<BlockType> block_type_of(std::uint32_t number);
BlockShape shape_of(BlockType type);
const char* name_of(BlockType type);

CodeForm code_form_of(BlockType type);

// The groups of whole blocks. Requires: a quantised type, `out` is a whole number of blocks and
// `blocks` holds as many.
void unpack(BlockType type, std::span<const std::byte> blocks, std::span<CodeGroup> out);

// Requires: `out` is a whole number of blocks and `blocks` holds as many.
void expand(BlockType type, std::span<const std::byte> blocks, std::span<float> out);

float f16_to_f32(std::uint16_t bits);

}  // namespace quire::model
