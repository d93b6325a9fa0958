#include "quire/spec.hpp"

#include <fmt/ranges.h>

#include "base/error.h"
#include "codec/codec.h"

namespace quire {
namespace {

struct Preset {
  const char* name;
  const char* key;
  const char* value;
};

// Keys take more bits than values: an error of a key moves weight between tokens, one of a value is
// averaged out.
constexpr Preset kPresets[] = {
    {"safe", "dual6", "tq5"},
    {"balanced", "dual4", "tq4"},
    {"small", "dual4", "tq3"},
    {"tiny", "dual3", "tq3"},
};

Error unknown_codec(std::string_view text) {
  std::vector<std::string> presets;
  for (const Preset& preset : kPresets) presets.emplace_back(preset.name);
  return fail(ErrorCode::invalid_spec,
              "codec \"{}\" is neither a codec, a pair key/value nor a preset; codecs: {}; "
              "presets: {}",
              text, fmt::join(codec_names(), " "), fmt::join(presets, " "));
}

// What goes with the keys of a codec that encodes keys only.
const char* value_beside(std::string_view key) {
  for (const Preset& preset : kPresets) {
    if (key == preset.key) return preset.value;
  }
  return "tq4";
}

}  // namespace

std::vector<CodecPreset> codec_presets() {
  std::vector<CodecPreset> presets;
  for (const Preset& preset : kPresets) {
    presets.push_back({preset.name, {preset.key, preset.value}});
  }
  return presets;
}

Result<CodecPair> parse_codec(std::string_view text) {
  for (const Preset& preset : kPresets) {
    if (text == preset.name) return CodecPair{preset.key, preset.value};
  }
  const std::size_t slash = text.find('/');
  const std::string_view key = text.substr(0, slash);
  const std::string_view value = slash == text.npos ? key : text.substr(slash + 1);
  const Codec* value_codec = find_codec(value);
  if (find_codec(key) == nullptr || value_codec == nullptr) return unknown_codec(text);
  if (!value_codec->encodes_values) {
    return fail(ErrorCode::invalid_spec, "codec \"{}\": {} encodes keys only; write {}/{}", text,
                value, key, value_beside(value));
  }
  return CodecPair{std::string(key), std::string(value)};
}

CacheSpec CacheSpec::uniform(const UniformSpec& uniform) {
  LayerSpec layer;
  layer.kv_heads = uniform.kv_heads;
  layer.key_dim = uniform.head_dim;
  layer.value_dim = uniform.head_dim;
  layer.query_heads = uniform.query_heads;
  layer.codec = uniform.codec;
  layer.pattern = uniform.pattern;
  layer.rotation = uniform.rotation;
  CacheSpec spec;
  spec.layers.assign(uniform.layers > 0 ? static_cast<std::size_t>(uniform.layers) : 0, layer);
  return spec;
}

CacheSpec CacheSpec::mha(int layers, int heads, int head_dim) {
  return gqa(layers, heads, heads, head_dim);
}

CacheSpec CacheSpec::gqa(int layers, int query_heads, int kv_heads, int head_dim) {
  return uniform(
      {.layers = layers, .kv_heads = kv_heads, .head_dim = head_dim, .query_heads = query_heads});
}

CacheSpec CacheSpec::mqa(int layers, int query_heads, int head_dim) {
  return gqa(layers, query_heads, 1, head_dim);
}

CacheSpec CacheSpec::mla(int layers, int query_heads, int latent_dim, int rope_dim) {
  CacheSpec spec = gqa(layers, query_heads, 1, latent_dim);
  for (LayerSpec& layer : spec.layers) {
    layer.key_dim = latent_dim + rope_dim;
    layer.mla = true;
    if (rope_dim > 0) {
      Rope rope;
      rope.pairs = Rope::Pairs::interleaved;
      rope.offset = latent_dim;
      rope.size = rope_dim;
      layer.rotation = Rotation::with_rope(rope);
    }
  }
  return spec;
}

CacheSpec& CacheSpec::set_codec(const std::string& key, const std::string& value) {
  for (LayerSpec& layer : layers) layer.codec = {key, layer.mla ? key : value};
  return *this;
}

Result<void> CacheSpec::set_codec(std::string_view text) {
  QUIRE_TRY(const CodecPair codec, parse_codec(text));
  set_codec(codec.key, codec.value);
  return {};
}

}  // namespace quire
