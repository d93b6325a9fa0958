// One side of one head of a page, in the form that a kernel multiplies.
//
// Sealed codes are multiplied where they lie, or expanded first when many rows will use them. Rows
// become tiles of the float codec of their type, so they are multiplied as pages sealed by that
// codec are: a lossless page gives the same bits in both forms. Values whose tiles are rows (f32
// and f16) are multiplied where they lie too. What no kernel takes (values of an MLA layer, sizes
// beyond a kernel's) is decoded to f32 tiles.
//
// Thread-safety: an operand belongs to one thread.
#pragma once

#include "attend/layer.h"
#include "attend/scratch.h"
#include "base/isa.h"
#include "codec/kernel.h"

namespace quire {

// Slots, and channels of values, come in tiles of 16.
inline constexpr int kSlotTile = 16;
inline int tile_floor(int slot) noexcept { return slot / kSlotTile * kSlotTile; }
inline int tile_ceil(int slot) noexcept { return (slot + kSlotTile - 1) / kSlotTile * kSlotTile; }

// Where a page of a slice lies; what decides which operand it is.
struct PageBytes {
  const std::byte* rows = nullptr;
  const std::byte* sealed = nullptr;
  bool operator==(const PageBytes&) const = default;
};

// What reads one side of one head of a layer, in one form.
struct Reader {
  Reader(const LayerStore& store, Side side, int head, bool sealed, Isa isa) noexcept;

  // What will be read of a page of which so many slots are shown, to be brought near.
  Ahead ahead(const PageBytes& page, int shown) const noexcept {
    const std::byte* from = block(page);
    if (from == nullptr) return {};
    const std::size_t bytes = sealed ? sealed_bytes : static_cast<std::size_t>(shown) * row_bytes;
    return {from + data_at, bytes, bytes <= nearest_bytes};
  }

  const std::byte* block(const PageBytes& page) const noexcept {
    return sealed ? page.sealed : page.rows;
  }

  const LayerStore* store;
  Side side;
  int head;
  bool sealed;
  Isa isa;
  TileShape shape;     // as the codec of the layer sees it
  bool decodes;        // to f32 tiles
  bool coded;          // codes can be multiplied where they lie
  bool direct;         // multiplied where it lies, unless many rows use it
  bool rotates;        // the kernel multiplies in a basis of the codec's own
  const Codec* codec;  // of the tiles that `kernel` multiplies
  const Kernel* kernel;
  int dim;    // channels that are multiplied; values padded to a multiple of 16
  int split;  // of the parts that have scales of their own; dim: one part
  int slots;  // padded
  // Of a prepared row: of keys, folded into those of a page too; of values.
  std::size_t query_bytes = 0;
  std::size_t folded_bytes = 0;
  std::size_t weight_bytes = 0;  // 0: weights are multiplied as they are
  SealedPlace place;
  std::size_t data_at;        // in the page's block of this form
  std::size_t sealed_bytes;   // scales included
  std::size_t row_bytes;      // of a row
  std::size_t nearest_bytes;  // as many fit the nearest cache
};

// The readers of one side of one head, of both forms.
struct Readers {
  Readers(const LayerStore& store, Side side, int head, Isa isa) noexcept
      : rows(store, side, head, false, isa), sealed(store, side, head, true, isa) {}
  const Reader& of(bool is_sealed) const noexcept { return is_sealed ? sealed : rows; }

  Reader rows;
  Reader sealed;
};

class Operand {
 public:
  // Makes the operand of slots [0, count) of a page, if it is not the one that was made last.
  // `many`: worth expanding. Requires: the reader outlives the operand.
  void make(const Reader& r, const PageBytes& page, int count, bool many) {
    reader_ = &r;
    if (!r.direct || (many && r.kernel->expand != nullptr)) return make_new(r, page, count, many);
    made_.reader = nullptr;
    side_ = {r.block(page) + r.data_at,
             r.sealed && r.place.scale_bytes > 0 ? page.sealed + r.place.scales : nullptr,
             r.sealed ? r.slots : count, r.dim, r.split};
    products_ = &r.kernel->coded;
  }

  // Before another reader may have the address of the last one.
  void forget() noexcept { made_ = {}; }

  const Reader& reader() const noexcept { return *reader_; }
  const PageSide& side() const noexcept { return side_; }
  const Products& products() const noexcept { return *products_; }

 private:
  struct Made {
    const Reader* reader = nullptr;
    PageBytes page;
    int count = 0;
    bool many = false;
    bool operator==(const Made&) const = default;
  };

  void make_new(const Reader& reader, const PageBytes& page, int count, bool many);
  void decode(const Reader& reader, const PageBytes& page, int count);
  void tile_rows(const Reader& reader, const std::byte* rows, int count);

  Made made_;  // what took work
  const Reader* reader_ = nullptr;
  PageSide side_;
  const Products* products_ = nullptr;
  Scratch tiles_;
  Scratch floats_;
  Scratch expanded_;
};

}  // namespace quire
