// A codec turns the rows of one head of one page into sealed bytes and back.
//
// The unit is one side (keys or values) of one head of one page: `data` holds the codes in tiles,
// `scales` what the codes are multiplied by (nothing for most float codecs). Both are laid out as
// docs/format.md says, the same on every machine. Functions are pure: the same rows give the same
// bytes, nothing is kept between calls, and any thread may call them.
//
// Adding a codec: a folder with its functions, and one line in registry.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "base/isa.h"
#include "codec/kernel.h"
#include "quire/cache.hpp"

namespace quire {

// One side of one head of one page.
struct TileShape {
  Side side = Side::key;
  int slots = 0;  // tokens of the page; tiles are padded to a multiple of 16
  int dim = 0;    // channels
  int split = 0;  // channels of the first part where scales are per part (MLA); 0: one part
  std::uint64_t seed = 0;  // of this head's random signs, for codecs that rotate

  int padded_slots() const noexcept { return (slots + 15) / 16 * 16; }
  int parts() const noexcept { return split > 0 && split < dim ? 2 : 1; }
};

// The seed of one head's signs: the same on every machine, different for every layer, head and
// side of a cache, and nothing but a function of the cache's seed and these.
std::uint64_t head_seed(std::uint64_t seed, int layer, int head, Side side) noexcept;

struct Codec {
  const char* name;

  // The row type whose values survive encode and decode bit for bit, if there is one.
  std::optional<DType> lossless;

  // Sizes of one side of one head of one page, before alignment.
  std::size_t (*data_bytes)(const TileShape& shape) noexcept;
  std::size_t (*scale_bytes)(const TileShape& shape) noexcept;

  // The largest magnitude, and the largest norm of a row, that can be stored without becoming
  // infinite.
  float largest;
  float largest_norm = std::numeric_limits<float>::infinity();

  // Encodes slots [0, count) from rows [count][dim]; slots [count, padded) become zeros.
  void (*encode)(const TileShape& shape, const float* rows, int count, std::byte* data,
                 std::byte* scales) noexcept;
  // Decodes slots [first, first + count) into rows [count][dim].
  void (*decode)(const TileShape& shape, const std::byte* data, const std::byte* scales, int first,
                 int count, float* rows) noexcept;

  // The same bytes as `encode` from rows that are in a row type, [count][dim], by the instructions
  // of a set; null where the set has nothing of its own.
  using EncodeRows = void (*)(const TileShape& shape, DType row_type, const std::byte* rows,
                              int count, std::byte* data, std::byte* scales) noexcept;
  std::array<EncodeRows, kIsas> encode_rows;

  // Attention on the codes, for each instruction set; null: pages are decoded to be attended to.
  std::array<const Kernel*, kIsas> kernels;

  // For codecs whose kernels multiply in a basis of their own: turns rows [dim], `stride` floats
  // apart, into that basis, and back, by the instructions of a set. Null for the others.
  using Rotate = void (*)(const TileShape& shape, float* rows, std::size_t count,
                          std::size_t stride) noexcept;
  using Rotators = std::array<Rotate, kIsas>;
  Rotators rotate = {};
  Rotators rotate_back = {};

  bool encodes_values = true;   // false: keys only
  bool encodes_latents = true;  // false: not the latents of MLA layers
  // Whether the codec has a form for these sizes; null: for all.
  bool (*takes)(const TileShape& shape) noexcept = nullptr;

  // For codecs in which a slot's bytes depend on its own row alone; null for the others.
  // Encodes one row into one slot and leaves the others.
  void (*encode_slot)(const TileShape& shape, const float* row, int slot, std::byte* data,
                      std::byte* scales) noexcept;
  // Moves one slot's codes to a slot of another page of the same shape, undecoded.
  void (*copy_slot)(const TileShape& shape, const std::byte* data, const std::byte* scales,
                    int slot, std::byte* to_data, std::byte* to_scales, int to_slot) noexcept;
};

// All codecs, in the order they are listed to users.
std::span<const Codec* const> all_codecs() noexcept;

// The codec of that name, or null.
const Codec* find_codec(std::string_view name) noexcept;

}  // namespace quire
