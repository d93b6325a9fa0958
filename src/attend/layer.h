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

#include "attend/scratch.h"
#include "base/isa.h"
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
  std::uint64_t seed = 0;  // of the random signs of all heads

  // Set by place(): byte offsets inside the two blocks, and sizes.
  std::size_t rows_offset = 0;
  std::size_t rows_bytes = 0;
  std::size_t sealed_offset = 0;
  std::size_t sealed_bytes = 0;
  // Of one head, keys and values; both are the keys' for an MLA layer.
  struct SealedBytes {
    std::size_t data = 0;
    std::size_t scales = 0;
  };
  SealedBytes sealed_sides[2];

  TileShape tile(Side side, int head) const noexcept;
  // Whether decode gives back exactly the rows that were sealed.
  bool lossless() const noexcept;
};

// Lays a layer behind what the blocks hold already: sets its offsets and sizes (multiples of 64)
// and advances the two totals.
void place(LayerStore& store, std::size_t& rows_bytes, std::size_t& sealed_bytes) noexcept;

// Where the sealed bytes of one head and side lie inside a page's sealed block. For an MLA layer
// the value side answers the key's.
struct SealedPlace {
  std::size_t data = 0;
  std::size_t data_bytes = 0;
  std::size_t scales = 0;
  std::size_t scale_bytes = 0;  // 0: the codec has none
};
SealedPlace sealed_place(const LayerStore& store, Side side, int head) noexcept;

// The same as addresses in a block.
struct SealedPart {
  std::byte* data;
  std::size_t data_bytes;
  std::byte* scales;
  std::size_t scale_bytes;  // 0: the codec has none
};
SealedPart sealed_part(const LayerStore& store, Side side, int head, std::byte* sealed) noexcept;

// Where the rows of one head and side begin inside a page's rows block.
std::size_t rows_place(const LayerStore& store, Side side, int head) noexcept;

// The rows of one head and side inside a page's rows block, from `slot` on: [slot][dim] in the row
// type, with `dim` the stored one (key_dim for both sides of an MLA layer).
std::byte* rows_part(const LayerStore& store, Side side, int head, std::byte* rows,
                     int slot = 0) noexcept;

// Bytes of one such row, and of a head's rows.
std::size_t row_bytes(const LayerStore& store, Side side) noexcept;
std::size_t head_rows_bytes(const LayerStore& store, Side side) noexcept;

// Whether a view is [tokens][heads][dim] of one side of the layer, in a known dtype; the text tells
// keys and values apart, and what was expected from what was found.
Result<void> check_rows(const LayerStore& store, Side side, const TensorView& view,
                        std::int64_t tokens, const char* call);

// Rounds row `token` of `view` to the row type and writes it at `slot`, all heads. Refuses a value
// that is not finite, or is not in the row type or codec, and a head whose norm is not in the
// codec; the text names `call`, layer, side, token, head and channel. Slots other than `slot` are
// untouched either way. Values of an MLA layer are part of its keys: nothing is written for them.
// Requires: the view has the store's heads and dim, and more than `token` tokens.
Result<void> write_row(const LayerStore& store, Side side, const TensorView& view,
                       std::int64_t token, std::byte* rows, int slot, const char* call = "put");

// Some heads of a layer.
struct HeadRange {
  int begin = 0;
  int end = 0;
};

// Writes tokens [first, first + count) of some heads as write_row would, to `to`: the first slot of
// the first of the heads, in a place laid out as the rows block.
// False where write_row would refuse one of them; what was written is worth nothing then.
bool write_rows(const LayerStore& store, Side side, HeadRange heads, const TensorView& view,
                std::int64_t first, int count, std::byte* to, Isa isa = chosen_isa()) noexcept;

// The same past the processor's cache (base/stream.h), by way of `scratch`.
bool stream_rows(const LayerStore& store, Side side, HeadRange heads, const TensorView& view,
                 std::int64_t first, int count, std::byte* to, Scratch& scratch,
                 Isa isa = chosen_isa());

// Copies rows [0, count) of all heads and both sides from one rows block to another.
void copy_rows(const LayerStore& store, const std::byte* from, int count, std::byte* to) noexcept;

// Encodes slots [0, count) of all heads and both sides from rows.
void seal(const LayerStore& store, const std::byte* rows, int count, std::byte* sealed,
          Isa isa = chosen_isa());

// The same of one head and side. `from` is [count][dim], as in rows_part. Where `scratch` is not
// null, the codes are made there and go to the page past the processor's cache (base/stream.h).
void seal_part(const LayerStore& store, Side side, int head, const std::byte* from, int count,
               std::byte* sealed, Scratch* scratch = nullptr, Isa isa = chosen_isa());

// Seals slots [first, first + count) of one side again, all heads, from `rows`, a page of rows: of
// `slots` in all. Codecs that look at the whole page encode it again, the other slots from `rows`
// too where it has them (`has_all`), or else from what they decode to.
void reseal(const LayerStore& store, Side side, const std::byte* rows, bool has_all, int slots,
            int first, int count, std::byte* sealed);

// Decodes slots [first, first + count) of one head and side to f32 [count][dim], where dim is
// key_dim or value_dim.
void read_rows(const LayerStore& store, Side side, int head, const std::byte* rows, int first,
               int count, float* out);
void read_sealed(const LayerStore& store, Side side, int head, const std::byte* sealed, int first,
                 int count, float* out);

// Rebuilds rows [0, count) from sealed bytes. Exact when lossless().
void unseal(const LayerStore& store, const std::byte* sealed, int count, std::byte* rows);

}  // namespace quire
