// Where one layer's keys and values lie inside the blocks of a page, and how they are written,
// sealed and read there.
//
// A page has up to two blocks, each shared by all layers of its group: `rows` (exact rows, in the
// row type) and `sealed` (codes). Rows are [head][slot][dim], keys then values; sealed bytes are,
// per head, key data, key scales, value data, value scales, each padded to 64 bytes. An MLA layer
// has keys only; its values are the first value_dim channels of them.
//
// Thread-safety: functions of their arguments; different slots may be written at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/codec.h"
#include "quire/result.hpp"
#include "quire/view.hpp"

namespace quire {

struct LayerStore {
  int index = 0;  // of the layer, for messages
  int heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  bool mla = false;
  int page_tokens = 0;
  DType row_type = DType::f16;
  const Codec* key_codec = nullptr;
  const Codec* value_codec = nullptr;

  // Set by place(): byte offsets inside the two blocks.
  std::size_t rows_offset = 0;
  std::size_t rows_bytes = 0;
  std::size_t sealed_offset = 0;
  std::size_t sealed_bytes = 0;

  TileShape tile(Side side) const noexcept;
  // Whether decode gives back exactly the rows that were sealed.
  bool lossless() const noexcept;
};

// Lays a layer behind what the blocks hold already: sets its offsets and sizes (multiples of 64)
// and advances the two totals.
void place(LayerStore& store, std::size_t& rows_bytes, std::size_t& sealed_bytes) noexcept;

// The sealed bytes of one head and side inside a page's sealed block. For an MLA layer the value
// side answers the key's.
struct SealedPart {
  std::byte* data;
  std::size_t data_bytes;
  std::byte* scales;
  std::size_t scale_bytes;  // 0: the codec has none
};
SealedPart sealed_part(const LayerStore& store, Side side, int head, std::byte* sealed) noexcept;

// The rows of one head and side inside a page's rows block: [slot][dim] in the row type, with
// `dim` the stored one (key_dim for both sides of an MLA layer).
std::byte* rows_part(const LayerStore& store, Side side, int head, std::byte* rows) noexcept;

// Whether a view is [tokens][heads][dim] of one side of the layer, in a known dtype; the text tells
// keys and values apart, and what was expected from what was found.
Result<void> check_rows(const LayerStore& store, Side side, const TensorView& view,
                        std::int64_t tokens, const char* call);

// Rounds row `token` of `view` to the row type and writes it at `slot`, all heads. Refuses a value
// that is not finite, or is not in the row type or codec; the text names `call`, layer, side,
// token, head and channel. Slots other than `slot` are untouched either way. Values of an MLA
// layer are part of its keys: nothing is written for them.
// Requires: the view has the store's heads and dim, and more than `token` tokens.
Result<void> write_row(const LayerStore& store, Side side, const TensorView& view,
                       std::int64_t token, std::byte* rows, int slot, const char* call = "put");

// Copies rows [0, count) of all heads and both sides from one rows block to another.
void copy_rows(const LayerStore& store, const std::byte* from, int count, std::byte* to) noexcept;

// Encodes slots [0, count) of all heads and both sides from rows.
void seal(const LayerStore& store, const std::byte* rows, int count, std::byte* sealed);

// Puts row 0 of `rounded`, all heads of one side, at `slot` of sealed bytes made of `count` slots.
// Codecs that look at the whole page encode it again from what it decodes to.
void reseal_slot(const LayerStore& store, Side side, const std::byte* rounded, int count, int slot,
                 std::byte* sealed);

// Decodes slots [first, first + count) of one head and side to f32 [count][dim], where dim is
// key_dim or value_dim.
void read_rows(const LayerStore& store, Side side, int head, const std::byte* rows, int first,
               int count, float* out);
void read_sealed(const LayerStore& store, Side side, int head, const std::byte* sealed, int first,
                 int count, float* out);

// Rebuilds rows [0, count) from sealed bytes. Exact when lossless().
void unseal(const LayerStore& store, const std::byte* sealed, int count, std::byte* rows);

}  // namespace quire
