// Attention on f16 tiles, for the instruction set whose lanes were included before: codes become
// floats as they are loaded.
#pragma once

#include "codec/products.h"
#include "codec/weights.h"

namespace quire {
namespace {

struct F16Ops : F32Ops {
  static constexpr int kCodeBytes = 2;
  QUIRE_INLINE static Operand load(const std::byte* data) { return load_f16(data); }
};

struct F16Unpack {
  static constexpr int kPack = 1;
  static constexpr int kCodeBytes = 2;
  static constexpr int kSteps = 1;
  static constexpr int kUnitBytes = 4;
  QUIRE_INLINE static void unpack(const std::byte* data, std::byte* to, std::ptrdiff_t) {
    store_bytes(to, load_f16(data));
  }
};

constexpr Kernel kF16Kernel = {.takes_keys = takes_all_keys,
                               .query_bytes = float_query_bytes,
                               .prepare = prepare_floats,
                               .weight_bytes = nullptr,
                               .weigh = weigh<FloatWeights>,
                               .coded = products_of<F16Ops>(),
                               .expanded_bytes = expanded_bytes<F16Unpack>,
                               .expand = expand<F16Unpack>,
                               .expanded = products_of<F32Ops>()};

}  // namespace
}  // namespace quire
