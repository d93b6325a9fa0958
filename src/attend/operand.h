// One side of one head of a page, in the form that a kernel multiplies.
//
// Sealed codes are multiplied where they lie, or expanded first when many rows will use them. Rows
// become tiles of the float codec of their type, so they are multiplied as pages sealed by that
// codec are: a lossless page gives the same bits in both forms. What no kernel takes (values of an
// MLA layer, sizes beyond a kernel's) is decoded to f32 tiles.
//
// Thread-safety: an operand belongs to one thread.
#pragma once

#include <optional>

#include "attend/layer.h"
#include "attend/scratch.h"
#include "base/isa.h"
#include "codec/kernel.h"

namespace quire {

// Where a page of a slice lies; what decides which operand it is.
struct PageBytes {
  const std::byte* rows = nullptr;
  const std::byte* sealed = nullptr;
  bool operator==(const PageBytes&) const = default;
};

// What reads one side of one head of a layer, in one form.
struct Reader {
  Reader(const LayerStore& store, Side side, int head, bool sealed, Isa isa) noexcept;

  // What of a page will be read, to be brought near.
  Ahead ahead(const PageBytes& page) const noexcept;
  // Brings the scales near: weights are multiplied by them before the codes are read.
  [[gnu::always_inline]] void fetch_scales(const PageBytes& page) const noexcept {
    if (!sealed) return;
    for (std::size_t at = 0; at < place.scale_bytes; at += 64) {
      __builtin_prefetch(page.sealed + place.scales + at);
    }
  }

  const LayerStore* store;
  Side side;
  int head;
  bool sealed;
  Isa isa;
  bool decodes;        // to f32 tiles
  const Codec* codec;  // of the tiles that `kernel` multiplies
  const Kernel* kernel;
  int dim;    // channels that are multiplied; values padded to a multiple of 16
  int split;  // of the parts that have scales of their own; dim: one part
  int slots;  // padded
  SealedPlace place;
  std::size_t rows_at;  // in the rows block
  std::size_t rows_bytes;
};

class Operand {
 public:
  explicit Operand(const Reader& reader) noexcept : reader_(reader) {}

  // Makes the operand of slots [0, count) of a page. `many`: worth expanding.
  void make(const PageBytes& page, int count, bool many);

  const Reader& reader() const noexcept { return reader_; }
  const PageSide& side() const noexcept { return side_; }
  const Products& products() const noexcept { return *products_; }

 private:
  void decode(const PageBytes& page, int count);
  void tile_rows(const std::byte* rows, int count);

  Reader reader_;
  PageSide side_;
  const Products* products_ = nullptr;
  Scratch tiles_;
  Scratch floats_;
  Scratch expanded_;
};

// The operand of one side in both forms, each made when it is first wanted, and remade when another
// page is.
class BothForms {
 public:
  BothForms(const LayerStore& store, Side side, Isa isa, int head)
      : store_(store), side_(side), isa_(isa), head_(head) {}

  const Reader& reader(bool sealed) { return form(sealed).reader(); }

  const Operand& of(bool sealed, const PageBytes& page, int count, bool many) {
    Operand& operand = form(sealed);
    Made wanted{page, count, many, true};
    if (made_[sealed] != wanted) {
      operand.make(page, count, many);
      made_[sealed] = wanted;
    }
    return operand;
  }

 private:
  struct Made {
    PageBytes page;
    int count = 0;
    bool many = false;
    bool ready = false;
    bool operator==(const Made&) const = default;
  };

  Operand& form(bool sealed) {
    if (!forms_[sealed]) forms_[sealed].emplace(Reader(store_, side_, head_, sealed, isa_));
    return *forms_[sealed];
  }

  const LayerStore& store_;
  Side side_;
  Isa isa_;
  int head_;
  std::optional<Operand> forms_[2];  // of rows, of sealed pages
  Made made_[2];
};

}  // namespace quire
