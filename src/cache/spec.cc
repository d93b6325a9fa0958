#include "quire/spec.hpp"

namespace quire {

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

}  // namespace quire
