// Caches: making, reading back, limits; and what begins a step.
#include <unordered_set>

#include "capi/convert.h"
#include "capi/guard.h"
#include "capi/handle.h"
#include "capi/spec.h"

using namespace quire;
using namespace quire::capi;

quire_status quire_cache_create(const quire_cache_spec* spec, quire_cache** cache) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("create", "cache", cache));
    *cache = nullptr;
    QUIRE_TRY(HostedSpec hosted, to_spec(spec));
    Hosts hosts;
    if (hosted.host != nullptr) hosts.push_back(hosted.host);
    QUIRE_TRY(Cache made, Cache::create(hosted.spec));
    *cache = new quire_cache(std::move(hosts), std::move(made));
    return {};
  });
}

void quire_cache_free(quire_cache* cache) {
  if (cache == nullptr) return;
  cache->cache.close();
  delete cache;
}

quire_status quire_cache_close(quire_cache* cache) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("close", "cache", cache));
    cache->cache.close();
    return {};
  });
}

quire_status quire_cache_read_spec(const quire_cache* cache, quire_cache_spec* spec) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("read_spec", "cache", cache));
    QUIRE_CHECK(require_stamped("read_spec", "spec", spec));
    write_stamped(spec, from_spec(cache->cache.spec(), cache->hosts()));
    return {};
  });
}

quire_status quire_cache_read_layer_spec(const quire_cache* cache, int layer,
                                         quire_layer_spec* spec) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("read_layer_spec", "cache", cache));
    QUIRE_CHECK(require_stamped("read_layer_spec", "spec", spec));
    const std::vector<LayerSpec>& layers = cache->cache.spec().layers;
    if (layer < 0 || static_cast<std::size_t>(layer) >= layers.size()) {
      return fail(ErrorCode::out_of_range, "read_layer_spec: layer {}, the cache has {}", layer,
                  layers.size());
    }
    write_stamped(spec, from_layer(layers[static_cast<std::size_t>(layer)]));
    return {};
  });
}

quire_status quire_cache_layer_info(const quire_cache* cache, int layer, quire_layer_info* info) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("layer_info", "cache", cache));
    QUIRE_CHECK(require_stamped("layer_info", "info", info));
    QUIRE_TRY(const LayerInfo found, cache->cache.layer_info(layer));
    quire_layer_info out = QUIRE_LAYER_INFO_INIT;
    out.group = found.group;
    out.row_type = static_cast<int>(found.row_type);
    out.pattern = from_pattern(found.pattern);
    copy_name(out.key_codec, found.codec.key);
    copy_name(out.value_codec, found.codec.value);
    out.scale = found.scale;
    out.kv_of = found.kv_of;
    out.row_bytes_per_token = found.row_bytes_per_token;
    out.sealed_bytes_per_page = found.sealed_bytes_per_page;
    write_stamped(info, out);
    return {};
  });
}

quire_status quire_cache_stats(const quire_cache* cache, quire_stats* stats) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("stats", "cache", cache));
    QUIRE_CHECK(require_stamped("stats", "stats", stats));
    const Stats found = cache->cache.stats();
    quire_stats out = QUIRE_STATS_INIT;
    out.bytes = found.bytes;
    out.bytes_limit = found.bytes_limit;
    out.bytes_sealed = found.bytes_sealed;
    out.bytes_rows = found.bytes_rows;
    out.bytes_tables = found.bytes_tables;
    out.bytes_free = found.bytes_free;
    out.pages_total = found.pages_total;
    out.pages_used = found.pages_used;
    out.pages_free = found.pages_free;
    out.pages_shared = found.pages_shared;
    out.sequences = found.sequences;
    out.open_steps = found.open_steps;
    out.tokens = found.tokens;
    out.bits_per_value = found.bits_per_value;
    out.compression_ratio = found.compression_ratio;
    write_stamped(stats, out);
    return {};
  });
}

quire_status quire_cache_text(const quire_cache* cache, char* buffer, size_t buffer_bytes,
                              size_t* bytes) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("text", "cache", cache));
    return fill_text("text", buffer, buffer_bytes, cache->cache.text(), bytes);
  });
}

quire_status quire_cache_json(const quire_cache* cache, char* buffer, size_t buffer_bytes,
                              size_t* bytes) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("json", "cache", cache));
    return fill_text("json", buffer, buffer_bytes, cache->cache.json(), bytes);
  });
}

quire_status quire_cache_sequences(const quire_cache* cache, quire_sequence_id* ids,
                                   int64_t capacity, int64_t* count) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("sequences", "cache", cache));
    const std::vector<SequenceId> found = cache->cache.sequences();
    return fill("sequences", "ids", ids, capacity, static_cast<int64_t>(found.size()), count,
                [&](std::size_t i) { return from_id(found[i]); });
  });
}

quire_status quire_cache_clear(quire_cache* cache) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("clear", "cache", cache));
    return cache->cache.clear();
  });
}

quire_status quire_cache_clone(const quire_cache* cache, quire_cache** clone) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("clone", "clone", clone));
    *clone = nullptr;
    QUIRE_CHECK(require("clone", "cache", cache));
    QUIRE_TRY(Cache made, cache->cache.clone());
    *clone = new quire_cache(cache->hosts(), std::move(made));
    return {};
  });
}

quire_status quire_cache_assign(quire_cache* cache, const quire_cache* other) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("assign", "cache", cache));
    QUIRE_CHECK(require("assign", "other", other));
    cache->add_hosts(other->hosts());
    return cache->cache.assign(other->cache);
  });
}

quire_status quire_cache_compact(quire_cache* cache, int64_t* pages) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("compact", "cache", cache));
    QUIRE_TRY(const int64_t given_back, cache->cache.compact());
    if (pages != nullptr) *pages = given_back;
    return {};
  });
}

quire_status quire_cache_enforce_memory_limit(quire_cache* cache, size_t bytes, int* trimmed) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("enforce_memory_limit", "cache", cache));
    QUIRE_TRY(const bool cut, cache->cache.enforce_memory_limit(bytes));
    if (trimmed != nullptr) *trimmed = cut ? 1 : 0;
    return {};
  });
}

quire_status quire_cache_resize(quire_cache* cache, size_t bytes, int* trimmed) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("resize", "cache", cache));
    QUIRE_TRY(const bool cut, cache->cache.resize(bytes));
    if (trimmed != nullptr) *trimmed = cut ? 1 : 0;
    return {};
  });
}

quire_status quire_cache_shrink(quire_cache* cache, size_t* bytes) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("shrink", "cache", cache));
    const std::size_t given_back = cache->cache.shrink();
    if (bytes != nullptr) *bytes = given_back;
    return {};
  });
}

quire_status quire_cache_plan(const quire_cache* cache, const quire_batch* batch,
                              quire_plan* plan) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("plan", "cache", cache));
    QUIRE_CHECK(require_stamped("plan", "plan", plan));
    QUIRE_TRY(const Batch tokens, to_batch("plan", batch));
    QUIRE_TRY(const Plan found, cache->cache.plan(tokens));
    quire_plan out = QUIRE_PLAN_INIT;
    out.pages = found.pages;
    out.bytes_rows = found.bytes_rows;
    out.bytes_sealed = found.bytes_sealed;
    out.bytes = found.bytes;
    out.gather_bytes = found.gather_bytes;
    out.mask_bytes = found.mask_bytes;
    write_stamped(plan, out);
    return {};
  });
}

quire_status quire_cache_reserve(quire_cache* cache, const quire_batch_size* size) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("reserve", "cache", cache));
    const quire_batch_size defaults = QUIRE_BATCH_SIZE_INIT;
    QUIRE_TRY(const quire_batch_size known, read_stamped("reserve", "size", size, defaults));
    return cache->cache.reserve(
        {known.sequences, known.tokens, known.cross_entries, known.cross_tokens});
  });
}

quire_status quire_cache_begin(quire_cache* cache, const quire_batch* batch, quire_step** step) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("begin", "step", step));
    *step = nullptr;
    QUIRE_CHECK(require("begin", "cache", cache));
    QUIRE_TRY(const Batch tokens, to_batch("begin", batch));
    std::unordered_set<quire_sequence_id> sequences;
    for (const Token& token : tokens.tokens) sequences.insert(from_id(token.sequence));
    auto handle = std::make_unique<quire_step>();
    handle->sequences = static_cast<int64_t>(sequences.size());
    QUIRE_TRY(handle->step, cache->cache.begin(tokens));
    handle->hosts = cache->hosts();
    *step = handle.release();
    return {};
  });
}
