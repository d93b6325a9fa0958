#include "cache/read.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/numbers.h"

namespace quire {
namespace {

const char* rows_tag(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "rows/f32";
    case DType::f16:
      return "rows/f16";
    case DType::bf16:
      return "rows/bf16";
  }
  return "rows";
}

// Where element (column, head, channel) of one sequence's block goes.
struct Strides {
  std::int64_t column;
  std::int64_t head;
  std::int64_t channel;
};

Strides strides_of(const GatherFormat& format, Side side, std::int64_t columns, std::int64_t heads,
                   std::int64_t dim) {
  if (format.layout == Layout::token_major) return {heads * dim, dim, 1};
  if (side == Side::value && format.transpose_values) return {1, columns * dim, columns};
  return {dim, columns * dim, 1};
}

Result<void> check_buffer(const char* side, std::int64_t needed, std::int64_t given) {
  if (given >= needed) return {};
  return fail(ErrorCode::buffer_too_small, "gather: {} need {} elements, the buffer has {}", side,
              needed, given);
}

void write_side(const Layer& layer, Side side, const GatherSource& source,
                const GatherFormat& format, std::int64_t columns, std::byte* out) {
  const int heads = layer.store.heads;
  const int dim = side == Side::key ? layer.store.key_dim : layer.store.value_dim;
  const Strides strides = strides_of(format, side, columns, heads, dim);
  // Codes may stand for a little more than the rows they were made of.
  const float most = largest_finite(format.dtype);
  std::vector<float> rows;
  for (int head = 0; head < heads; ++head) {
    std::int64_t column = 0;
    for (const PageSlice& slice : source.slices) {
      rows.resize(static_cast<std::size_t>(slice.count) * static_cast<std::size_t>(dim));
      read_slice(layer.store, layer.math.rope, side, head, slice, source.sealed_below, slice.first,
                 slice.count, rows.data());
      const float* row = rows.data();
      for (int i = 0; i < slice.count; ++i, ++column) {
        for (int c = 0; c < dim; ++c) {
          const std::int64_t index =
              column * strides.column + head * strides.head + c * strides.channel;
          store_element(format.dtype, out, static_cast<std::size_t>(index),
                        std::clamp(*row++, -most, most));
        }
      }
    }
  }
}

}  // namespace

std::vector<PageSlice> collect_slices(const RunTable& table, std::int64_t first_position) {
  std::vector<PageSlice> slices;
  table.for_each(
      [&](const Run& run, std::int64_t shift) {
        if (run.count == 0) return;
        PageSlice slice;
        slice.turn = run.turn + shift;
        const std::int64_t* begin = run.page->positions + run.first;
        const std::int64_t* end = begin + run.count;
        const std::int64_t* from = *begin + slice.turn >= first_position
                                       ? begin
                                       : std::lower_bound(begin, end, first_position - slice.turn);
        if (from == end) return;
        const auto hidden = static_cast<int>(from - begin);
        slice.rows = run.rows ? run.page->rows : nullptr;
        slice.sealed = run.page->sealed;
        slice.positions = run.page->positions;
        slice.keys = run.page->keys;
        slice.first = run.first + hidden;
        slice.count = run.count - hidden;
        slice.ordinal = run.ordinal + hidden;
        slice.page_end = table.page_end(run);
        slices.push_back(slice);
      },
      first_position);
  return slices;
}

std::int64_t count_slots(const std::vector<PageSlice>& slices) noexcept {
  std::int64_t count = 0;
  for (const PageSlice& slice : slices) count += slice.count;
  return count;
}

Result<Gathered> gather_sources(const Layer& layer, const std::vector<GatherSource>& sources,
                                const GatherFormat& format, bool size_only, void* keys,
                                std::int64_t key_elements, void* values,
                                std::int64_t value_elements) {
  const auto bad = [](const char* what, std::int64_t number) {
    return fail(ErrorCode::invalid_argument, "gather: {} {}", what, number);
  };
  if (!is_known(format.dtype)) {
    return bad("unknown dtype", static_cast<int>(format.dtype));
  }
  if (format.layout != Layout::token_major && format.layout != Layout::head_major) {
    return bad("unknown layout", static_cast<int>(format.layout));
  }
  if (format.pad_tokens_to < 1 || format.pad_tokens_to > kMaxPadding) {
    return bad("pad_tokens_to must be in [1, 2^24], not", format.pad_tokens_to);
  }
  if (format.layout == Layout::token_major && sources.size() != 1) {
    return bad("several sequences are written head_major only; sequences asked for:",
               static_cast<std::int64_t>(sources.size()));
  }
  if (format.layout == Layout::token_major && format.transpose_values) {
    return bad("transposed values are head_major; layout asked for:",
               static_cast<int>(format.layout));
  }
  Gathered gathered;
  for (const GatherSource& source : sources) {
    gathered.lengths.push_back(count_slots(source.slices));
    gathered.columns = std::max(gathered.columns, gathered.lengths.back());
    gathered.first_positions.push_back(
        source.slices.empty() ? -1 : source.slices.front().position(source.slices.front().first));
  }
  gathered.columns = padded(gathered.columns, format.pad_tokens_to);
  const std::int64_t rows =
      static_cast<std::int64_t>(sources.size()) * gathered.columns * layer.store.heads;
  gathered.key_elements = rows * layer.store.key_dim;
  gathered.value_elements = rows * layer.store.value_dim;
  if (size_only) return gathered;
  struct Target {
    Side side;
    void* data;
    std::int64_t elements;
    std::int64_t given;
  };
  const Target targets[] = {{Side::key, keys, gathered.key_elements, key_elements},
                            {Side::value, values, gathered.value_elements, value_elements}};
  for (const Target& target : targets) {
    if (target.data == nullptr) continue;
    QUIRE_CHECK(
        check_buffer(target.side == Side::key ? "keys" : "values", target.elements, target.given));
  }
  const std::size_t element_bytes = bytes_of(format.dtype);
  for (const Target& target : targets) {
    if (target.data == nullptr || target.elements == 0) continue;
    auto* out = static_cast<std::byte*>(target.data);
    const std::size_t bytes = static_cast<std::size_t>(target.elements) * element_bytes;
    std::memset(out, 0, bytes);  // padding
    for (const GatherSource& source : sources) {
      write_side(layer, target.side, source, format, gathered.columns, out);
      out += bytes / sources.size();
    }
  }
  return gathered;
}

std::vector<RunView> lend_runs(const Layer& layer, const std::vector<PageSlice>& slices,
                               std::int64_t sealed_below) {
  const LayerStore& store = layer.store;
  std::vector<RunView> views;
  for (const PageSlice& slice : slices) {
    for (const Side side : {Side::key, Side::value}) {
      const Codec& codec = side == Side::key ? *store.key_codec : *store.value_codec;
      for (int head = 0; head < store.heads; ++head) {
        RunView view;
        view.side = side;
        view.head = head;
        view.page_slots = store.page_tokens;
        view.first_slot = slice.first;
        view.last_slot = slice.first + slice.count;
        view.first_position = slice.position(slice.first);
        for (int slot = slice.first; slot < view.last_slot; ++slot) {
          view.positions.push_back(slice.position(slot));
        }
        view.turn = layer.rotation == Rotation::Kind::rope ? slice.turn : 0;
        if (slice.reads_sealed(sealed_below)) {
          const SealedPart part =
              sealed_part(store, side, head, const_cast<std::byte*>(slice.sealed));
          view.layout = std::string("tiles/") + codec.name;
          view.data = part.data;
          view.data_bytes = part.data_bytes;
          view.scales = part.scale_bytes > 0 ? part.scales : nullptr;
          view.scale_bytes = part.scale_bytes;
        } else {
          const int dim = side == Side::key || store.mla ? store.key_dim : store.value_dim;
          view.layout = rows_tag(store.row_type);
          view.data = rows_part(store, side, head, const_cast<std::byte*>(slice.rows));
          view.data_bytes = static_cast<std::size_t>(store.page_tokens) *
                            static_cast<std::size_t>(dim) * bytes_of(store.row_type);
        }
        views.push_back(std::move(view));
      }
    }
  }
  return views;
}

}  // namespace quire
