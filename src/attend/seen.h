// What of a page a query sees, and what the layer does with its logits there.
//
// Thread-safety: functions of their arguments.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "attend/operand.h"
#include "attend/query_block.h"
#include "attend/walk.h"

namespace quire {

// Slots of a slice's page that a query sees.
struct Seen {
  int begin = 0;
  int end = 0;
  bool sealed = false;
  bool empty() const noexcept { return begin >= end; }
};

inline Seen seen_by(const PageSlice& slice, const Query& query) noexcept {
  if (query.end_ordinal <= slice.ordinal) return {};
  const auto below =
      static_cast<int>(std::min<std::int64_t>(slice.count, query.end_ordinal - slice.ordinal));
  const std::int64_t* const first = slice.positions + slice.first;
  const std::int64_t* begin = first;
  // Positions are looked at only where they matter: they are memory far away.
  if (query.first_position != INT64_MIN && *begin + slice.turn < query.first_position) {
    begin = std::partition_point(first, first + below, [&](std::int64_t position) {
      return position + slice.turn < query.first_position;
    });
  }
  return {slice.first + static_cast<int>(begin - first), slice.first + below,
          slice.reads_sealed(query.sealed_below)};
}

inline PageBytes bytes_of_page(const PageSlice& slice) noexcept {
  return {slice.rows, slice.sealed};
}

// Whether logits are more than dot products that a kernel can scale.
inline bool shapes_logits(const LayerMath& math) noexcept {
  return math.soft_cap > 0.0f || !math.slopes.empty() || !(math.scale > 0.0f);
}
// What shape_logits leaves to be multiplied by.
inline float scale_left(const LayerMath& math) noexcept {
  return shapes_logits(math) ? 1.0f : math.scale;
}

// Scales, caps and biases the dot products of a query's heads with slots [begin, end) of a slice's
// page: logits [head][stride].
inline void shape_logits(const LayerMath& math, const HeadGroup& group, const PageSlice& slice,
                         const Query& query, int begin, int end, float* logits,
                         int stride) noexcept {
  if (!shapes_logits(math)) return;
  for (std::int64_t h = 0; h < group.count; ++h, logits += stride) {
    for (int t = begin; t < end; ++t) logits[t] *= math.scale;
    if (math.soft_cap > 0.0f) {
      for (int t = begin; t < end; ++t) {
        logits[t] = math.soft_cap * std::tanh(logits[t] / math.soft_cap);
      }
    }
    if (math.slopes.empty()) continue;
    const float slope = math.slopes[static_cast<std::size_t>(group.first + h)];
    for (int t = begin; t < end; ++t) {
      logits[t] += slope * static_cast<float>(slice.position(t) - query.position);
    }
  }
}

// Neighbours among the queries that read a page in one form, and the tiles that they see together.
struct Stretch {
  std::size_t first;
  std::size_t count;
  bool sealed;
  int first_slot;  // of the tiles
  int end_slot;
};

// Appends the stretches of queries that see something.
inline void add_stretches(std::span<const Seen> seen, std::vector<Stretch>& to) {
  for (std::size_t i = 0; i < seen.size();) {
    std::size_t end = i + 1;
    if (!seen[i].empty()) {
      int first_slot = seen[i].begin;
      int end_slot = seen[i].end;
      for (; end < seen.size() && !seen[end].empty() && seen[end].sealed == seen[i].sealed; ++end) {
        first_slot = std::min(first_slot, seen[end].begin);
        end_slot = std::max(end_slot, seen[end].end);
      }
      to.push_back({i, end - i, seen[i].sealed, tile_floor(first_slot), tile_ceil(end_slot)});
    }
    i = end;
  }
}

// Whether all that see something of the page see the same, and that is whole tiles.
inline bool whole_tiles(std::span<const Seen> seen) noexcept {
  const Seen* one = nullptr;
  for (const Seen& s : seen) {
    if (s.empty()) continue;
    if (one == nullptr) one = &s;
    if (s.begin != one->begin || s.end != one->end) return false;
  }
  return one == nullptr || (one->begin % kSlotTile == 0 && one->end % kSlotTile == 0);
}

}  // namespace quire
