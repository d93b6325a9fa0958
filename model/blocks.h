// Number formats of weights in model files, and what they mean in f32.
//
// A quantised type stores numbers in blocks of 32 or 256 with their scales. The formulas are those
// of ggml, evaluated in f32 in its order, so that values agree to the bit.
#pragma once

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

// Nothing when the number stands for no type that is known here.
std::optional<BlockType> block_type_of(std::uint32_t number);
BlockShape shape_of(BlockType type);
const char* name_of(BlockType type);

// Requires: `out` is a whole number of blocks and `blocks` holds as many.
void expand(BlockType type, std::span<const std::byte> blocks, std::span<float> out);

float f16_to_f32(std::uint16_t bits);

}  // namespace quire::model
