// What of a page a query sees, and what the layer does with its logits there.
//
// Thread-safety: functions of their arguments.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

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

// Scales, caps and biases the dot products of a query's heads with slots [begin, end) of a slice's
// page: logits [head][stride]. What is left to be multiplied by is returned.
inline float shape_logits(const LayerMath& math, const HeadGroup& group, const PageSlice& slice,
                          const Query& query, int begin, int end, float* logits,
                          int stride) noexcept {
  if (math.soft_cap <= 0.0f && math.slopes.empty()) return math.scale;
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
  return 1.0f;
}

// Calls f(first, count) for each stretch of queries that read a page in one form.
template <typename F>
void for_each_stretch(std::span<const Seen> seen, const F& f) {
  for (std::size_t i = 0; i < seen.size();) {
    std::size_t end = i + 1;
    if (!seen[i].empty()) {
      while (end < seen.size() && !seen[end].empty() && seen[end].sealed == seen[i].sealed) ++end;
      f(i, end - i);
    }
    i = end;
  }
}

// The tiles that a stretch of queries sees.
struct TileRange {
  int first;
  int end;
};

inline TileRange tiles_of(std::span<const Seen> seen) noexcept {
  int first = seen.front().begin;
  int end = seen.front().end;
  for (const Seen& s : seen) {
    first = std::min(first, s.begin);
    end = std::max(end, s.end);
  }
  return {tile_floor(first), tile_ceil(end)};
}

}  // namespace quire
