// Attention on f32 tiles, for the instruction set whose lanes were included before.
#pragma once

#include "codec/products.h"
#include "codec/weights.h"

namespace quire {
namespace {

constexpr Kernel kF32Kernel = {.takes_keys = takes_all_keys,
                               .query_bytes = float_query_bytes,
                               .prepare = prepare_floats,
                               .weight_bytes = nullptr,
                               .weigh = weigh<FloatWeights>,
                               .coded = products_of<F32Ops>(),
                               .expanded_bytes = nullptr,
                               .expand = nullptr,
                               .expanded = {}};

}  // namespace
}  // namespace quire
