// Products of byte codes and 8-bit operands: include after codec/ints_<set>.h.
//
//   query    scale = max |q| / 127, code = round(q / scale), signed; the codes of keys are unsigned
//   weights  w[t] = weight[t] times the scale of value t, scale = max w / 255, code = round(w /
//            scale), unsigned; the codes of values are signed
//
// Sums are of integers, so they are exact and their order does not matter. A prepared row is a
// header, then the codes.
#pragma once

#include "codec/int_ops.h"

namespace quire {
namespace {

constexpr int kMostChannels = 1024;  // of a key

struct ByteOps : IntOps {
  static constexpr int kPack = 4;
  static constexpr int kCodeBytes = 1;
  QUIRE_INLINE static Operand operand(const Ints& codes) { return codes; }
};

struct KeyByteOps : ByteOps {
  static constexpr int kShortSteps = 0;
  QUIRE_INLINE static void add(Sum& sum, const Operand& x, const Weight& w) {
    sum = add_byte_dots(sum, x, w);
  }
};

// For codes of kBits bits: their products are small, so that sums of as many steps fit 16 bits,
// which where it takes instructions to widen them saves most of these.
template <int kBits>
struct SmallKeyOps : KeyByteOps {
  static constexpr int kShortSteps =
      kHasShortSums && kBits <= 4 ? 32767 / 254 / ((1 << kBits) - 1) : 0;
};

struct ValueByteOps : ByteOps {
  QUIRE_INLINE static void add(Sum& sum, const Operand& x, const Weight& w) {
    sum = add_byte_dots(sum, w, x);
  }
};

inline std::size_t byte_row_bytes(int count) noexcept {
  return round_up_64(sizeof(IntHeader) + static_cast<std::size_t>(count) + kTile);
}

// Writes the signed codes of a query of `count` floats, a multiple of 16, behind its header, with
// its scale, and their sum times `middle` as the offset.
QUIRE_INLINE void store_query_bytes(const float* from, int count, int middle, std::byte* row) {
  auto& header = *reinterpret_cast<IntHeader*>(row);
  std::byte* to = row + sizeof(IntHeader);
  const IntScale scale = int_scale(from, count, 127.0f);
  for (int i = 0; i < count; i += kLanes) {
    store_i8(to + i, mul(load_floats(from + i), spread(scale.to_ints)));
  }
  // Products with bytes of 1: the sum of the codes.
  const std::int32_t ones = 0x01010101;
  Ints sums = zero_ints();
  constexpr int kVector = 4 * kLanes;
  for (int i = count; i % kVector != 0; i += kLanes) store_i8(to + i, zeros());
  for (int i = 0; i < count; i += kVector) {
    sums = add_byte_dots(sums, spread_ints(reinterpret_cast<const std::byte*>(&ones)),
                         load_ints(to + i));
  }
  header = {scale.to_floats, offset_of(sum_of_ints(sums), middle), 0.0f, 0};
}

// Weights times the scales of their values, as unsigned codes; what sums are multiplied by is the
// scale times `level`.
QUIRE_INLINE void store_weight_bytes(const PageSide& values, const float* weights, int first,
                                     int end, float level, std::byte* row) {
  float scaled[256];
  scale_weights(values, weights, first, end, scaled);
  const IntScale scale = int_scale(scaled, end - first, 255.0f);
  std::byte* to = row + sizeof(IntHeader) + first;
  for (int t = 0; t < end - first; t += kLanes) {
    store_u8(to + t, mul(load_floats(scaled + t), spread(scale.to_ints)));
  }
  *reinterpret_cast<IntHeader*>(row) = {scale.to_floats * level, 0, 0.0f, 0};
}

}  // namespace
}  // namespace quire
