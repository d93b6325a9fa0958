// Products of byte codes and 15-bit operands: include after codec/ints_<set>.h.
//
//   query    scale = max |q| / 32767 per part, code = round(q / scale)
//   weights  w[t] = weight[t] times the scale of value t; the same with the maximum of the page
//
// Sums are of integers, so they are exact and their order does not matter. With codes from -127 to
// 127, or from 0 to 63, they cannot overflow: 32767 * 128 * 512 channels, or 256 slots, stay below
// 2^31. The four neighbours of a lane are split into bytes 0 and 2 and bytes 1 and 3 and widened to
// 16 bits, which one instruction multiplies and adds in pairs. A prepared row is a header, two
// scales for signed codes, then the row's own codes in that order: 0, 2, 1, 3.
#pragma once

#include "codec/int_ops.h"

namespace quire {
namespace {

constexpr int kLargestPart = 512;
constexpr float kLargestCode = 32767.0f;
static_assert(32767ll * 128 * kLargestPart < 1ll << 31);

struct Int16Ops : IntOps {  // on expanded operands: two neighbours at a step
  static constexpr int kPack = 2;
  static constexpr int kCodeBytes = 2;
  QUIRE_INLINE static void add(Sum& sum, const Operand& x, const Weight& w) {
    sum = add_dots(sum, x, w);
  }
  using Header = Floats;
  QUIRE_INLINE static Header header(const std::byte* row, int part) {
    return spread(reinterpret_cast<const float*>(row)[part]);
  }
  QUIRE_INLINE static Floats score(const Sum& sum, const Header& scale, const std::byte* scales) {
    return mul(mul(to_floats(sum), scale), load_f16(scales));
  }
  QUIRE_INLINE static Floats mixed(const Sum& sum, const Header& scale) {
    return mul(to_floats(sum), scale);
  }
};

struct Int8Ops : Int16Ops {
  static constexpr int kPack = 4;
  static constexpr int kCodeBytes = 1;
  static constexpr int kStepBytes = 8;
  static constexpr int kMaxRows = rows_for(4, 4);
  struct Operand {
    Ints even, odd;
  };
  struct Weight {
    Ints even, odd;
  };
  QUIRE_INLINE static Operand load(const std::byte* data) { return operand(load_ints(data)); }
  QUIRE_INLINE static Operand operand(const Ints& codes) {
    return {even_bytes(codes), odd_bytes(codes)};
  }
  QUIRE_INLINE static Weight weight(const std::byte* at) {
    return {spread_ints(at), spread_ints(at + 4)};
  }
  QUIRE_INLINE static void add(Sum& sum, const Operand& x, const Weight& w) {
    sum = add_dots(add_dots(sum, x.even, w.even), x.odd, w.odd);
  }
};

// Codes that are unsigned, which takes less to widen; the header is an IntHeader.
struct UnsignedWordOps : Int8Ops {
  QUIRE_INLINE static Operand load(const std::byte* data) { return operand(load_ints(data)); }
  QUIRE_INLINE static Operand operand(const Ints& codes) {
    return {even_unsigned(codes), odd_unsigned(codes)};
  }
  static constexpr int kShortSteps = 0;
  static constexpr bool kTwoSteps = false;
  using Header = IntOps::Header;
  using IntOps::header;
  using IntOps::score;
};

// With room for the padding behind a part that begins anywhere.
inline std::size_t code_bytes(int count) noexcept {
  return round_up_64(Int16Ops::kHeaderBytes + (static_cast<std::size_t>(count) + 2 * kTile) * 2);
}

// Words of queries and weights, and the sum of them.
struct Words {
  static constexpr int kTimes = 1;
  static constexpr bool kSums = true;
  static constexpr float kMost = kLargestCode;
  static constexpr bool kDithers = false;
  static constexpr int kFloats = 2;
  QUIRE_INLINE static Ints of(const Floats (&a)[kFloats]) { return quad_words(a[0], a[1]); }
  QUIRE_INLINE static Ints add(const Ints& sums, const Ints& words) {
    const std::int32_t ones = 0x00010001;
    return add_dots(sums, words, spread_ints(reinterpret_cast<const std::byte*>(&ones)));
  }
};

inline void prepare_codes(const float* query, int dim, int split, std::byte* prepared) noexcept {
  float padded[kLargestPart + kTile];
  auto* scales = reinterpret_cast<float*>(prepared);
  std::byte* codes = prepared + Int16Ops::kHeaderBytes;
  scales[1] = scales[2] = scales[3] = 0.0f;
  for (int part = 0, begin = 0; begin < dim; ++part) {
    const int end = part == 0 && split < dim ? split : dim;
    int count = 0;
    for (int c = begin; c < end; ++c) padded[count++] = query[c];
    while (count % kTile != 0) padded[count++] = 0.0f;
    // Codes behind the first part's end are written again by the second.
    const IntScales ints = int_scales_of(Quad{largest_magnitude(padded, count)}, kLargestCode);
    scales[part] = ints.to_floats[0];
    store_ints_of<Words>([&](int i) QUIRE_INLINED { return load_floats(padded + i); }, count,
                         ints.to_ints[0], codes + begin * 2);
    begin = end;
  }
}

// Weights as codes.
template <int R, int V>
struct CodeWeights : ScaledWeights<R, V> {
  using Scaled = ScaledWeights<R, V>;
  using Scaled::Scaled;
  static constexpr int kDegree = 4;
  QUIRE_INLINE void done() {
    Scaled::done();
    const Logits& all = this->logits;
    const IntScales ints = int_scales_of(this->largest_of_row, kLargestCode);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      std::byte* prepared = all.prepared_row(this->row + r);
      *reinterpret_cast<float*>(prepared) = ints.to_floats[r];
      store_ints_of<Words>([&](int i) QUIRE_INLINED { return this->at(r, i); }, this->count(),
                           ints.to_ints[r], prepared + Int16Ops::kHeaderBytes + all.first * 2);
    }
  }
};

}  // namespace
}  // namespace quire
