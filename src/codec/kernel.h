// A kernel computes the two products of attention straight on the codes of one head of one page:
//
//   scores   out[row][slot]  = sum over channels of query[row][channel] key[slot][channel]
//   mix      o[row][channel] = o[row][channel] keep[row] + sum over slots of weight[row][slot]
//                              value[slot][channel]
//
// A row is one query head of one query. What a row gets does not depend on the other rows of the
// call, nor on how the call cuts the slots: sums begin at zero for each page and run in the order
// of the tiles, and slots outside a row's sight have weight 0, which adds nothing.
//
// Queries and weights are first put into the form that the multiply instruction wants (`prepare`,
// `weigh`, which makes the weights too). For many rows a page can be expanded once to operands that
// need no unpacking; the products of `expanded` on them are the same to the bit.
//
// Thread-safety: functions of their arguments.
#pragma once

#include <cstddef>

#include "quire/cache.hpp"

namespace quire {

// The codes of one side of one head of one page, as codec/tile.h lays them.
struct PageSide {
  const std::byte* data = nullptr;
  const std::byte* scales = nullptr;  // null: the codec has none
  int slots = 0;  // padded to a multiple of 16, but of values that are rows as they were put
  int dim = 0;
  int split = 0;  // channels of the first part of keys; dim when there is one part
};

// Prepared rows, `stride` bytes apart.
struct Operands {
  const std::byte* rows = nullptr;
  std::ptrdiff_t stride = 0;
  int count = 0;
};

// Dot products of some rows over the slots [first, end) of a page, or what was made of them, and
// what becomes of them. Logits here are those times `scale`, which is above 0 and has log2 e in it.
struct Logits {
  float* rows = nullptr;  // [row][slot], rows `stride` floats apart
  std::ptrdiff_t stride = 0;
  int count = 0;
  int first = 0;  // slots, multiples of 16
  int end = 0;
  float scale = 1.0f;
  float* top = nullptr;   // [row]: the largest logit so far, raised to these; NaN where a weight is
  float* sum = nullptr;   // [row]: of all weights, as 2^(logit - top)
  float* base = nullptr;  // [row]: the top of a sum of values, -inf of none; becomes `top`
  float* keep = nullptr;  // [row]: written, what that sum is to be multiplied by
  std::byte* prepared = nullptr;  // [row]: weights as mix multiplies them, `prepared_stride` apart
  std::ptrdiff_t prepared_stride = 0;

  float* row(int r) const noexcept { return rows + r * stride; }
  std::byte* prepared_row(int r) const noexcept { return prepared + r * prepared_stride; }
};

// Bytes to be brought near while a product runs.
struct Ahead {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool nearest = false;  // into the nearest cache, by loops that gain by it
};

struct Products {
  // Writes out[row][slot] for the slots [first, end), which are multiples of 16.
  void (*scores)(const PageSide& keys, int first, int end, const Operands& queries, float* out,
                 std::ptrdiff_t out_stride, const Ahead& ahead) noexcept;
  // Adds the slots [first, end) to o[row][channel]. Weights outside are taken as 0. `end` may be
  // any slot where codes of values lie alone (tile.h). Requires: dim is a multiple of 16.
  void (*mix)(const PageSide& values, int first, int end, const Operands& weights,
              const float* keep, float* o, std::ptrdiff_t o_stride, const Ahead& ahead) noexcept;
};

struct Kernel {
  // Whether keys of this size can be multiplied; values can when dim is a multiple of 16.
  bool (*takes_keys)(int dim, int split) noexcept;

  // A query [dim] in the form that scores multiplies, in query_bytes bytes (a multiple of 64).
  std::size_t (*query_bytes)(int dim) noexcept;
  void (*prepare)(const float* query, int dim, int split, std::byte* prepared) noexcept;

  // For codecs whose keys have numbers of the page's own: those folded into prepared queries, each
  // in folded_bytes bytes, which scores then multiplies. Null for the others.
  std::size_t (*folded_bytes)(int dim) noexcept = nullptr;
  void (*fold)(const PageSide& keys, const Operands& queries, std::byte* folded) noexcept = nullptr;

  // Softmax: raises the tops, and makes weights 2^(logit - top) and their sums, in the form that
  // mix multiplies, in weight_bytes bytes a row; where that is null, in place of the dot products.
  // Weights that become bf16 are summed rounded.
  std::size_t (*weight_bytes)(int slots) noexcept;
  void (*weigh)(const PageSide& values, const Logits& logits) noexcept;

  Products coded;  // null where pages are expanded always
  // Sizes for which coded products are made; others are expanded. Null: all.
  bool (*takes_coded)(Side side, int dim) noexcept = nullptr;

  // Null where coded operands need no unpacking.
  std::size_t (*expanded_bytes)(Side side, int slots, int dim) noexcept;
  void (*expand)(Side side, const PageSide& page, std::byte* out) noexcept;
  Products expanded;
};

// The kernels of a codec as its registry entry carries them: QUIRE_KERNELS(kF16Kernel) for
// kF16KernelScalar and those of the instruction sets that this architecture can have.
#if defined(__x86_64__)
#define QUIRE_KERNELS(name) \
  { &name##Scalar, &name##Avx2, &name##Avx512 }
#else
#define QUIRE_KERNELS(name) \
  { &name##Scalar, nullptr, nullptr }
#endif

}  // namespace quire
