// Attention on bf16 tiles with f32 multiplies, for the instruction set whose lanes were included
// before: the two neighbours of a lane become two floats.
#pragma once

#include "codec/products.h"
#include "codec/weights.h"

namespace quire {
namespace {

struct Bf16Ops : F32Ops {
  static constexpr int kPack = 2;
  static constexpr int kCodeBytes = 2;
  static constexpr int kStepBytes = 8;
  static constexpr int kMaxRows = rows_for(4, 4);
  static constexpr int vectors(int rows) { return vectors_for(rows); }
  struct Operand {
    Floats even, odd;
  };
  struct Weight {
    Floats even, odd;
  };
  QUIRE_INLINE static Operand load(const std::byte* data) {
    return {load_even_bf16(data), load_odd_bf16(data)};
  }
  QUIRE_INLINE static Weight weight(const std::byte* at) {
    return {F32Ops::weight(at), F32Ops::weight(at + 4)};
  }
  QUIRE_INLINE static void add(Sum& sum, const Operand& x, const Weight& w) {
    sum = fma(x.odd, w.odd, fma(x.even, w.even, sum));
  }
};

struct Bf16Unpack {
  static constexpr int kPack = 2;
  static constexpr int kCodeBytes = 2;
  static constexpr int kSteps = 2;
  static constexpr int kUnitBytes = 4;
  QUIRE_INLINE static void unpack(const std::byte* data, std::byte* to, std::ptrdiff_t next) {
    store_bytes(to, load_even_bf16(data));
    store_bytes(to + next, load_odd_bf16(data));
  }
};

constexpr Kernel kBf16Kernel = {.takes_keys = takes_all_keys,
                                .query_bytes = float_query_bytes,
                                .prepare = prepare_floats,
                                .weight_bytes = nullptr,
                                .weigh = weigh<FloatWeights>,
                                .coded = products_of<Bf16Ops>(),
                                .expanded_bytes = expanded_bytes<Bf16Unpack>,
                                .expand = expand<Bf16Unpack>,
                                .expanded = products_of<F32Ops, Bf16Ops::kPack>()};

}  // namespace
}  // namespace quire
