// Reading back what a sequence holds: rows, gather, runs.
#include "capi/convert.h"
#include "capi/gather.h"
#include "capi/guard.h"
#include "capi/handle.h"

using namespace quire;
using namespace quire::capi;

namespace {

// Tokens of a layer at the positions of `range`. Cost: views of the layer's pages, no decoding.
Result<int64_t> tokens_in(const Sequence& sequence, int layer, const ReadRange& range) {
  QUIRE_TRY(const std::vector<RunView> views, sequence.runs(layer));
  int64_t tokens = 0;
  for (const RunView& view : views) {
    if (view.side != Side::key || view.head != 0) continue;
    tokens += std::count_if(view.positions.begin(), view.positions.end(), [&](int64_t position) {
      return position >= range.begin && position < range.end;
    });
  }
  return tokens;
}

}  // namespace

quire_status quire_sequence_read(const quire_cache* cache, quire_sequence_id sequence, int layer,
                                 quire_side side, int64_t begin, int64_t end, int head, float* out,
                                 int64_t out_elements, int64_t* tokens, int64_t* elements) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("read", "cache", cache));
    QUIRE_CHECK(require_array("read", "out", out, out_elements));
    QUIRE_TRY(const Side of, to_side("read", side));
    QUIRE_TRY(const Sequence found, cache->cache.find(to_id(sequence)));
    const ReadRange range{begin, end, head};

    // Without a buffer the call is still made, into no room, so that bad arguments are refused.
    float nothing = 0.0f;
    Result<int64_t> read =
        found.read(layer, of, range, out != nullptr ? out : &nothing, out_elements);
    const bool too_small = read.code() == ErrorCode::buffer_too_small;
    if (!read && !too_small) return std::move(read).error();
    int64_t count = 0;
    if (too_small) {
      QUIRE_TRY(count, tokens_in(found, layer, range));
    } else {
      count = *read;
    }
    const LayerSpec& spec = cache->cache.spec().layers.at(static_cast<std::size_t>(layer));
    const int64_t heads = head == QUIRE_ALL_HEADS ? spec.kv_heads : 1;
    if (tokens != nullptr) *tokens = count;
    if (elements != nullptr) {
      *elements = count * heads * (of == Side::key ? spec.key_dim : spec.value_dim);
    }
    if (too_small && out != nullptr) return std::move(read).error();
    return {};
  });
}

quire_status quire_sequence_for_each(const quire_cache* cache, quire_sequence_id sequence,
                                     int layer, quire_side side, quire_row_function function,
                                     void* context) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("for_each", "cache", cache));
    if (function == nullptr) {
      return fail(ErrorCode::invalid_argument, "for_each: function is a null pointer");
    }
    QUIRE_TRY(const Side of, to_side("for_each", side));
    QUIRE_TRY(const Sequence found, cache->cache.find(to_id(sequence)));
    return found.for_each(
        layer, of, [&](int64_t position, const float* row) { function(context, position, row); });
  });
}

quire_status quire_cache_gather_size(const quire_cache* cache, int layer,
                                     const quire_sequence_id* sequences, int64_t sequence_count,
                                     const quire_gather_format* format, quire_gathered* gathered) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("gather_size", "cache", cache));
    return gather_size_into(cache->cache, layer, sequences, sequence_count, format, gathered);
  });
}

quire_status quire_cache_gather(const quire_cache* cache, int layer,
                                const quire_sequence_id* sequences, int64_t sequence_count,
                                const quire_gather_format* format, void* keys, int64_t key_elements,
                                void* values, int64_t value_elements, quire_gathered* gathered) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("gather", "cache", cache));
    return gather_into(cache->cache, layer, sequences, sequence_count, format, keys, key_elements,
                       values, value_elements, gathered);
  });
}

quire_status quire_sequence_gather_size(const quire_cache* cache, quire_sequence_id sequence,
                                        int layer, const quire_gather_format* format,
                                        quire_gathered* gathered) {
  return quire_cache_gather_size(cache, layer, &sequence, 1, format, gathered);
}

quire_status quire_sequence_gather(const quire_cache* cache, quire_sequence_id sequence, int layer,
                                   const quire_gather_format* format, void* keys,
                                   int64_t key_elements, void* values, int64_t value_elements,
                                   quire_gathered* gathered) {
  return quire_cache_gather(cache, layer, &sequence, 1, format, keys, key_elements, values,
                            value_elements, gathered);
}

quire_status quire_sequence_runs(const quire_cache* cache, quire_sequence_id sequence, int layer,
                                 quire_run* runs, int64_t run_capacity, int64_t* run_count,
                                 int64_t* positions, int64_t position_capacity,
                                 int64_t* position_count) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("runs", "cache", cache));
    QUIRE_TRY(const Sequence found, cache->cache.find(to_id(sequence)));
    QUIRE_TRY(const std::vector<RunView> views, found.runs(layer));
    return write_runs("runs", views, runs, run_capacity, run_count, positions, position_capacity,
                      position_count);
  });
}
