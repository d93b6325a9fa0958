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
    return kWords ? code_bytes(dim) : byte_row_bytes(dim + 3 * kTile);
  }

  // Queries are prepared as floats, zeros up to a multiple of 16.
  static void fold(const PageSide& keys, const Operands& queries, std::byte* folded) noexcept {
    const std::byte* lows = keys.scales + keys.slots * 2;
    const std::byte* steps = lows + keys.dim * 2;
    float step[kMostChannels + kTile];
    float middle[kMostChannels + kTile];
    int count = 0;
    for (; count + kLanes <= keys.dim; count += kLanes) {
      const Floats s = load_f16(steps + count * 2);
      store_floats(step + count, s);
      store_floats(middle + count, fma(s, spread(kMiddle), load_f16(lows + count * 2)));
    }
    if (count < keys.dim) {
      std::byte some_lows[kLanes * 2] = {};
      std::byte some_steps[kLanes * 2] = {};
      for (int i = 0; i < (keys.dim - count) * 2; ++i) {
        some_lows[i] = lows[count * 2 + i];
        some_steps[i] = steps[count * 2 + i];
      }
      store_floats(step + count, load_f16(some_steps));
      store_floats(middle + count, fma(load_f16(some_steps), spread(kMiddle), load_f16(some_lows)));
      count += kLanes;
    }
    for (; count % kTile != 0; count += kLanes) {
      store_floats(step + count, zeros());
      store_floats(middle + count, zeros());
    }
    const auto stride = static_cast<std::ptrdiff_t>(folded_bytes(keys.dim));
    for (int row = 0; row < queries.count; ++row, folded += stride) {
      const auto* query = reinterpret_cast<const float*>(queries.rows + row * queries.stride);
      float scaled[kMostChannels + kTile];
      Floats sums = zeros();
      for (int c = 0; c < count; c += kLanes) {
        const Floats q = load_floats(query + c);
        store_floats(scaled + c, mul(q, load_floats(step + c)));
        sums = fma(q, load_floats(middle + c), sums);
      }
      if constexpr (kWords) {
        store_words(scaled, count, kMiddle, folded + sizeof(IntHeader), folded);
      } else {
        store_query_bytes(scaled, count, kMiddle, folded);
      }
      reinterpret_cast<IntHeader*>(folded)->base = sum_of(sums);
    }
  }

  static void expand(Side side, const PageSide& page, std::byte* to) noexcept {
    unpack_page<kBits>(side, page, to, SameCodes());
  }

  using Ops = Select<kWords, UnsignedWordOps, SmallKeyOps<kBits>>;

  static bool takes_coded(Side side, int dim) noexcept { return whole_units<kBits>(side, dim); }

  static void coded_scores(const PageSide& keys, int first, int end, const Operands& queries,
                           float* out, std::ptrdiff_t out_stride, const Ahead& ahead) noexcept {
    plane_scores<FewRows<Ops>, kBits>(keys, first, end, queries, out, out_stride, ahead,
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
            .rounds_weights = false,
            .coded = {kFuses ? coded_scores : nullptr, nullptr},
            .takes_coded = takes_coded,
            .expanded_bytes = expanded_tile_bytes,
            .expand = expand,
            .expanded = {scores<Ops, 4>, nullptr}};
  }
};

}  // namespace
}  // namespace quire
