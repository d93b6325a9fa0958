// Attention on int8 tiles, for the instruction set whose integers were included before.
#pragma once

#include "codec/word_dots.h"

namespace quire {
namespace {

struct Int8Unpack {
  static constexpr int kPack = 4;
  static constexpr int kCodeBytes = 1;
  static constexpr int kSteps = 2;
  static constexpr int kUnitBytes = 4;
  QUIRE_INLINE static void unpack(const std::byte* data, std::byte* to, std::ptrdiff_t next) {
    const Ints x = load_ints(data);
    store_ints(to, even_bytes(x));
    store_ints(to + next, odd_bytes(x));
  }
};

inline bool takes_int8_keys(int dim, int split) noexcept {
  if (split >= dim) return dim <= kLargestPart;
  return split <= kLargestPart && dim - split <= kLargestPart && split % 4 == 0;
}

constexpr Kernel kInt8Kernel = {.takes_keys = takes_int8_keys,
                                .query_bytes = code_bytes,
                                .prepare = prepare_codes,
                                .weight_bytes = code_bytes,
                                .weigh = weigh<CodeWeights>,
                                .coded = products_of<Int8Ops>(),
                                .expanded_bytes = expanded_bytes<Int8Unpack>,
                                .expand = expand<Int8Unpack>,
                                .expanded = products_of<Int16Ops, Int8Ops::kPack>()};

}  // namespace
}  // namespace quire
