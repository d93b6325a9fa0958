#include "property/random_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>

namespace quire::test {
namespace {

const std::vector<std::string> kCodecs = {"f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8"};

// Moves keys by a sum, so that the model can follow it bit for bit.
void move_keys(int layer, float* keys, int heads, int dim, std::int64_t from, std::int64_t to) {
  for (int h = 0; h < heads; ++h) {
    keys[h * dim] += 0.125f * static_cast<float>(to - from);
    keys[h * dim + layer % dim] *= -1.0f;
  }
}

Pattern random_pattern(Random& random, bool may_cross) {
  switch (random.number(0, may_cross ? 6 : 5)) {
    case 0:
    case 1:
    case 2:
      return Pattern::causal();
    case 3:
    case 4: {
      const std::int64_t w = random.integer(1, 7);
      return Pattern::window(w, random.one_in(2) ? w : w + random.integer(0, 5));
    }
    case 5:
      return Pattern::chunked(random.integer(1, 9));
    default:
      return Pattern::cross();
  }
}

Rotation random_rotation(Random& random, const LayerSpec& layer) {
  const int kind = random.number(0, 9);
  if (kind == 0) return {};
  if (kind <= 2) return Rotation::none();
  if (kind <= 4) return Rotation::with_function(move_keys);
  Rope rope;
  rope.pairs = random.one_in(2) ? Rope::Pairs::halves : Rope::Pairs::interleaved;
  rope.base = random.one_in(2) ? 10000.0 : 50.0;
  if (random.one_in(4)) rope.frequency_scale = 0.5;
  int room = layer.key_dim;
  if (layer.mla) {
    rope.offset = layer.value_dim;
    room -= layer.value_dim;
  } else if (room > 4 && random.one_in(3)) {
    rope.offset = 2;
    room -= 2;
  }
  if (room < 2) return Rotation::none();
  if (room % 2 != 0 || random.one_in(3)) rope.size = random.number(1, room / 2) * 2;
  if (random.one_in(4)) {
    const int pairs = (rope.size > 0 ? rope.size : room) / 2;
    for (int i = 0; i < pairs; ++i) rope.factors.push_back(1.0 + i);
  }
  return Rotation::with_rope(rope);
}

std::vector<float> random_per_head(Random& random, int heads, float low, float high) {
  std::vector<float> values;
  for (int h = 0; h < heads; ++h) values.push_back(random.real(low, high));
  return values;
}

// What a layer does with logits, and how many query heads bring them.
void randomize_math(Random& random, LayerSpec& layer) {
  const int heads = layer.kv_heads * random.number(1, 2);
  layer.query_heads = random.one_in(2) ? heads : 0;
  layer.scale.reset();
  if (random.one_in(3)) layer.scale = random.real(0.1f, 1.0f);
  layer.soft_cap = random.one_in(4) ? 3.0f : 0.0f;
  layer.slopes.clear();
  layer.sinks.clear();
  if (random.one_in(4)) layer.slopes = random_per_head(random, heads, 0.0f, 0.25f);
  if (random.one_in(4)) layer.sinks = random_per_head(random, heads, -2.0f, 3.0f);
}

LayerSpec random_layer(Random& random, const CacheSpec& before) {
  LayerSpec layer;
  const bool first = before.layers.empty();
  layer.kv_heads = random.number(1, 2);
  layer.key_dim = random.number(2, 4) * 2;
  layer.value_dim = random.number(3, 8);
  layer.pattern = random_pattern(random, !first);
  if (!first && random.one_in(2)) layer.pattern = random.pick(before.layers).pattern;
  layer.codec = {random.pick(kCodecs), random.pick(kCodecs)};
  if (random.one_in(3)) layer.codec = {"f32", "f32"};
  if (random.one_in(8)) layer.row_type = DType::f32;
  layer.mla = random.one_in(7);
  if (layer.mla) {
    layer.kv_heads = 1;
    layer.key_dim = 8;
    layer.value_dim = random.number(2, 4) * 2;
    layer.codec.value = layer.codec.key;
  }
  layer.rotation = random_rotation(random, layer);
  if (!first && random.one_in(6)) {
    int owner = static_cast<int>(random.index(before.layers.size()));
    while (before.layers[static_cast<std::size_t>(owner)].kv_of) --owner;
    layer = before.layers[static_cast<std::size_t>(owner)];
    layer.kv_of = owner;
  }
  randomize_math(random, layer);
  return layer;
}

}  // namespace

CacheSpec random_spec(Random& random) {
  CacheSpec spec;
  const int layers = random.number(1, 3);
  for (int i = 0; i < layers; ++i) spec.layers.push_back(random_layer(random, spec));
  // Half of the caches can move all of their tokens.
  if (random.one_in(2)) {
    for (LayerSpec& layer : spec.layers) {
      if (layer.rotation.kind == Rotation::Kind::unknown) layer.rotation = Rotation::none();
    }
  }
  spec.page_tokens = random.number(1, random.one_in(2) ? 5 : 20);
  spec.exact_head = random.one_in(4) ? random.integer(1, 12) : 0;
  spec.exact_tail = random.one_in(3) ? random.integer(1, 12) : 0;
  spec.rollback = random.pick<std::int64_t>({0, 0, 1, 3, 8});
  spec.equal_positions = random.one_in(10);
  if (random.one_in(6)) spec.max_tokens = random.integer(5, 40);
  if (random.one_in(8)) spec.max_sequences = random.integer(2, 5);
  if (random.one_in(8)) spec.max_batch = random.integer(4, 12);
  return spec;
}

std::vector<CacheSpec> simpler_specs(const CacheSpec& spec) {
  std::vector<CacheSpec> simpler;
  const auto with = [&](const std::function<void(CacheSpec&)>& change) {
    CacheSpec changed = spec;
    change(changed);
    if (describe(changed) != describe(spec)) simpler.push_back(std::move(changed));
  };
  for (std::size_t i = 0; spec.layers.size() > 1 && i < spec.layers.size(); ++i) {
    with([&](CacheSpec& s) {
      s.layers.erase(s.layers.begin() + static_cast<std::ptrdiff_t>(i));
      for (LayerSpec& layer : s.layers) {
        if (layer.kv_of && *layer.kv_of >= static_cast<int>(i)) layer.kv_of.reset();
      }
    });
  }
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    with([&](CacheSpec& s) { s.layers[i].kv_of.reset(); });
    with([&](CacheSpec& s) { s.layers[i].slopes.clear(); });
    with([&](CacheSpec& s) { s.layers[i].sinks.clear(); });
    with([&](CacheSpec& s) { s.layers[i].soft_cap = 0.0f; });
    with([&](CacheSpec& s) { s.layers[i].scale.reset(); });
    with([&](CacheSpec& s) { s.layers[i].row_type.reset(); });
    with([&](CacheSpec& s) { s.layers[i].codec = {"f32", "f32"}; });
    with([&](CacheSpec& s) { s.layers[i].pattern = Pattern::causal(); });
    with([&](CacheSpec& s) { s.layers[i].rotation = Rotation::none(); });
    with([&](CacheSpec& s) { s.layers[i].mla = false; });
    with([&](CacheSpec& s) {
      if (s.layers[i].query_heads == 0) s.layers[i].kv_heads = 1;
    });
  }
  with([](CacheSpec& s) { s.exact_head = 0; });
  with([](CacheSpec& s) { s.exact_tail = 0; });
  with([](CacheSpec& s) { s.rollback = 0; });
  with([](CacheSpec& s) { s.equal_positions = false; });
  with([](CacheSpec& s) { s.max_tokens.reset(); });
  with([](CacheSpec& s) { s.max_sequences.reset(); });
  with([](CacheSpec& s) { s.max_batch.reset(); });
  with([](CacheSpec& s) { s.page_tokens = s.page_tokens > 4 ? 4 : s.page_tokens - 1; });
  std::erase_if(simpler, [](const CacheSpec& s) { return !Cache::create(s).ok(); });
  return simpler;
}

std::string describe(const CacheSpec& spec) {
  std::string text = fmt::format(
      "page_tokens {} exact_head {} exact_tail {} rollback {} equal_positions {}", spec.page_tokens,
      spec.exact_head, spec.exact_tail, spec.rollback, spec.equal_positions);
  if (spec.max_tokens) text += fmt::format(" max_tokens {}", *spec.max_tokens);
  if (spec.max_sequences) text += fmt::format(" max_sequences {}", *spec.max_sequences);
  if (spec.max_batch) text += fmt::format(" max_batch {}", *spec.max_batch);
  static const char* const kPatterns[] = {"causal", "window", "chunked", "cross"};
  static const char* const kRotations[] = {"unknown", "none", "rope", "function"};
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    text += fmt::format("\n  layer {}: {}({},{}) heads {}/{} dims {}/{} codecs {}/{} rotation {}",
                        i, kPatterns[static_cast<int>(layer.pattern.kind)], layer.pattern.size,
                        layer.pattern.memory, layer.query_heads, layer.kv_heads, layer.key_dim,
                        layer.value_dim, layer.codec.key, layer.codec.value,
                        kRotations[static_cast<int>(layer.rotation.kind)]);
    if (layer.rotation.kind == Rotation::Kind::rope) {
      const Rope& rope = layer.rotation.rope;
      text += fmt::format("({} base {} scale {} offset {} size {} factors {})",
                          rope.pairs == Rope::Pairs::halves ? "halves" : "interleaved", rope.base,
                          rope.frequency_scale, rope.offset, rope.size, rope.factors.size());
    }
    if (layer.row_type) text += fmt::format(" rows {}", name_of(*layer.row_type));
    if (layer.mla) text += " mla";
    if (layer.kv_of) text += fmt::format(" kv_of {}", *layer.kv_of);
    if (layer.scale) text += fmt::format(" scale {}", *layer.scale);
    if (layer.soft_cap > 0) text += fmt::format(" soft_cap {}", layer.soft_cap);
    if (!layer.slopes.empty()) text += fmt::format(" slopes {}", layer.slopes);
    if (!layer.sinks.empty()) text += fmt::format(" sinks {}", layer.sinks);
  }
  return text;
}

}  // namespace quire::test
