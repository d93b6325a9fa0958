// A spec, checked and worked out: which layers form a group, where each lies in its group's
// blocks, and the numbers that attention needs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attend/layer.h"
#include "attend/rope.h"
#include "attend/walk.h"
#include "quire/spec.hpp"

namespace quire {

// Positions stay below this, so that no sum of two overflows.
inline constexpr std::int64_t kMaxPosition = std::int64_t{1} << 60;

// Columns are padded to a multiple of at most this, so that no count of elements overflows.
inline constexpr std::int64_t kMaxPadding = std::int64_t{1} << 24;

struct Layer {
  LayerStore store;  // of the layer whose keys and values it reads
  int owner = 0;     // that layer: itself, or kv_of
  int group = 0;
  LayerMath math;  // `slopes` and `rope` point into the layout
  std::vector<float> slopes;
  std::vector<float> sinks;
  int query_heads = 0;
  Rotation::Kind rotation = Rotation::Kind::unknown;
  RopeTurner rope;
};

struct Group {
  Pattern pattern;
  std::vector<int> owners;  // layers that store, in order
  std::size_t rows_bytes = 0;
  std::size_t sealed_bytes = 0;
  bool lossless = true;      // rows can be rebuilt from sealed bytes, bit for bit
  bool movable = true;       // every layer knows what to do when tokens move
  bool by_function = false;  // a layer needs new pages when tokens move
  bool copies_slots = true;  // every codec can move single slots
};

struct CacheLayout {
  CacheSpec spec;
  std::vector<Layer> layers;
  std::vector<Group> groups;
  int cross_group = -1;       // -1: no cross layers
  std::int64_t head_end = 0;  // exact_head rounded up to a page

  std::int64_t floor_page(std::int64_t ordinal) const noexcept {
    const std::int64_t page = spec.page_tokens;
    return ordinal < 0 ? -page : ordinal / page * page;
  }
  // A query at `ordinal` reads pages that end at or before this as sealed.
  std::int64_t sealed_below(std::int64_t ordinal) const noexcept {
    return floor_page(ordinal - spec.exact_tail);
  }
  // Rows of pages that end at or before this are let go when a sequence reaches `ordinal`.
  std::int64_t rows_from(std::int64_t ordinal) const noexcept {
    return floor_page(ordinal - spec.exact_tail - spec.rollback);
  }
  bool is_cross(int group) const noexcept { return group == cross_group; }
};

// The layer of that number, or out_of_range.
Result<const Layer*> layer_at(const CacheLayout& layout, int index, const char* operation);

// Checks a spec and works it out. The text of an error names the layer and the number.
Result<std::unique_ptr<const CacheLayout>> make_layout(const CacheSpec& spec);

}  // namespace quire
