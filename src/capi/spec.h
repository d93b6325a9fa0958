// Specs between C and C++.
#pragma once

#include <memory>

#include "capi/handle.h"
#include "quire/result.hpp"
#include "quire/spec.hpp"

namespace quire::capi {

// A spec whose executor and memory, where the caller gave some, belong to `host`.
struct HostedSpec {
  CacheSpec spec;
  std::shared_ptr<const Host> host;  // null: the built-in executor and memory
};

Result<HostedSpec> to_spec(const quire_cache_spec* spec);

// Pointers lead into `spec` and `host`.
quire_cache_spec from_spec(const CacheSpec& spec, const Hosts& hosts) noexcept;
quire_layer_spec from_layer(const LayerSpec& layer) noexcept;

}  // namespace quire::capi
