// Scores on dual pages, for the instruction set whose integers were included before.
//
// With h = 2^(b-1), the score of token t is
//
//     u_t (sum over c of (q_c step_c) (code_tc - h)  +  sum over c of q_c (lo_c + h step_c))
//
// Steps are folded into the query once for a page, which then has codes of its own; the second sum
// is made there too. Counting codes from h keeps the rounding of the query's codes from being
// multiplied by their mean: codes stay unsigned, and h times the sum of the query's codes is taken
// off. With 8-bit operands (byte_dots.h) up to 5 bits; 6 bits are worth 15-bit ones (word_dots.h).
#pragma once

#include "codec/byte_dots.h"
#include "codec/plane_products.h"
#include "codec/unpack_planes.h"
#include "codec/word_dots.h"

namespace quire {
namespace {

// Codes are multiplied as they are.
struct SameCodes {
  static constexpr bool kTakesPlanes = false;
  static Ints at(const Ints& codes) { return codes; }
};

template <int kBits>
struct Dual {
  static constexpr bool kWords = kBits == 6;
  static constexpr int kMiddle = 1 << (kBits - 1);

  static bool takes_keys(int dim, int split) noexcept {
    return split >= dim && dim <= (kWords ? kLargestPart : kMostChannels);
  }

  static std::size_t folded_bytes(int dim) noexcept {
    return kWords ? code_bytes(dim) : byte_row_bytes<>(dim);
  }

  // Numbers of the page's channels, f16, zeros up to a multiple of 16.
  struct Channels {
    std::byte padded[2][(kMostChannels + kTile) * 2];
    const std::byte* lows;
    const std::byte* steps;
    int count;

    explicit Channels(const PageSide& keys)
        : lows(keys.scales + keys.slots * 2), steps(lows + keys.dim * 2), count(keys.dim) {
      if (count % kTile == 0) return;
      for (const std::byte** numbers : {&lows, &steps}) {
        std::byte* to = padded[numbers == &steps];
        for (int i = 0; i < keys.dim * 2; ++i) to[i] = (*numbers)[i];
        for (int i = keys.dim * 2; i % (kTile * 2) != 0; ++i) to[i] = std::byte{0};
        *numbers = to;
      }
      count = (keys.dim + kTile - 1) / kTile * kTile;
    }
  };

  // R queries, which are floats, zeros up to a multiple of 16.
  template <int R>
  QUIRE_INLINE static void fold_some(const Channels& channels, const std::byte* queries,
                                     std::ptrdiff_t query_stride, std::byte* folded,
                                     std::ptrdiff_t stride) {
    float scaled[R * (kMostChannels + kTile)];
    Floats sums[4] = {zeros(), zeros(), zeros(), zeros()};
    Floats largest[4] = {zeros(), zeros(), zeros(), zeros()};
    for (int c = 0; c < channels.count; c += kLanes) {
      const Floats step = load_f16(channels.steps + c * 2);
      const Floats middle = fma(step, spread(kMiddle), load_f16(channels.lows + c * 2));
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const Floats q = load_floats(queries + r * query_stride + c * 4);
        const Floats s = mul(q, step);
        store_floats(scaled + r * channels.count + c, s);
        largest[r] = larger_magnitude(largest[r], s);
        sums[r] = fma(q, middle, sums[r]);
      }
    }
    const Quad base = sums_of_rows(sums);
    store_rows<Select<kWords, Words, QueryBytes<>>, R>(
        [&](int r, int i) QUIRE_INLINED { return load_floats(scaled + r * channels.count + i); },
        channels.count, largest_magnitudes_of_rows(largest), 1.0f, kMiddle, folded, stride);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      reinterpret_cast<IntHeader*>(folded + r * stride)->base = base[r];
    }
  }

  static void fold(const PageSide& keys, const Operands& queries, std::byte* folded) noexcept {
    const Channels channels(keys);
    const auto stride = static_cast<std::ptrdiff_t>(folded_bytes(keys.dim));
    const std::byte* from = queries.rows;
    int left = queries.count;
    for (; left >= 4; left -= 4, from += 4 * queries.stride, folded += 4 * stride) {
      fold_some<4>(channels, from, queries.stride, folded, stride);
    }
    switch (left) {
      case 3:
        return fold_some<3>(channels, from, queries.stride, folded, stride);
      case 2:
        return fold_some<2>(channels, from, queries.stride, folded, stride);
      case 1:
        return fold_some<1>(channels, from, queries.stride, folded, stride);
      default:
        return;
    }
  }

  static void expand(Side side, const PageSide& page, std::byte* to) noexcept {
    unpack_page<kBits>(side, page, to, SameCodes());
  }

  using Ops = Select<kWords, UnsignedWordOps, SmallKeyOps<kBits>>;

  static bool takes_coded(Side side, int dim) noexcept { return fits_units<kBits>(side, dim); }

  static void coded_scores(const PageSide& keys, int first, int end, const Operands& queries,
                           float* out, std::ptrdiff_t out_stride, const Ahead& ahead) noexcept {
    static_assert(4 * 127 * 31 <= 32767);  // products of two steps of 5 bits
    using CodedOps = Select<kHasShortSums && kBits == 5, TwoSteps<KeyByteOps>, Ops>;
    plane_scores<FewRows<CodedOps>, kBits>(keys, first, end, queries, out, out_stride, ahead,
                                           SameCodes());
  }

  static constexpr Kernel kernel() {
    return {.takes_keys = takes_keys,
            .query_bytes = float_query_bytes,
            .prepare = prepare_floats,
            .folded_bytes = folded_bytes,
            .fold = fold,
            .weight_bytes = nullptr,
            .weigh = nullptr,
            .coded = {kFuses ? coded_scores : nullptr, nullptr},
            .takes_coded = takes_coded,
            .expanded_bytes = expanded_tile_bytes,
            .expand = expand,
            .expanded = {scores<Ops, 4>, nullptr}};
  }
};

}  // namespace
}  // namespace quire
