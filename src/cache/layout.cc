#include "cache/layout.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "base/thread_pool.h"

namespace quire {
namespace {

constexpr int kMaxHeads = 65536;
constexpr int kMaxDim = 65536;
constexpr std::int64_t kMaxChannels = std::int64_t{1} << 24;  // of all heads of a row

template <typename... Args>
Error wrong(fmt::format_string<Args...> text, Args&&... args) {
  return {ErrorCode::invalid_spec, "spec: " + fmt::format(text, std::forward<Args>(args)...)};
}

std::string names_of_codecs(bool (*which)(const Codec& codec)) {
  std::vector<const char*> names;
  for (const Codec* codec : all_codecs()) {
    if (which(*codec)) names.push_back(codec->name);
  }
  return fmt::format("{}", fmt::join(names, " "));
}

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

Result<void> check_rope(int index, const LayerSpec& layer) {
  const Rope& rope = layer.rotation.rope;
  if (rope.offset < 0 || rope.offset >= layer.key_dim || rope.size < 0 ||
      rope.size > layer.key_dim - rope.offset) {
    return wrong("layer {}: {} rotary channels from {} on do not lie in a key of {}", index,
                 rope.size, rope.offset, layer.key_dim);
  }
  const int size = rope.size == 0 ? layer.key_dim - rope.offset : rope.size;
  if (size % 2 != 0) return wrong("layer {}: rotary size {} is odd", index, size);
  if (layer.mla && rope.offset < layer.value_dim) {
    return wrong("layer {}: rotary channels from {} on lie in an MLA latent of {}", index,
                 rope.offset, layer.value_dim);
  }
  if (!(rope.base > 0) || !std::isfinite(rope.base)) {
    return wrong("layer {}: rotary base {} is not positive", index, rope.base);
  }
  if (!(rope.frequency_scale > 0) || !std::isfinite(rope.frequency_scale)) {
    return wrong("layer {}: rotary frequency_scale {} is not positive", index,
                 rope.frequency_scale);
  }
  if (!rope.factors.empty() && rope.factors.size() != static_cast<std::size_t>(size / 2)) {
    return wrong("layer {}: {} rotary factors for {} pairs", index, rope.factors.size(), size / 2);
  }
  for (std::size_t i = 0; i < rope.factors.size(); ++i) {
    if (!(rope.factors[i] > 0) || !std::isfinite(rope.factors[i])) {
      return wrong("layer {}: rotary factor {} is {}, not positive", index, i, rope.factors[i]);
    }
  }
  return {};
}

Result<void> check_pattern(int index, const Pattern& pattern) {
  switch (pattern.kind) {
    case Pattern::Kind::causal:
    case Pattern::Kind::cross:
      if (pattern.size != 0 || pattern.memory != 0) {
        return wrong("layer {}: this pattern takes no size, {} and {} given", index, pattern.size,
                     pattern.memory);
      }
      return {};
    case Pattern::Kind::window:
      if (pattern.size < 1 || pattern.size > kMaxPosition) {
        return wrong("layer {}: a window of {} tokens", index, pattern.size);
      }
      if (pattern.memory < pattern.size || pattern.memory > kMaxPosition) {
        return wrong("layer {}: a window of {} tokens cannot keep {}", index, pattern.size,
                     pattern.memory);
      }
      return {};
    case Pattern::Kind::chunked:
      if (pattern.size < 1 || pattern.size > kMaxPosition || pattern.memory != 0) {
        return wrong("layer {}: chunks of {} tokens", index, pattern.size);
      }
      return {};
  }
  return wrong("layer {}: unknown pattern {}", index, static_cast<int>(pattern.kind));
}

// The size nearest to the tile's that a codec takes, the larger of two; 0 where there is none.
int nearest_size(const Codec& codec, TileShape tile) {
  const int dim = tile.dim;
  for (int distance = 1; distance < kMaxDim; ++distance) {
    for (const int size : {dim + distance, dim - distance}) {
      tile.dim = size;
      if (size >= 1 && size <= kMaxDim && codec.takes(tile)) return size;
    }
  }
  return 0;
}

// The codec of one side of a layer.
Result<const Codec*> check_codec(int index, const LayerSpec& layer, int page_tokens, Side side) {
  const bool is_key = side == Side::key;
  const std::string& name = is_key ? layer.codec.key : layer.codec.value;
  const Codec* codec = find_codec(name);
  if (codec == nullptr) {
    return wrong("layer {}: unknown {} codec \"{}\"; there are: {}", index,
                 is_key ? "key" : "value", name,
                 names_of_codecs([](const Codec&) { return true; }));
  }
  if (layer.mla) {
    if (!codec->encodes_latents) {
      return wrong("layer {}: {} does not encode the latent of an MLA layer; these do: {}", index,
                   name, names_of_codecs([](const Codec& c) { return c.encodes_latents; }));
    }
    return codec;
  }
  if (!is_key && !codec->encodes_values) {
    return wrong("layer {}: {}", index,
                 parse_codec(layer.codec.key + '/' + name).error().text);  // the pair to write
  }
  const TileShape tile{side, page_tokens, is_key ? layer.key_dim : layer.value_dim};
  if (codec->takes != nullptr && !codec->takes(tile)) {
    return wrong("layer {}: {} takes no {} of {} channels; the nearest size it takes is {}", index,
                 name, is_key ? "keys" : "values", tile.dim, nearest_size(*codec, tile));
  }
  return codec;
}

bool is_float(const Codec& codec, DType dtype) { return codec.lossless == dtype; }

// The row type of a layer: its codecs' own where they are floats, f16 otherwise.
DType default_row_type(const Codec& key, const Codec& value) {
  const auto has = [&](DType dtype) { return is_float(key, dtype) || is_float(value, dtype); };
  if (has(DType::f32) || (has(DType::f16) && has(DType::bf16))) return DType::f32;
  return has(DType::bf16) ? DType::bf16 : DType::f16;
}

Result<void> check_row_type(int index, DType row, const Codec& key, const Codec& value) {
  if (row != DType::f32 && row != DType::f16 && row != DType::bf16) {
    return wrong("layer {}: unknown row type {}", index, static_cast<int>(row));
  }
  for (const Codec* codec : {&key, &value}) {
    if (codec->lossless && *codec->lossless != row && row != DType::f32) {
      return wrong("layer {}: {} rows are narrower than its codec {}", index, name_of(row),
                   codec->name);
    }
  }
  return {};
}

Result<void> check_numbers(int index, const LayerSpec& layer) {
  if (layer.kv_heads < 1 || layer.kv_heads > kMaxHeads) {
    return wrong("layer {}: {} kv heads", index, layer.kv_heads);
  }
  if (layer.key_dim < 1 || layer.key_dim > kMaxDim) {
    return wrong("layer {}: key size {}", index, layer.key_dim);
  }
  if (layer.value_dim < 1 || layer.value_dim > kMaxDim) {
    return wrong("layer {}: value size {}", index, layer.value_dim);
  }
  const std::int64_t widest = std::max(layer.key_dim, layer.value_dim);
  if (layer.kv_heads * widest > kMaxChannels) {
    return wrong("layer {}: {} kv heads of {} channels; a row has at most {}", index,
                 layer.kv_heads, widest, kMaxChannels);
  }
  if (layer.query_heads < 0 || layer.query_heads % layer.kv_heads != 0) {
    return wrong("layer {}: {} query heads are no multiple of {} kv heads", index,
                 layer.query_heads, layer.kv_heads);
  }
  if (layer.scale && !std::isfinite(*layer.scale)) {
    return wrong("layer {}: scale {} is not finite", index, *layer.scale);
  }
  if (!std::isfinite(layer.soft_cap) || layer.soft_cap < 0) {
    return wrong("layer {}: soft cap {}", index, layer.soft_cap);
  }
  const auto heads_of = [&](const char* what, const std::vector<float>& values) -> Result<void> {
    if (values.empty()) return {};
    if (values.size() % static_cast<std::size_t>(layer.kv_heads) != 0 ||
        (layer.query_heads > 0 && values.size() != static_cast<std::size_t>(layer.query_heads))) {
      return wrong("layer {}: {} {} for {} query heads", index, values.size(), what,
                   layer.query_heads > 0 ? layer.query_heads : layer.kv_heads);
    }
    if (!all_finite(values)) return wrong("layer {}: a value of {} is not finite", index, what);
    return {};
  };
  QUIRE_CHECK(heads_of("slopes", layer.slopes));
  QUIRE_CHECK(heads_of("sinks", layer.sinks));
  if (!layer.slopes.empty() && !layer.sinks.empty() && layer.slopes.size() != layer.sinks.size()) {
    return wrong("layer {}: {} slopes and {} sinks", index, layer.slopes.size(),
                 layer.sinks.size());
  }
  if (layer.mla) {
    if (layer.kv_heads != 1) return wrong("layer {}: MLA with {} kv heads", index, layer.kv_heads);
    if (layer.value_dim > layer.key_dim) {
      return wrong("layer {}: an MLA latent of {} in a key of {}", index, layer.value_dim,
                   layer.key_dim);
    }
    if (layer.codec.key != layer.codec.value) {
      return wrong("layer {}: MLA stores one latent with one codec, not {} and {}", index,
                   layer.codec.key, layer.codec.value);
    }
  }
  return {};
}

Result<void> check_rotation(int index, const LayerSpec& layer) {
  switch (layer.rotation.kind) {
    case Rotation::Kind::unknown:
    case Rotation::Kind::none:
      return {};
    case Rotation::Kind::rope:
      return check_rope(index, layer);
    case Rotation::Kind::function:
      if (!layer.rotation.function) return wrong("layer {}: rotation without a function", index);
      return {};
  }
  return wrong("layer {}: unknown rotation {}", index, static_cast<int>(layer.rotation.kind));
}

Result<void> check_shared_store(int index, const CacheSpec& spec) {
  const LayerSpec& layer = spec.layers[static_cast<std::size_t>(index)];
  const int owner = *layer.kv_of;
  if (owner < 0 || owner >= index) {
    return wrong("layer {}: reads layer {}, which must be an earlier one", index, owner);
  }
  const LayerSpec& source = spec.layers[static_cast<std::size_t>(owner)];
  if (source.kv_of) {
    return wrong("layer {}: reads layer {}, which itself reads layer {}", index, owner,
                 *source.kv_of);
  }
  if (layer.kv_heads != source.kv_heads || layer.key_dim != source.key_dim ||
      layer.value_dim != source.value_dim || layer.mla != source.mla) {
    return wrong("layer {}: {} kv heads of {} and {} do not match layer {}: {} of {} and {}", index,
                 layer.kv_heads, layer.key_dim, layer.value_dim, owner, source.kv_heads,
                 source.key_dim, source.value_dim);
  }
  if (!(layer.pattern == source.pattern)) {
    return wrong("layer {}: another pattern than layer {}, which it reads", index, owner);
  }
  if (layer.rotation.kind != source.rotation.kind ||
      !(layer.rotation.rope == source.rotation.rope)) {
    return wrong("layer {}: another rotation than layer {}, which it reads", index, owner);
  }
  return {};
}

Result<void> check_limits(const CacheSpec& spec) {
  if (spec.layers.empty()) return wrong("no layers");
  if (spec.page_tokens < 1 || spec.page_tokens > 256) {
    return wrong("page_tokens {} is not in [1, 256]", spec.page_tokens);
  }
  const auto count = [](const char* what, std::int64_t value) -> Result<void> {
    if (value < 0 || value > kMaxPosition) return wrong("{} {}", what, value);
    return {};
  };
  QUIRE_CHECK(count("exact_head", spec.exact_head));
  QUIRE_CHECK(count("exact_tail", spec.exact_tail));
  QUIRE_CHECK(count("rollback", spec.rollback));
  const auto limit = [](const char* what,
                        const std::optional<std::int64_t>& value) -> Result<void> {
    if (value && *value < 1) return wrong("{} {}", what, *value);
    return {};
  };
  QUIRE_CHECK(limit("max_tokens", spec.max_tokens));
  QUIRE_CHECK(limit("max_sequences", spec.max_sequences));
  QUIRE_CHECK(limit("max_batch", spec.max_batch));
  if (spec.threads < 0 || spec.threads > kMaxThreads) return wrong("threads {}", spec.threads);
  return {};
}

int group_of(CacheLayout& layout, const Pattern& pattern) {
  for (std::size_t g = 0; g < layout.groups.size(); ++g) {
    if (layout.groups[g].pattern == pattern) return static_cast<int>(g);
  }
  layout.groups.emplace_back().pattern = pattern;
  return static_cast<int>(layout.groups.size() - 1);
}

Result<void> add_layer(CacheLayout& layout, int index) {
  const LayerSpec& spec = layout.spec.layers[static_cast<std::size_t>(index)];
  QUIRE_CHECK(check_numbers(index, spec));
  QUIRE_CHECK(check_pattern(index, spec.pattern));
  QUIRE_CHECK(check_rotation(index, spec));
  Layer& layer = layout.layers[static_cast<std::size_t>(index)];
  layer.owner = index;
  layer.group = group_of(layout, spec.pattern);
  layer.query_heads = spec.query_heads > 0
                          ? spec.query_heads
                          : static_cast<int>(std::max(spec.slopes.size(), spec.sinks.size()));
  layer.slopes = spec.slopes;
  layer.sinks = spec.sinks;
  layer.rotation = spec.rotation.kind;
  layer.math.scale = spec.scale.value_or(1.0f / std::sqrt(static_cast<float>(spec.key_dim)));
  layer.math.soft_cap = spec.soft_cap;
  layer.math.slopes = layer.slopes;
  if (spec.rotation.kind == Rotation::Kind::rope) {
    layer.rope = RopeTurner(spec.rotation.rope, spec.key_dim);
    layer.math.rope = &layer.rope;
  }
  Group& group = layout.groups[static_cast<std::size_t>(layer.group)];
  if (spec.kv_of) {
    QUIRE_CHECK(check_shared_store(index, layout.spec));
    layer.owner = *spec.kv_of;
    layer.store = layout.layers[static_cast<std::size_t>(layer.owner)].store;
    return {};
  }
  const int page_tokens = layout.spec.page_tokens;
  QUIRE_TRY(const Codec* key, check_codec(index, spec, page_tokens, Side::key));
  QUIRE_TRY(const Codec* value, check_codec(index, spec, page_tokens, Side::value));
  const DType row = spec.row_type.value_or(default_row_type(*key, *value));
  QUIRE_CHECK(check_row_type(index, row, *key, *value));
  layer.store.index = index;
  layer.store.heads = spec.kv_heads;
  layer.store.key_dim = spec.key_dim;
  layer.store.value_dim = spec.value_dim;
  layer.store.mla = spec.mla;
  layer.store.page_tokens = page_tokens;
  layer.store.row_type = row;
  layer.store.key_codec = key;
  layer.store.value_codec = value;
  layer.store.seed = layout.spec.seed;
  place(layer.store, group.rows_bytes, group.sealed_bytes);
  group.owners.push_back(index);
  group.lossless = group.lossless && layer.store.lossless();
  group.movable = group.movable && spec.rotation.kind != Rotation::Kind::unknown;
  group.by_function = group.by_function || spec.rotation.kind == Rotation::Kind::function;
  group.copies_slots =
      group.copies_slots && key->copy_slot != nullptr && value->copy_slot != nullptr;
  return {};
}

}  // namespace

Result<const Layer*> layer_at(const CacheLayout& layout, int index, const char* operation) {
  if (index < 0 || index >= static_cast<int>(layout.layers.size())) {
    return fail(ErrorCode::out_of_range, "{}: layer {} of {}", operation, index,
                layout.layers.size());
  }
  return &layout.layers[static_cast<std::size_t>(index)];
}

Result<std::unique_ptr<const CacheLayout>> make_layout(const CacheSpec& spec) {
  auto layout = std::make_unique<CacheLayout>();
  layout->spec = spec;
  QUIRE_CHECK(check_limits(spec));
  const std::int64_t page = spec.page_tokens;
  layout->head_end = (spec.exact_head + page - 1) / page * page;
  layout->layers.resize(spec.layers.size());  // never resized again: math points into the layers
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    QUIRE_CHECK(add_layer(*layout, static_cast<int>(i)));
  }
  for (std::size_t g = 0; g < layout->groups.size(); ++g) {
    if (layout->groups[g].pattern.kind == Pattern::Kind::cross) {
      layout->cross_group = static_cast<int>(g);
    }
  }
  if (layout->groups.size() == 1 && layout->cross_group == 0) {
    return wrong("all {} layers are cross layers: none stores tokens", spec.layers.size());
  }
  return std::unique_ptr<const CacheLayout>(std::move(layout));
}

}  // namespace quire
