// What a spec means to the naive model: groups, owners, row types, and the rules that need nothing
// but numbers.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "model/numbers.h"
#include "quire/cache.hpp"

namespace quire::test {

inline constexpr std::int64_t kNoFloor = INT64_MIN;

inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

struct NaiveSpec {
  CacheSpec spec;
  std::vector<Pattern> groups;
  std::vector<std::size_t> group_of;  // [layer]
  std::vector<std::size_t> owner_of;  // [layer]: itself, or kv_of
  std::vector<DType> row_type;        // [layer], of the owner
  std::vector<bool> lossless;         // [group]: sealed pages give back their rows

  explicit NaiveSpec(const CacheSpec& given) : spec(given) {
    for (std::size_t i = 0; i < spec.layers.size(); ++i) {
      const LayerSpec& layer = spec.layers[i];
      std::size_t g = 0;
      while (g < groups.size() && !(groups[g] == layer.pattern)) ++g;
      if (g == groups.size()) {
        groups.push_back(layer.pattern);
        lossless.push_back(true);
      }
      group_of.push_back(g);
      owner_of.push_back(layer.kv_of ? at(*layer.kv_of) : i);
      row_type.push_back(row_type_of(spec.layers[owner_of[i]]));
      if (layer.kv_of) continue;
      lossless[g] = lossless[g] && is_lossless(layer.codec.key, row_type[i]) &&
                    is_lossless(layer.codec.value, row_type[i]);
    }
  }

  const LayerSpec& owner(std::size_t layer) const { return spec.layers[owner_of[layer]]; }
  bool is_cross(std::size_t group) const { return groups[group].kind == Pattern::Kind::cross; }
  bool is_cross_layer(std::size_t layer) const { return is_cross(group_of[layer]); }
  bool has_cross_layers() const {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (is_cross(g)) return true;
    }
    return false;
  }
  // Whether the layer takes put calls.
  bool stores(std::size_t layer) const { return owner_of[layer] == layer; }

  std::int64_t page() const { return spec.page_tokens; }
  std::int64_t floor_page(std::int64_t n) const { return n < 0 ? -page() : n / page() * page(); }
  std::int64_t page_end(std::int64_t ordinal) const { return floor_page(ordinal) + page(); }
  std::int64_t head_end() const { return (spec.exact_head + page() - 1) / page() * page(); }
  // A query at ordinal n reads pages that ended at or before this as sealed.
  std::int64_t sealed_below(std::int64_t n) const { return floor_page(n - spec.exact_tail); }
  // A commit that brings a sequence to ordinal n lets rows of pages below this go.
  std::int64_t rows_from(std::int64_t n) const {
    return floor_page(n - spec.exact_tail - spec.rollback);
  }

  // The lowest position that a query at `position` sees.
  std::int64_t first_visible(std::size_t group, std::int64_t position) const {
    const Pattern& pattern = groups[group];
    if (pattern.kind == Pattern::Kind::window) return position - (pattern.size - 1);
    if (pattern.kind == Pattern::Kind::chunked) return position / pattern.size * pattern.size;
    return INT64_MIN;
  }
  // The lowest position that a window still shows when a step starts at `first`.
  std::int64_t retained_from(std::size_t group, std::int64_t first) const {
    const Pattern& pattern = groups[group];
    if (pattern.kind != Pattern::Kind::window) return INT64_MIN;
    return first - (pattern.memory - 1 + spec.rollback);
  }
};

// Turns one head's keys from one position to another, by the definition of rotary embedding.
inline void turn_key(const Rope& rope, int dim, std::int64_t distance, double* key) {
  const int size = rope.size > 0 ? rope.size : dim - rope.offset;
  const int pairs = size / 2;
  for (int i = 0; i < pairs; ++i) {
    const double factor = rope.factors.empty() ? 1.0 : rope.factors[at(i)];
    const double angle = static_cast<double>(distance) * rope.frequency_scale *
                         std::pow(rope.base, -2.0 * i / size) / factor;
    const bool halves = rope.pairs == Rope::Pairs::halves;
    double& x = key[rope.offset + (halves ? i : 2 * i)];
    double& y = key[rope.offset + (halves ? i + pairs : 2 * i + 1)];
    const double turned = x * std::cos(angle) - y * std::sin(angle);
    y = x * std::sin(angle) + y * std::cos(angle);
    x = turned;
  }
}

}  // namespace quire::test
