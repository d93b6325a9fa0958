#include "capi/spec.h"

#include <initializer_list>

#include "capi/convert.h"
#include "capi/guard.h"

namespace quire::capi {
namespace {

static_assert(QUIRE_CAUSAL == static_cast<int>(Pattern::Kind::causal));
static_assert(QUIRE_WINDOW == static_cast<int>(Pattern::Kind::window));
static_assert(QUIRE_CHUNKED == static_cast<int>(Pattern::Kind::chunked));
static_assert(QUIRE_CROSS == static_cast<int>(Pattern::Kind::cross));
static_assert(QUIRE_HALVES == static_cast<int>(Rope::Pairs::halves));
static_assert(QUIRE_INTERLEAVED == static_cast<int>(Rope::Pairs::interleaved));
static_assert(QUIRE_ROTATION_UNKNOWN == static_cast<int>(Rotation::Kind::unknown));
static_assert(QUIRE_ROTATION_NONE == static_cast<int>(Rotation::Kind::none));
static_assert(QUIRE_ROTATION_ROPE == static_cast<int>(Rotation::Kind::rope));
static_assert(QUIRE_ROTATION_FUNCTION == static_cast<int>(Rotation::Kind::function));

constexpr const char* kCreate = "create";

// A spec of more layers than this is a count gone wrong.
constexpr std::int64_t kMaxLayers = std::int64_t{1} << 20;

// A caller's rotation; a named type, so that from_layer finds it again in the std::function.
struct RotateCall {
  quire_rotate_function function;
  void* context;
  void operator()(int layer, float* keys, int heads, int dim, std::int64_t from_position,
                  std::int64_t to_position) const {
    function(context, layer, keys, heads, dim, from_position, to_position);
  }
};

Result<void> check_number(std::int64_t layer, const char* name, int number, int last) {
  if (number >= 0 && number <= last) return {};
  return fail(ErrorCode::invalid_argument, "create: layer {}: {} is {}, from 0 to {} is known",
              layer, name, number, last);
}

template <typename T>
Result<std::vector<T>> to_vector(const char* name, const T* data, std::int64_t count) {
  QUIRE_CHECK(require_array(kCreate, name, data, count, kMaxItems));
  if (count == 0) return std::vector<T>{};
  return std::vector<T>(data, data + count);
}

Result<LayerSpec> to_layer(std::int64_t index, const quire_layer_spec& given) {
  LayerSpec layer;
  layer.kv_heads = given.kv_heads;
  layer.key_dim = given.key_dim;
  layer.value_dim = given.value_dim;
  layer.query_heads = given.query_heads;

  QUIRE_CHECK(check_number(index, "pattern.kind", given.pattern.kind, QUIRE_CROSS));
  layer.pattern.kind = static_cast<Pattern::Kind>(given.pattern.kind);
  layer.pattern.size = given.pattern.size;
  const bool keeps_window = given.pattern.kind == QUIRE_WINDOW && given.pattern.memory == 0;
  layer.pattern.memory = keeps_window ? given.pattern.size : given.pattern.memory;

  if (given.key_codec != nullptr) layer.codec.key = given.key_codec;
  if (given.value_codec != nullptr) layer.codec.value = given.value_codec;
  if (given.value_codec == nullptr && given.mla != 0) layer.codec.value = layer.codec.key;
  if (given.row_type != QUIRE_ROW_TYPE_DEFAULT) {
    QUIRE_CHECK(check_number(index, "row_type", given.row_type, QUIRE_BF16));
    layer.row_type = static_cast<DType>(given.row_type);
  }

  QUIRE_CHECK(check_number(index, "rotation", given.rotation, QUIRE_ROTATION_FUNCTION));
  QUIRE_CHECK(check_number(index, "rope.pairs", given.rope.pairs, QUIRE_INTERLEAVED));
  layer.rotation.kind = static_cast<Rotation::Kind>(given.rotation);
  layer.rotation.rope.pairs = static_cast<Rope::Pairs>(given.rope.pairs);
  layer.rotation.rope.base = given.rope.base;
  layer.rotation.rope.frequency_scale = given.rope.frequency_scale;
  QUIRE_TRY(layer.rotation.rope.factors,
            to_vector("rope.factors", given.rope.factors, given.rope.factor_count));
  layer.rotation.rope.offset = given.rope.offset;
  layer.rotation.rope.size = given.rope.size;
  if (given.rotate != nullptr) {
    layer.rotation.function = RotateCall{given.rotate, given.rotate_context};
  }

  if (given.has_scale != 0) layer.scale = given.scale;
  layer.soft_cap = given.soft_cap;
  QUIRE_TRY(layer.slopes, to_vector("slopes", given.slopes, given.slope_count));
  QUIRE_TRY(layer.sinks, to_vector("sinks", given.sinks, given.sink_count));
  layer.mla = given.mla != 0;
  if (given.kv_of != QUIRE_OWN_STORE) layer.kv_of = given.kv_of;
  return layer;
}

Result<std::vector<LayerSpec>> to_layers(const quire_cache_spec& spec) {
  QUIRE_CHECK(require_array(kCreate, "layers", spec.layers, spec.layer_count));
  if (spec.layer_count > kMaxLayers || spec.repeat < 1 || spec.repeat > kMaxLayers ||
      spec.layer_count * spec.repeat > kMaxLayers) {
    return fail(ErrorCode::invalid_argument,
                "create: layer_count {}, repeat {}: up to {} layers in all are possible",
                spec.layer_count, spec.repeat, kMaxLayers);
  }
  std::vector<LayerSpec> layers;
  if (spec.layer_count == 0) return layers;

  const quire_layer_spec defaults = QUIRE_LAYER_SPEC_INIT;
  const std::size_t stride = spec.layers->struct_size;
  QUIRE_CHECK(check_stamp<quire_layer_spec>(kCreate, "layers[0]", stride));
  const auto* bytes = reinterpret_cast<const char*>(spec.layers);
  layers.reserve(static_cast<std::size_t>(spec.layer_count * spec.repeat));
  for (std::int64_t i = 0; i < spec.layer_count; ++i) {
    const auto* given =
        reinterpret_cast<const quire_layer_spec*>(bytes + static_cast<std::size_t>(i) * stride);
    if (given->struct_size != stride) {
      return fail(ErrorCode::invalid_argument,
                  "create: layers[{}] has struct_size {}, that of layers[0] is {}", i,
                  given->struct_size, stride);
    }
    QUIRE_TRY(const quire_layer_spec known, read_stamped(kCreate, "layer", given, defaults));
    QUIRE_TRY(LayerSpec layer, to_layer(i, known));
    layers.push_back(std::move(layer));
  }
  const std::size_t once = layers.size();
  for (std::int64_t r = 1; r < spec.repeat; ++r) {
    for (std::size_t i = 0; i < once; ++i) layers.push_back(layers[i]);
  }
  return layers;
}

Result<std::shared_ptr<const Host>> to_host(const quire_cache_spec& spec) {
  if (spec.executor == nullptr && spec.memory == nullptr) return std::shared_ptr<const Host>();
  auto host = std::make_shared<Host>();
  if (spec.executor != nullptr) {
    const quire_executor defaults = QUIRE_EXECUTOR_INIT;
    QUIRE_TRY(host->executor_struct, read_stamped(kCreate, "executor", spec.executor, defaults));
    if (host->executor_struct.run == nullptr) {
      return fail(ErrorCode::invalid_argument, "create: executor.run is a null pointer");
    }
    host->executor = std::make_unique<HostExecutor>(host->executor_struct);
  }
  if (spec.memory != nullptr) {
    const quire_memory_source defaults = QUIRE_MEMORY_SOURCE_INIT;
    QUIRE_TRY(host->memory_struct, read_stamped(kCreate, "memory", spec.memory, defaults));
    if (host->memory_struct.allocate == nullptr || host->memory_struct.release == nullptr) {
      return fail(ErrorCode::invalid_argument,
                  "create: memory.allocate or memory.release is a null pointer");
    }
    host->memory = std::make_unique<HostMemory>(host->memory_struct);
  }
  return std::shared_ptr<const Host>(std::move(host));
}

// What a caller's executor is given to call.
void run_task(void* context, std::size_t index) {
  (*static_cast<const std::function<void(std::size_t)>*>(context))(index);
}

}  // namespace

void HostExecutor::run(std::size_t count, const std::function<void(std::size_t)>& task) {
  // The caller's code only hands the pointer on; run_task uses it as const again.
  executor_.run(executor_.context, count, run_task,
                const_cast<std::function<void(std::size_t)>*>(&task));
}

void* HostMemory::allocate(std::size_t bytes) noexcept {
  return memory_.allocate(memory_.context, bytes);
}

void HostMemory::release(void* data, std::size_t bytes) noexcept {
  memory_.release(memory_.context, data, bytes);
}

Result<HostedSpec> to_spec(const quire_cache_spec* spec) {
  const quire_cache_spec defaults = QUIRE_CACHE_SPEC_INIT;
  QUIRE_TRY(const quire_cache_spec given, read_stamped(kCreate, "spec", spec, defaults));
  HostedSpec out;
  QUIRE_TRY(out.spec.layers, to_layers(given));
  QUIRE_TRY(out.host, to_host(given));
  out.spec.page_tokens = given.page_tokens;
  out.spec.exact_head = given.exact_head;
  out.spec.exact_tail = given.exact_tail;
  out.spec.rollback = given.rollback;
  out.spec.equal_positions = given.equal_positions != 0;
  if (given.max_tokens != 0) out.spec.max_tokens = given.max_tokens;
  if (given.max_sequences != 0) out.spec.max_sequences = given.max_sequences;
  if (given.max_batch != 0) out.spec.max_batch = given.max_batch;
  if (given.memory_limit_bytes != 0) out.spec.memory_limit_bytes = given.memory_limit_bytes;
  out.spec.seed = given.seed;
  out.spec.threads = given.threads;
  if (out.host != nullptr) {
    out.spec.executor = out.host->executor.get();
    out.spec.memory = out.host->memory.get();
  }
  return out;
}

quire_cache_spec from_spec(const CacheSpec& spec, const Hosts& hosts) noexcept {
  quire_cache_spec out = QUIRE_CACHE_SPEC_INIT;
  out.layer_count = static_cast<std::int64_t>(spec.layers.size());
  out.page_tokens = spec.page_tokens;
  out.equal_positions = spec.equal_positions ? 1 : 0;
  out.exact_head = spec.exact_head;
  out.exact_tail = spec.exact_tail;
  out.rollback = spec.rollback;
  out.max_tokens = spec.max_tokens.value_or(0);
  out.max_sequences = spec.max_sequences.value_or(0);
  out.max_batch = spec.max_batch.value_or(0);
  out.memory_limit_bytes = spec.memory_limit_bytes.value_or(0);
  out.seed = spec.seed;
  out.threads = spec.threads;
  for (const auto& host : hosts) {
    if (host->executor != nullptr && host->executor.get() == spec.executor) {
      out.executor = &host->executor_struct;
    }
    if (host->memory != nullptr && host->memory.get() == spec.memory) {
      out.memory = &host->memory_struct;
    }
  }
  return out;
}

quire_layer_spec from_layer(const LayerSpec& layer) noexcept {
  const Rope& rope = layer.rotation.rope;
  quire_layer_spec out = QUIRE_LAYER_SPEC_INIT;
  out.kv_heads = layer.kv_heads;
  out.key_dim = layer.key_dim;
  out.value_dim = layer.value_dim;
  out.query_heads = layer.query_heads;
  out.pattern = from_pattern(layer.pattern);
  out.key_codec = layer.codec.key.c_str();
  out.value_codec = layer.codec.value.c_str();
  if (layer.row_type) out.row_type = static_cast<int>(*layer.row_type);
  out.rotation = static_cast<int>(layer.rotation.kind);
  out.rope = {static_cast<int>(rope.pairs),
              rope.offset,
              rope.size,
              rope.base,
              rope.frequency_scale,
              rope.factors.empty() ? nullptr : rope.factors.data(),
              static_cast<std::int64_t>(rope.factors.size())};
  if (const auto* call = layer.rotation.function.target<RotateCall>(); call != nullptr) {
    out.rotate = call->function;
    out.rotate_context = call->context;
  }
  out.has_scale = layer.scale.has_value() ? 1 : 0;
  out.scale = layer.scale.value_or(0.0f);
  out.soft_cap = layer.soft_cap;
  out.slopes = layer.slopes.empty() ? nullptr : layer.slopes.data();
  out.slope_count = static_cast<std::int64_t>(layer.slopes.size());
  out.sinks = layer.sinks.empty() ? nullptr : layer.sinks.data();
  out.sink_count = static_cast<std::int64_t>(layer.sinks.size());
  out.mla = layer.mla ? 1 : 0;
  out.kv_of = layer.kv_of.value_or(QUIRE_OWN_STORE);
  return out;
}

}  // namespace quire::capi

using namespace quire;
using namespace quire::capi;

namespace {

// Head counts and sizes are far below; larger numbers would overflow in sums.
constexpr int kMaxSize = 1 << 24;

// Sets the sizes that `shape()` has, and more where it is an MLA layer.
template <typename Shape>
quire_status set_shape(const char* call, quire_layer_spec* layer, std::initializer_list<int> sizes,
                       Shape&& shape) {
  return guard([&]() -> Result<void> {
    const quire_layer_spec defaults = QUIRE_LAYER_SPEC_INIT;
    QUIRE_TRY(quire_layer_spec known, read_stamped(call, "layer", layer, defaults));
    for (const int size : sizes) {
      if (size < 0 || size > kMaxSize) {
        return fail(ErrorCode::invalid_argument, "{}: a size of {}, from 0 to {} is possible", call,
                    size, kMaxSize);
      }
    }
    const CacheSpec spec = shape();
    const quire_layer_spec shaped = from_layer(spec.layers.at(0));
    known.kv_heads = shaped.kv_heads;
    known.key_dim = shaped.key_dim;
    known.value_dim = shaped.value_dim;
    known.query_heads = shaped.query_heads;
    if (shaped.mla != 0) {
      known.mla = shaped.mla;
      known.rotation = shaped.rotation;
      known.rope = shaped.rope;
    }
    write_stamped(layer, known);
    return {};
  });
}

}  // namespace

quire_status quire_layer_spec_mha(quire_layer_spec* layer, int heads, int head_dim) {
  return set_shape("layer_spec_mha", layer, {heads, head_dim},
                   [&] { return CacheSpec::mha(1, heads, head_dim); });
}

quire_status quire_layer_spec_gqa(quire_layer_spec* layer, int query_heads, int kv_heads,
                                  int head_dim) {
  return set_shape("layer_spec_gqa", layer, {query_heads, kv_heads, head_dim},
                   [&] { return CacheSpec::gqa(1, query_heads, kv_heads, head_dim); });
}

quire_status quire_layer_spec_mqa(quire_layer_spec* layer, int query_heads, int head_dim) {
  return set_shape("layer_spec_mqa", layer, {query_heads, head_dim},
                   [&] { return CacheSpec::mqa(1, query_heads, head_dim); });
}

quire_status quire_layer_spec_mla(quire_layer_spec* layer, int query_heads, int latent_dim,
                                  int rope_dim) {
  return set_shape("layer_spec_mla", layer, {query_heads, latent_dim, rope_dim},
                   [&] { return CacheSpec::mla(1, query_heads, latent_dim, rope_dim); });
}
