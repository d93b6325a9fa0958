// Reading what a table shows: slices for attention, decoded rows, gathered tensors, lent bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/layout.h"
#include "page/table.h"
#include "quire/cache.hpp"

namespace quire {

// The runs of a table as attention sees them, from the first token at `first_position` on.
std::vector<PageSlice> collect_slices(const RunTable& table, std::int64_t first_position);

std::int64_t count_slots(const std::vector<PageSlice>& slices) noexcept;

// One sequence's share of a gather.
struct GatherSource {
  std::vector<PageSlice> slices;
  std::int64_t sealed_below = 0;
};

// Checks a format, the sizes of the buffers, and writes unless `size_only`. A null buffer is a side
// that is not wanted.
Result<Gathered> gather_sources(const Layer& layer, const std::vector<GatherSource>& sources,
                                const GatherFormat& format, bool size_only, void* keys,
                                std::int64_t key_elements, void* values,
                                std::int64_t value_elements);

// Bytes of every slice, side and head of a layer.
std::vector<RunView> lend_runs(const Layer& layer, const std::vector<PageSlice>& slices,
                               std::int64_t sealed_below);

// Rounds up to a multiple; Requires: multiple > 0.
inline std::int64_t padded(std::int64_t count, std::int64_t multiple) noexcept {
  return (count + multiple - 1) / multiple * multiple;
}

}  // namespace quire
