#include "cache/print.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cache/limits.h"

namespace quire {
namespace {

std::string pattern_text(const Pattern& pattern) {
  switch (pattern.kind) {
    case Pattern::Kind::causal:
      return "causal";
    case Pattern::Kind::window:
      return pattern.memory == pattern.size
                 ? fmt::format("window {}", pattern.size)
                 : fmt::format("window {} of {}", pattern.size, pattern.memory);
    case Pattern::Kind::chunked:
      return fmt::format("chunked {}", pattern.size);
    case Pattern::Kind::cross:
      return "cross";
  }
  return "unknown";
}

const char* rotation_text(Rotation::Kind kind) {
  switch (kind) {
    case Rotation::Kind::unknown:
      return "unknown";
    case Rotation::Kind::none:
      return "none";
    case Rotation::Kind::rope:
      return "rope";
    case Rotation::Kind::function:
      return "function";
  }
  return "unknown";
}

std::string limit_text(std::size_t bytes) {
  return bytes == SIZE_MAX ? "no limit" : fmt::format("a limit of {}", bytes);
}

}  // namespace

std::string print_text(const CacheCore& cache) {
  const CacheLayout& layout = cache.layout();
  const CacheSpec& spec = layout.spec;
  const Stats stats = count_stats(cache);
  std::string out = fmt::format(
      "quire cache: {} layers in {} groups, pages of {} tokens, exact head {} and tail {}, "
      "rollback {}, seed {}\n",
      layout.layers.size(), layout.groups.size(), spec.page_tokens, spec.exact_head,
      spec.exact_tail, spec.rollback, spec.seed);
  out += fmt::format("{:>5} {:>5} {:>8} {:>5} {:>5} {:<20} {:<18} {:<5}\n", "layer", "group",
                     "kv heads", "key", "value", "pattern", "codecs", "rows");
  for (std::size_t i = 0; i < layout.layers.size(); ++i) {
    const Layer& layer = layout.layers[i];
    const LayerStore& store = layer.store;
    const std::string codecs =
        layer.owner != static_cast<int>(i)
            ? fmt::format("of layer {}", layer.owner)
            : fmt::format("{}/{}", store.key_codec->name, store.value_codec->name);
    out += fmt::format("{:>5} {:>5} {:>8} {:>5} {:>5} {:<20} {:<18} {:<5}\n", i, layer.group,
                       store.heads, store.key_dim, store.value_dim,
                       pattern_text(layout.groups[static_cast<std::size_t>(layer.group)].pattern),
                       codecs, name_of(store.row_type));
  }
  out += fmt::format("{} sequences with {} tokens, {} open steps\n", stats.sequences, stats.tokens,
                     stats.open_steps);
  out += fmt::format("{} bytes of {}: {} sealed, {} rows, {} tables, {} free\n", stats.bytes,
                     limit_text(stats.bytes_limit), stats.bytes_sealed, stats.bytes_rows,
                     stats.bytes_tables, stats.bytes_free);
  out += fmt::format("{} pages: {} used ({} shared), {} free; {:.2f} bits per value\n",
                     stats.pages_total, stats.pages_used, stats.pages_shared, stats.pages_free,
                     stats.bits_per_value);
  return out;
}

std::string print_json(const CacheCore& cache) {
  using nlohmann::ordered_json;
  const CacheLayout& layout = cache.layout();
  const CacheSpec& spec = layout.spec;
  const Stats stats = count_stats(cache);
  const auto optional = [](const auto& value) {
    return value ? ordered_json(*value) : ordered_json(nullptr);
  };
  ordered_json out;
  out["spec"] = {{"page_tokens", spec.page_tokens},
                 {"exact_head", spec.exact_head},
                 {"exact_tail", spec.exact_tail},
                 {"rollback", spec.rollback},
                 {"seed", spec.seed},
                 {"equal_positions", spec.equal_positions},
                 {"max_tokens", optional(spec.max_tokens)},
                 {"max_sequences", optional(spec.max_sequences)},
                 {"max_batch", optional(spec.max_batch)},
                 {"groups", layout.groups.size()}};
  ordered_json layers = ordered_json::array();
  for (std::size_t i = 0; i < layout.layers.size(); ++i) {
    const Layer& layer = layout.layers[i];
    const LayerStore& store = layer.store;
    layers.push_back(
        {{"layer", i},
         {"group", layer.group},
         {"kv_of", layer.owner},
         {"kv_heads", store.heads},
         {"query_heads", layer.query_heads},
         {"key_dim", store.key_dim},
         {"value_dim", store.value_dim},
         {"mla", store.mla},
         {"pattern", pattern_text(layout.groups[static_cast<std::size_t>(layer.group)].pattern)},
         {"key_codec", store.key_codec->name},
         {"value_codec", store.value_codec->name},
         {"row_type", name_of(store.row_type)},
         {"rotation", rotation_text(layer.rotation)},
         {"scale", layer.math.scale},
         {"soft_cap", layer.math.soft_cap}});
  }
  out["layers"] = std::move(layers);
  ordered_json sequences = ordered_json::array();
  if (cache.data != nullptr) {
    for (const auto& [id, sequence] : cache.data->sequences) {
      const History& history = sequence.history;
      sequences.push_back({{"id", static_cast<std::uint64_t>(id)},
                           {"length", history.length()},
                           {"next_position", history.next_position},
                           {"exact", history.is_exact()},
                           {"cross_length", history.cross_length},
                           {"busy", sequence.step != nullptr}});
    }
  }
  out["sequences"] = std::move(sequences);
  out["stats"] = {{"bytes", stats.bytes},
                  {"bytes_limit", stats.bytes_limit == SIZE_MAX ? ordered_json(nullptr)
                                                                : ordered_json(stats.bytes_limit)},
                  {"bytes_sealed", stats.bytes_sealed},
                  {"bytes_rows", stats.bytes_rows},
                  {"bytes_tables", stats.bytes_tables},
                  {"bytes_free", stats.bytes_free},
                  {"pages_total", stats.pages_total},
                  {"pages_used", stats.pages_used},
                  {"pages_free", stats.pages_free},
                  {"pages_shared", stats.pages_shared},
                  {"open_steps", stats.open_steps},
                  {"tokens", stats.tokens},
                  {"bits_per_value", stats.bits_per_value},
                  {"compression_ratio", stats.compression_ratio}};
  return out.dump(2);
}

}  // namespace quire
