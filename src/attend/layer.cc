// Offsets follow from the layer's numbers and the sizes that codecs say, which place() keeps:
//
//     rows     [key head][slot][key_dim] ... [value head][slot][value_dim] ...   (no padding)
//     sealed   per head: key data | key scales | value data | value scales       (64 bytes each)
//
// Padding of sealed bytes is written as zeros: sealed pages are hashed and compared as bytes.
#include "attend/layer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/convert.h"
#include "base/error.h"
#include "base/numbers.h"
#include "base/stream.h"

namespace quire {
namespace {

constexpr std::size_t kAlign = 64;

std::size_t aligned(std::size_t bytes) noexcept { return (bytes + kAlign - 1) / kAlign * kAlign; }

const Codec& codec_of(const LayerStore& store, Side side) noexcept {
  return side == Side::key || store.mla ? *store.key_codec : *store.value_codec;
}

// Channels of a slot in memory: those of the latent for both sides of an MLA layer.
int stored_dim(const LayerStore& store, Side side) noexcept {
  return side == Side::key || store.mla ? store.key_dim : store.value_dim;
}

// What tiles of all heads have in common: all but the seed, on which no size depends.
TileShape tile_of_any_head(const LayerStore& store, Side side) noexcept {
  if (store.mla) return {Side::key, store.page_tokens, store.key_dim, store.value_dim};
  return {side, store.page_tokens, stored_dim(store, side), 0};
}

const LayerStore::SealedBytes& sealed_side(const LayerStore& store, Side side) noexcept {
  return store.sealed_sides[static_cast<std::size_t>(side)];
}

// Sealed bytes of one side of one head, padding included.
std::size_t sealed_side_bytes(const LayerStore& store, Side side) noexcept {
  const LayerStore::SealedBytes& bytes = sealed_side(store, side);
  return aligned(bytes.data) + aligned(bytes.scales);
}

std::size_t sealed_head_bytes(const LayerStore& store) noexcept {
  const std::size_t keys = sealed_side_bytes(store, Side::key);
  return store.mla ? keys : keys + sealed_side_bytes(store, Side::value);
}

// The parts of a page that is only read: the same places.
const std::byte* rows_to_read(const LayerStore& store, Side side, int head,
                              const std::byte* rows) noexcept {
  return rows_part(store, side, head, const_cast<std::byte*>(rows));
}

SealedPart sealed_to_read(const LayerStore& store, Side side, int head,
                          const std::byte* sealed) noexcept {
  return sealed_part(store, side, head, const_cast<std::byte*>(sealed));
}

// One row of the caller's.
const std::byte* row_of(const TensorView& view, std::int64_t token, int head) noexcept {
  return static_cast<const std::byte*>(view.data) +
         (token * view.token_stride + head * view.head_stride) *
             static_cast<std::int64_t>(bytes_of(view.dtype));
}

double norm_of(DType dtype, const std::byte* row, std::size_t dim) noexcept {
  double sum = 0;
  for (std::size_t c = 0; c < dim; ++c) {
    const double x = load_element(dtype, row, c);
    sum += x * x;
  }
  return std::sqrt(sum);
}

// Converts the caller's rows of some heads, and says whether all of them can be stored. By tokens,
// where there are several heads: tokens of most callers hold their heads side by side, and memory
// is read at least twice as fast in its order as head by head (a Zen 4 core, rows of 256 bytes).
struct RowWriter {
  const TensorView& view;
  int first_head;
  std::size_t heads;
  std::size_t dim;
  float limit;
  double norm_limit;
  // Rows whose elements are all this small have no larger norm. Half of what follows from their
  // number, so that rounding plays no part.
  double small;
  DType row_type;
  std::int64_t element_bytes;
  ConvertRows convert;

  RowWriter(const LayerStore& store, Side side, HeadRange range, const TensorView& from, Isa isa)
      : view(from),
        first_head(range.begin),
        heads(static_cast<std::size_t>(range.end - range.begin)),
        dim(static_cast<std::size_t>(stored_dim(store, side))),
        limit(codec_of(store, side).largest),
        norm_limit(codec_of(store, side).largest_norm),
        small(0.5 * norm_limit / std::sqrt(static_cast<double>(dim))),
        row_type(store.row_type),
        element_bytes(static_cast<std::int64_t>(bytes_of(from.dtype))),
        convert(convert_rows(from.dtype, store.row_type, isa)) {}

  bool write_heads(std::int64_t token, std::byte* to, std::ptrdiff_t to_step) const noexcept {
    const std::ptrdiff_t step = view.head_stride * element_bytes;
    return fit(convert(row_of(view, token, first_head), step, to, to_step, heads, dim), to, to_step,
               heads);
  }
  // Of the first head.
  bool write_tokens(std::int64_t token, int count, std::byte* to,
                    std::ptrdiff_t to_step) const noexcept {
    const std::ptrdiff_t step = view.token_stride * element_bytes;
    const auto rows = static_cast<std::size_t>(count);
    return fit(convert(row_of(view, token, first_head), step, to, to_step, rows, dim), to, to_step,
               rows);
  }
  // Whether rows that were written, with this largest magnitude among them, can be stored.
  bool fit(float largest, const std::byte* rows, std::ptrdiff_t step,
           std::size_t count) const noexcept {
    if (!(largest <= limit)) return false;
    if (static_cast<double>(largest) <= small) return true;
    for (std::size_t i = 0; i < count; ++i, rows += step) {
      if (norm_of(row_type, rows, dim) > norm_limit) return false;
    }
    return true;
  }
};

// Calls f(side, head) for all that the layer stores.
template <typename F>
void for_each_part(const LayerStore& store, const F& f) {
  for (int head = 0; head < store.heads; ++head) {
    f(Side::key, head);
    if (!store.mla) f(Side::value, head);
  }
}

}  // namespace

TileShape LayerStore::tile(Side side, int head) const noexcept {
  TileShape tile = tile_of_any_head(*this, side);
  if (!mla) tile.seed = head_seed(seed, index, head, side);
  return tile;
}

bool LayerStore::lossless() const noexcept {
  return key_codec->lossless == row_type && (mla || value_codec->lossless == row_type);
}

void place(LayerStore& store, std::size_t& rows_bytes, std::size_t& sealed_bytes) noexcept {
  const auto heads = static_cast<std::size_t>(store.heads);
  const std::size_t rows_of_head =
      head_rows_bytes(store, Side::key) + (store.mla ? 0 : head_rows_bytes(store, Side::value));
  store.rows_offset = aligned(rows_bytes);
  store.rows_bytes = aligned(heads * rows_of_head);
  store.sealed_offset = aligned(sealed_bytes);
  for (const Side side : {Side::key, Side::value}) {
    const Codec& codec = codec_of(store, side);
    const TileShape tile = tile_of_any_head(store, side);
    store.sealed_sides[static_cast<std::size_t>(side)] = {codec.data_bytes(tile),
                                                          codec.scale_bytes(tile)};
  }
  store.sealed_bytes = heads * sealed_head_bytes(store);
  rows_bytes = store.rows_offset + store.rows_bytes;
  sealed_bytes = store.sealed_offset + store.sealed_bytes;
}

SealedPlace sealed_place(const LayerStore& store, Side side, int head) noexcept {
  SealedPlace place;
  place.data = store.sealed_offset + static_cast<std::size_t>(head) * sealed_head_bytes(store);
  if (side == Side::value && !store.mla) place.data += sealed_side_bytes(store, Side::key);
  place.data_bytes = sealed_side(store, side).data;
  place.scales = place.data + aligned(place.data_bytes);
  place.scale_bytes = sealed_side(store, side).scales;
  return place;
}

SealedPart sealed_part(const LayerStore& store, Side side, int head, std::byte* sealed) noexcept {
  const SealedPlace place = sealed_place(store, side, head);
  return {sealed + place.data, place.data_bytes,
          place.scale_bytes > 0 ? sealed + place.scales : nullptr, place.scale_bytes};
}

std::size_t rows_place(const LayerStore& store, Side side, int head) noexcept {
  std::size_t place =
      store.rows_offset + static_cast<std::size_t>(head) * head_rows_bytes(store, side);
  if (side == Side::value && !store.mla) {
    place += static_cast<std::size_t>(store.heads) * head_rows_bytes(store, Side::key);
  }
  return place;
}

std::byte* rows_part(const LayerStore& store, Side side, int head, std::byte* rows,
                     int slot) noexcept {
  return rows + rows_place(store, side, head) +
         static_cast<std::size_t>(slot) * row_bytes(store, side);
}

std::size_t row_bytes(const LayerStore& store, Side side) noexcept {
  return static_cast<std::size_t>(stored_dim(store, side)) * bytes_of(store.row_type);
}

std::size_t head_rows_bytes(const LayerStore& store, Side side) noexcept {
  return static_cast<std::size_t>(store.page_tokens) * row_bytes(store, side);
}

Result<void> check_rows(const LayerStore& store, Side side, const TensorView& view,
                        std::int64_t tokens, const char* call) {
  const char* name = side == Side::key ? "keys" : "values";
  const int dim = side == Side::key ? store.key_dim : store.value_dim;
  if (view.data == nullptr) {
    return fail(ErrorCode::invalid_argument, "{}: layer {}: {} are null", call, store.index, name);
  }
  if (!is_known(view.dtype)) {
    return fail(ErrorCode::mismatch, "{}: layer {}: {} have the unknown dtype {}", call,
                store.index, name, static_cast<int>(view.dtype));
  }
  if (view.tokens != tokens || view.heads != store.heads || view.dim != dim) {
    return fail(ErrorCode::mismatch,
                "{}: layer {}: {} are [{}][{}][{}], expected [{} tokens][{} heads][{}]", call,
                store.index, name, view.tokens, view.heads, view.dim, tokens, store.heads, dim);
  }
  return {};
}

Result<void> write_row(const LayerStore& store, Side side, const TensorView& view,
                       std::int64_t token, std::byte* rows, int slot, const char* call) {
  if (store.mla && side == Side::value) return {};
  const Codec& codec = codec_of(store, side);
  const auto dim = static_cast<std::size_t>(stored_dim(store, side));
  for (int head = 0; head < store.heads; ++head) {
    const std::byte* from = row_of(view, token, head);
    std::byte* to = rows_part(store, side, head, rows, slot);
    for (std::size_t c = 0; c < dim; ++c) {
      const float value = load_element(view.dtype, from, c);
      store_element(store.row_type, to, c, value);
      const float rounded = load_element(store.row_type, to, c);
      if (std::fabs(rounded) <= codec.largest) continue;
      const bool in_rows = std::isfinite(rounded);
      return fail(ErrorCode::non_finite,
                  "{}: layer {} {} of token {}, head {}, channel {}: {} does not fit {} {}", call,
                  store.index, side == Side::key ? "key" : "value", token, head, c, value,
                  in_rows ? codec.name : name_of(store.row_type), in_rows ? "codes" : "rows");
    }
    const double norm = norm_of(store.row_type, to, dim);
    if (norm > codec.largest_norm) {
      return fail(ErrorCode::non_finite,
                  "{}: layer {} {} of token {}, head {}: a norm of {:.6g} does not fit {} codes, "
                  "which take {}",
                  call, store.index, side == Side::key ? "key" : "value", token, head, norm,
                  codec.name, codec.largest_norm);
    }
  }
  return {};
}

bool write_rows(const LayerStore& store, Side side, HeadRange heads, const TensorView& view,
                std::int64_t first, int count, std::byte* to, Isa isa) noexcept {
  const RowWriter writer(store, side, heads, view, isa);
  const auto bytes = static_cast<std::ptrdiff_t>(row_bytes(store, side));
  if (writer.heads == 1) return writer.write_tokens(first, count, to, bytes);
  for (int i = 0; i < count; ++i, to += bytes) {
    if (!writer.write_heads(first + i, to,
                            static_cast<std::ptrdiff_t>(head_rows_bytes(store, side))))
      return false;
  }
  return true;
}

bool stream_rows(const LayerStore& store, Side side, HeadRange heads, const TensorView& view,
                 std::int64_t first, int count, std::byte* to, Scratch& scratch, Isa isa) {
  const RowWriter writer(store, side, heads, view, isa);
  const std::size_t bytes = row_bytes(store, side);
  std::byte* token = scratch.take(writer.heads * bytes);
  for (int i = 0; i < count; ++i, to += bytes) {
    if (!writer.write_heads(first + i, token, static_cast<std::ptrdiff_t>(bytes))) return false;
    for (std::size_t head = 0; head < writer.heads; ++head) {
      stream_copy(to + head * head_rows_bytes(store, side), token + head * bytes, bytes);
    }
  }
  return true;
}

void copy_rows(const LayerStore& store, const std::byte* from, int count, std::byte* to) noexcept {
  for_each_part(store, [&](Side side, int head) {
    std::memcpy(rows_part(store, side, head, to), rows_to_read(store, side, head, from),
                static_cast<std::size_t>(count) * row_bytes(store, side));
  });
}

void seal(const LayerStore& store, const std::byte* rows, int count, std::byte* sealed, Isa isa) {
  for_each_part(store, [&](Side side, int head) {
    seal_part(store, side, head, rows_to_read(store, side, head, rows), count, sealed, nullptr,
              isa);
  });
}

void seal_part(const LayerStore& store, Side side, int head, const std::byte* from, int count,
               std::byte* sealed, Scratch* scratch, Isa isa) {
  const Codec& codec = codec_of(store, side);
  const TileShape tile = store.tile(side, head);
  const SealedPart part = sealed_part(store, side, head, sealed);
  const std::size_t data_bytes = aligned(part.data_bytes);
  const std::size_t bytes = data_bytes + aligned(part.scale_bytes);
  std::byte* data = scratch != nullptr ? scratch->take(bytes) : part.data;
  std::byte* scales = part.scales != nullptr ? data + data_bytes : nullptr;
  // The codec writes all of its bytes; what is left is the padding behind them.
  std::memset(data + part.data_bytes, 0, data_bytes - part.data_bytes);
  if (scales != nullptr) {
    std::memset(scales + part.scale_bytes, 0, aligned(part.scale_bytes) - part.scale_bytes);
  }
  if (const auto encode_rows = codec.encode_rows[static_cast<std::size_t>(isa)]) {
    encode_rows(tile, store.row_type, from, count, data, scales);
  } else {
    std::vector<float> widened(static_cast<std::size_t>(count) *
                               static_cast<std::size_t>(stored_dim(store, side)));
    for (std::size_t i = 0; i < widened.size(); ++i) {
      widened[i] = load_element(store.row_type, from, i);
    }
    codec.encode(tile, widened.data(), count, data, scales);
  }
  if (scratch != nullptr) stream_copy(part.data, data, bytes);
}

void reseal(const LayerStore& store, Side side, const std::byte* rows, bool has_all, int slots,
            int first, int count, std::byte* sealed) {
  const auto dim = static_cast<std::ptrdiff_t>(stored_dim(store, side));
  const Codec& codec = codec_of(store, side);
  std::vector<float> page;
  for (int head = 0; head < store.heads; ++head) {
    const TileShape tile = store.tile(side, head);
    const SealedPart part = sealed_part(store, side, head, sealed);
    if (codec.encode_slot != nullptr) {
      page.resize(static_cast<std::size_t>(count * dim));
      read_rows(store, side, head, rows, first, count, page.data());
      for (int i = 0; i < count; ++i) {
        codec.encode_slot(tile, page.data() + i * dim, first + i, part.data, part.scales);
      }
    } else if (has_all) {
      seal_part(store, side, head, rows_to_read(store, side, head, rows), slots, sealed);
    } else {
      page.resize(static_cast<std::size_t>(slots * dim));
      codec.decode(tile, part.data, part.scales, 0, slots, page.data());
      read_rows(store, side, head, rows, first, count, page.data() + first * dim);
      codec.encode(tile, page.data(), slots, part.data, part.scales);
    }
  }
}

void read_rows(const LayerStore& store, Side side, int head, const std::byte* rows, int first,
               int count, float* out) {
  const int dim = side == Side::key ? store.key_dim : store.value_dim;
  const std::size_t stride = row_bytes(store, side);
  const std::byte* from =
      rows_to_read(store, side, head, rows) + static_cast<std::size_t>(first) * stride;
  for (int t = 0; t < count; ++t, from += stride) {
    for (int c = 0; c < dim; ++c) {
      *out++ = load_element(store.row_type, from, static_cast<std::size_t>(c));
    }
  }
}

void read_sealed(const LayerStore& store, Side side, int head, const std::byte* sealed, int first,
                 int count, float* out) {
  const SealedPart part = sealed_to_read(store, side, head, sealed);
  const Codec& codec = codec_of(store, side);
  if (side == Side::key || !store.mla) {
    codec.decode(store.tile(side, head), part.data, part.scales, first, count, out);
    return;
  }
  // Values of an MLA layer are the head of each latent, which is decoded whole.
  std::vector<float> latent(static_cast<std::size_t>(store.key_dim));
  for (int t = 0; t < count; ++t, out += store.value_dim) {
    codec.decode(store.tile(side, head), part.data, part.scales, first + t, 1, latent.data());
    std::copy_n(latent.data(), store.value_dim, out);
  }
}

void unseal(const LayerStore& store, const std::byte* sealed, int count, std::byte* rows) {
  std::vector<float> scratch;
  for_each_part(store, [&](Side side, int head) {
    scratch.resize(static_cast<std::size_t>(count) *
                   static_cast<std::size_t>(stored_dim(store, side)));
    read_sealed(store, side, head, sealed, 0, count, scratch.data());
    std::byte* to = rows_part(store, side, head, rows);
    for (std::size_t i = 0; i < scratch.size(); ++i) {
      store_element(store.row_type, to, i, scratch[i]);
    }
  });
}

}  // namespace quire
