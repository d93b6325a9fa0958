// Gather in C, the same for a cache and for a step.
#pragma once

#include <vector>

#include "capi/convert.h"
#include "capi/guard.h"

namespace quire::capi {

template <typename Source>
Result<void> gather_size_into(const Source& source, int layer, const quire_sequence_id* sequences,
                              int64_t sequence_count, const quire_gather_format* format,
                              quire_gathered* gathered) {
  QUIRE_CHECK(require_stamped("gather_size", "gathered", gathered));
  QUIRE_TRY(const GatherFormat how, to_format("gather_size", format));
  QUIRE_TRY(const std::vector<SequenceId> of, to_ids("gather_size", sequences, sequence_count));
  QUIRE_TRY(const Gathered size, source.gather_size(layer, of, how));
  write_gathered(gathered, size);
  return {};
}

template <typename Source>
Result<void> gather_into(const Source& source, int layer, const quire_sequence_id* sequences,
                         int64_t sequence_count, const quire_gather_format* format, void* keys,
                         int64_t key_elements, void* values, int64_t value_elements,
                         quire_gathered* gathered) {
  QUIRE_CHECK(require_array("gather", "keys", keys, key_elements));
  QUIRE_CHECK(require_array("gather", "values", values, value_elements));
  if (gathered != nullptr) QUIRE_CHECK(require_stamped("gather", "gathered", gathered));
  QUIRE_TRY(const GatherFormat how, to_format("gather", format));
  QUIRE_TRY(const std::vector<SequenceId> of, to_ids("gather", sequences, sequence_count));
  Result<Gathered> wrote =
      source.gather(layer, of, how, keys, key_elements, values, value_elements);
  if (wrote && gathered != nullptr) write_gathered(gathered, *wrote);
  if (wrote.code() == ErrorCode::buffer_too_small && gathered != nullptr) {
    QUIRE_TRY(const Gathered size, source.gather_size(layer, of, how));
    write_gathered(gathered, size);
  }
  if (!wrote) return std::move(wrote).error();
  return {};
}

}  // namespace quire::capi
