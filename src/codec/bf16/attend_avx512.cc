// Attention on bf16 tiles with vdpbf16ps: queries and weights are rounded to bf16, the products of
// two neighbours are added to an f32 in one instruction.
#if defined(__x86_64__)
#include "base/lanes_avx512.h"
#include "codec/bf16/kernels.h"
#include "codec/products.h"

namespace quire {
namespace {

struct Bf16DotOps : F32Ops {
  static constexpr int kPack = 2;
  static constexpr int kCodeBytes = 2;
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

void store_bf16(std::byte* to, Floats a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(a)));
}

std::size_t bf16_bytes(int count) noexcept {
  return round_up_64(static_cast<std::size_t>(count) * 2);
}

void prepare(const float* query, int dim, int, std::byte* prepared) noexcept {
  for (int c = 0; c < dim; c += kLanes) {
    const int left = dim - c < kLanes ? dim - c : kLanes;
    const auto mask = static_cast<__mmask16>((1u << left) - 1u);
    store_bf16(prepared + c * 2, _mm512_maskz_loadu_ps(mask, query + c));
  }
}

void weigh(const PageSide&, const float* weights, int first, int end,
           std::byte* prepared) noexcept {
  for (int t = first; t < end; t += kLanes) store_bf16(prepared + t * 2, load_floats(weights + t));
}

}  // namespace

const Kernel kBf16KernelAvx512 = {.takes_keys = takes_all_keys,
                                  .query_bytes = bf16_bytes,
                                  .prepare = prepare,
                                  .weight_bytes = bf16_bytes,
                                  .weigh = weigh,
                                  .rounds_weights = true,
                                  .coded = products_of<Bf16DotOps>(),
                                  .expanded_bytes = nullptr,
                                  .expand = nullptr,
                                  .expanded = {}};

}  // namespace quire
#endif
