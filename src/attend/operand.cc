#include "attend/operand.h"

#include <algorithm>
#include <cstring>

#include "base/nearest_cache.h"

namespace quire {
namespace {

const Codec& float_codec(DType type) noexcept {
  static const Codec* const codecs[] = {find_codec("f32"), find_codec("f16"), find_codec("bf16")};
  return *codecs[type == DType::f32 ? 0 : type == DType::f16 ? 1 : 2];
}

}  // namespace

Reader::Reader(const LayerStore& s, Side the_side, int the_head, bool is_sealed,
               Isa the_isa) noexcept
    : store(&s),
      side(the_side),
      head(the_head),
      sealed(is_sealed),
      isa(the_isa),
      shape(s.tile(the_side, the_head)),
      slots(tile_ceil(s.page_tokens)),
      place(sealed_place(s, the_side, the_head)) {
  data_at = sealed ? place.data : rows_place(s, side, head);
  sealed_bytes =
      (place.scale_bytes > 0 ? place.scales + place.scale_bytes : place.data + place.data_bytes) -
      place.data;
  row_bytes = quire::row_bytes(s, side);
  nearest_bytes = nearest_fetch_bytes();
  codec = !sealed ? &float_codec(s.row_type) : side == Side::key ? s.key_codec : s.value_codec;
  dim = side == Side::key ? s.key_dim : s.value_dim;
  split = sealed && shape.parts() == 2 && place.scale_bytes > 0 ? shape.split : dim;
  kernel = codec->kernels[static_cast<std::size_t>(isa)];
  decodes = kernel == nullptr ||
            (side == Side::key ? !kernel->takes_keys(dim, split) : s.mla || dim % kSlotTile != 0);
  coded = kernel != nullptr &&
          (side == Side::key ? kernel->coded.scores != nullptr : kernel->coded.mix != nullptr) &&
          (kernel->takes_coded == nullptr || kernel->takes_coded(side, dim));
  rotates = sealed && !decodes && codec->rotate[0] != nullptr;
  // Rows of values are tiles where these hold one token after the other; bf16's hold two.
  const bool tiled = sealed || (side == Side::value && s.row_type != DType::bf16);
  direct = tiled && !decodes && (coded || kernel->expand == nullptr);
  if (decodes) {
    codec = &float_codec(DType::f32);
    kernel = codec->kernels[static_cast<std::size_t>(isa)];
    coded = true;
    if (side == Side::value) dim = tile_ceil(dim);
    split = dim;
  }
  if (side == Side::value) {
    if (kernel->weight_bytes != nullptr) weight_bytes = kernel->weight_bytes(slots);
    return;
  }
  query_bytes = kernel->query_bytes(dim);
  if (kernel->fold != nullptr) folded_bytes = kernel->folded_bytes(dim);
}

void Operand::make_new(const Reader& r, const PageBytes& page, int count, bool many) {
  const Made wanted{&r, page, count, many};
  if (made_ == wanted) return;
  made_ = {};
  // What is tiled here ends with the last tile that is filled.
  const bool tiled = r.decodes || !r.sealed;
  side_ = {nullptr, nullptr, tiled ? tile_ceil(count) : r.slots, r.dim, r.split};
  products_ = &r.kernel->coded;
  if (r.decodes) {
    decode(r, page, count);
  } else if (!r.sealed) {
    tile_rows(r, page.rows, count);
  } else {
    side_.data = page.sealed + r.place.data;
    if (r.place.scale_bytes > 0) side_.scales = page.sealed + r.place.scales;
  }
  if (r.kernel->expand != nullptr && (many || !r.coded)) {
    std::byte* to = expanded_.take(r.kernel->expanded_bytes(r.side, side_.slots, side_.dim));
    r.kernel->expand(r.side, side_, to);
    side_.data = to;
    products_ = &r.kernel->expanded;
  }
  made_ = wanted;
}

// Rows [count][dim] in f32, then tiles of them.
void Operand::decode(const Reader& r, const PageBytes& page, int count) {
  const int dim = r.side == Side::key ? r.store->key_dim : r.store->value_dim;
  const auto floats = static_cast<std::size_t>(count) * static_cast<std::size_t>(dim);
  float* rows = floats_.take_floats(floats);
  if (r.sealed) {
    read_sealed(*r.store, r.side, r.head, page.sealed, 0, count, rows);
  } else {
    read_rows(*r.store, r.side, r.head, page.rows, 0, count, rows);
  }
  const TileShape shape = {r.side, side_.slots, r.dim, 0};
  std::byte* tiles = tiles_.take(r.codec->data_bytes(shape));
  side_.data = tiles;
  if (dim == r.dim) {
    r.codec->encode(shape, rows, count, tiles, nullptr);
    return;
  }
  // Values, with channels to be padded: f32 tiles of values are rows.
  std::memset(tiles, 0, r.codec->data_bytes(shape));
  for (int t = 0; t < count; ++t) {
    std::memcpy(tiles + static_cast<std::size_t>(t * r.dim) * sizeof(float), rows + t * dim,
                static_cast<std::size_t>(dim) * sizeof(float));
  }
}

void Operand::tile_rows(const Reader& r, const std::byte* rows, int count) {
  const TileShape shape = {r.side, side_.slots, r.dim, 0};
  std::byte* tiles = tiles_.take(r.codec->data_bytes(shape));
  side_.data = tiles;
  if (const auto encode = r.codec->encode_rows[static_cast<std::size_t>(r.isa)]) {
    const std::byte* from = rows_part(*r.store, r.side, r.head, const_cast<std::byte*>(rows));
    encode(shape, r.store->row_type, from, count, tiles, nullptr);
    return;
  }
  float* floats =
      floats_.take_floats(static_cast<std::size_t>(count) * static_cast<std::size_t>(r.dim));
  read_rows(*r.store, r.side, r.head, rows, 0, count, floats);
  r.codec->encode(shape, floats, count, tiles, nullptr);
}

}  // namespace quire
