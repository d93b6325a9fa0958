// Products of byte codes and 8-bit operands: include after codec/ints_<set>.h.
//
//   query    scale = max |q| / 127, code = round(q / scale), signed; the codes of keys are unsigned
//   weights  w[t] = weight[t] times the scale of value t, scale = max w / 255, code = round(w[t] /
//            scale + shift of slot t), unsigned; the codes of values are signed
//
// Scales are larger, and codes smaller, where sums of products must fit 16 bits (tq/attend.h).
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
  static constexpr bool kUnsignedCodes = true;
  static constexpr int kShortSteps = 0;
  static constexpr bool kTwoSteps = false;
  QUIRE_INLINE static void add(Sum& sum, const Operand& x, const Weight& w) {
    sum = add_byte_dots(sum, x, w);
  }
};

// For queries that are there kCopies times.
struct CopiedKeyOps : KeyByteOps {
  static constexpr int kStepBytes = 4 * kCopies;
  QUIRE_INLINE static Weight weight(const std::byte* at) { return spread_copies(at); }
};

// For codes of kBits bits: their products are small, so that sums of as many steps fit 16 bits,
// which where it takes instructions to widen them saves most of these.
template <int kBits>
struct SmallKeyOps : KeyByteOps {
  static constexpr int kShortSteps =
      kHasShortSums && kBits <= 4 ? 32767 / 254 / ((1 << kBits) - 1) : 0;
};

struct ValueByteOps : ByteOps {  // its codes count from 0
  static constexpr bool kUnsignedCodes = false;
  static constexpr bool kTwoSteps = false;
  QUIRE_INLINE static void add(Sum& sum, const Operand& x, const Weight& w) {
    sum = add_byte_dots(sum, w, x);
  }
};

// Two steps at once, for codes and operands whose products are small enough: what widens them is
// done for both. Requires: kHasShortSums.
template <class Ops>
struct TwoSteps : Ops {
  static constexpr bool kTwoSteps = true;
  using I = typename Ops::Sum;
  QUIRE_INLINE static void add(I& sum, const I& x, const I& w, const I& next_x, const I& next_w) {
    sum = Ops::kUnsignedCodes ? add_byte_dots(sum, x, w, next_x, next_w)
                              : add_byte_dots(sum, w, x, next_w, next_x);
  }
};

// Whole vectors are written, so up to three tiles behind the last one too.
template <int kTimes = 1>
inline std::size_t byte_row_bytes(int count) noexcept {
  return round_up_64(sizeof(IntHeader) + (static_cast<std::size_t>(count) + 4 * kTile) * kTimes);
}

inline Ints one_bytes() {
  const std::int32_t ones = 0x01010101;
  return spread_ints(reinterpret_cast<const std::byte*>(&ones));
}

// Signed bytes of queries, and the sum of them.
template <int kTimesStored = 1>
struct QueryBytes {
  static constexpr float kMost = 127;
  static constexpr int kTimes = kTimesStored;
  static constexpr bool kDithers = false;
  static constexpr bool kSums = true;
  static constexpr int kFloats = 4;
  QUIRE_INLINE static Ints of(const Floats (&a)[kFloats]) { return signed_bytes(a); }
  QUIRE_INLINE static Ints add(const Ints& sums, const Ints& bytes) {
    return add_byte_dots(sums, one_bytes(), bytes);
  }
};

// Unsigned bytes of weights. A page may have many small ones, that together weigh something: hence
// dithered. Few ask for their sum: most codes of values count from 0.
template <int kMostCode, bool kSummed>
struct WeightBytes {
  static constexpr float kMost = kMostCode;
  static constexpr int kTimes = 1;
  static constexpr bool kDithers = true;
  static constexpr bool kSums = kSummed;
  static constexpr int kFloats = 4;
  QUIRE_INLINE static Ints of(const Floats (&a)[kFloats]) { return unsigned_bytes(a); }
  QUIRE_INLINE static Ints add(const Ints& sums, const Ints& bytes) {
    return add_byte_dots(sums, bytes, one_bytes());
  }
};

}  // namespace
}  // namespace quire
