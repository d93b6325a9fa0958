// Attention on bf16 tiles with vdpbf16ps: the products of two neighbours are added to an f32 in one
// instruction. Weights are rounded to bf16. A query is the sum of two bf16, itself rounded and what
// is left, each with its own sum; where nothing is left of any query, as with queries that are bf16
// already, the second is not made, and the bits are the same. A prepared query is a header that
// says whether something is left, the rounded channels, and the rest of them.
#if defined(__x86_64__)
#include "base/lanes_avx512.h"
#include "base/numbers.h"
#include "codec/bf16/kernels.h"
#include "codec/products.h"
#include "codec/weights.h"

namespace quire {
namespace {

std::size_t bf16_bytes(int count) noexcept {
  return round_up_64(static_cast<std::size_t>(count) * 2);
}

struct Bf16DotOps : F32Ops {
  static constexpr int kPack = 2;
  static constexpr int kCodeBytes = 2;
  static constexpr bool kQueryRest = true;
  static constexpr int kQueryHeaderBytes = 64;
  static int query_rest_at(int dim) {
    return kQueryHeaderBytes + static_cast<int>(bf16_bytes(dim));
  }
  using Operand = __m512bh;
  using Weight = __m512bh;
  QUIRE_INLINE static Operand load(const std::byte* data) {
    return reinterpret_cast<__m512bh>(_mm512_loadu_si512(data));
  }
  QUIRE_INLINE static Weight weight(const std::byte* at) {
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(*reinterpret_cast<const int*>(at)));
  }
  QUIRE_INLINE static void add(Sum& sum, Operand x, Weight w) { sum = _mm512_dpbf16_ps(sum, x, w); }
};

// What is left of the largest floats is then finite too.
Floats within_bf16(Floats a) {
  const Floats most = spread(kLargestBf16);
  return _mm512_max_ps(sub(zeros(), most), _mm512_min_ps(most, a));  // a NaN stays
}

void store_bf16(std::byte* to, Floats a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(a)));
}

std::size_t query_bytes(int dim) noexcept { return 64 + 2 * bf16_bytes(dim); }

void prepare(const float* query, int dim, int, std::byte* prepared) noexcept {
  std::byte* rounded = prepared + Bf16DotOps::kQueryHeaderBytes;
  std::byte* rest = prepared + Bf16DotOps::query_rest_at(dim);
  int some_left = 0;
  for (int c = 0; c < dim; c += kLanes) {
    const int left = dim - c < kLanes ? dim - c : kLanes;
    const auto mask = static_cast<__mmask16>((1u << left) - 1u);
    const Floats q = _mm512_maskz_loadu_ps(mask, query + c);
    const Floats near = within_bf16(q);
    const Floats off = sub(q, round_to_bf16(near));
    store_bf16(rounded + c * 2, near);
    store_bf16(rest + c * 2, off);
    // Not equal to 0: NaN too.
    some_left |= _mm512_cmp_ps_mask(off, zeros(), _CMP_NEQ_UQ);
  }
  *reinterpret_cast<int*>(prepared) = some_left;
}

template <int R, int V>
struct Bf16Weights {
  static constexpr int kDegree = 5;
  static constexpr bool kKeeps = false;
  const Logits& logits;
  int row;
  QUIRE_INLINE Bf16Weights(const PageSide&, const Logits& l, int first_row)
      : logits(l), row(first_row) {}
  QUIRE_INLINE void take(int v, Floats (&weights)[R]) const {
    const int t = logits.first + v * kLanes;
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      store_bf16(logits.prepared_row(row + r) + t * 2, weights[r]);
      weights[r] = round_to_bf16(weights[r]);
    }
  }
  QUIRE_INLINE void done() const {}
};

}  // namespace

const Kernel kBf16KernelAvx512 = {.takes_keys = takes_all_keys,
                                  .query_bytes = query_bytes,
                                  .prepare = prepare,
                                  .weight_bytes = bf16_bytes,
                                  .weigh = weigh<Bf16Weights>,
                                  .coded = products_of<Bf16DotOps>(),
                                  .expanded_bytes = nullptr,
                                  .expand = nullptr,
                                  .expanded = {}};

}  // namespace quire
#endif
