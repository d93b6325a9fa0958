// One page and one kernel, called directly: what the tests of kernels share.
//
// All is in the basis that the kernel multiplies in: for codecs that rotate, what a page decodes to
// is rotated here, and queries and sums are taken as rotated ones.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/isa.h"
#include "codec/kernel.h"
#include "codec/rounding.h"
#include "codec_cases.h"

namespace quire::test {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kUntouched = -12345.0f;

inline std::vector<float> normals(std::mt19937_64& random, int count, float deviation = 1.0f) {
  std::normal_distribution<float> gauss(0.0f, deviation);
  std::vector<float> made(size_of(count));
  for (float& x : made) x = gauss(random);
  return made;
}

inline float norm(const float* row, int dim) {
  double sum = 0;
  for (int c = 0; c < dim; ++c) sum += double{row[c]} * double{row[c]};
  return static_cast<float>(std::sqrt(sum));
}

// One side of one head of one page in codes, and what they decode to.
struct Page {
  const Codec* codec;
  const Kernel* kernel;
  TileShape shape;
  Sealed sealed;
  std::vector<float> decoded;  // [slots][dim]
  Bytes expanded;

  Page(const Codec& c, Isa isa, const TileShape& s, const std::vector<float>& rows)
      : codec(&c),
        kernel(c.kernels[static_cast<std::size_t>(isa)]),
        shape(s),
        sealed(encode(c, s, rows)),
        decoded(decode(c, s, sealed, 0, s.slots)) {
    if (c.rotate[0] != nullptr) {
      c.rotate[0](s, decoded.data(), size_of(s.slots), size_of(s.dim));
    }
    if (!expands()) return;
    expanded.resize(kernel->expanded_bytes(s.side, s.padded_slots(), s.dim));
    kernel->expand(s.side, side(false), expanded.data());
  }

  bool is_int8() const { return std::string(codec->name) == "int8"; }
  bool expands() const { return kernel->expand != nullptr; }
  bool rotates() const { return codec->rotate[0] != nullptr; }
  // Whether codes are multiplied where they lie.
  bool is_fused() const {
    const Products& coded = kernel->coded;
    const bool made = shape.side == Side::key ? coded.scores != nullptr : coded.mix != nullptr;
    return made && (kernel->takes_coded == nullptr || kernel->takes_coded(shape.side, shape.dim));
  }
  // Forms that can be multiplied: coded, expanded.
  std::vector<bool> forms() const {
    std::vector<bool> found;
    if (is_fused()) found.push_back(false);
    if (expands()) found.push_back(true);
    return found;
  }
  CodedSide coded_side(Isa isa) const {
    return {codec, isa, shape, sealed.data.data(), sealed.scales.data()};
  }
  // Only scales have parts.
  int split() const {
    return shape.parts() == 2 && !sealed.scales.empty() ? shape.split : shape.dim;
  }
  PageSide side(bool of_expanded) const {
    return {of_expanded ? expanded.data() : sealed.data.data(),
            sealed.scales.empty() ? nullptr : sealed.scales.data(), shape.padded_slots(), shape.dim,
            split()};
  }
  const Products& products(bool of_expanded) const {
    return of_expanded ? kernel->expanded : kernel->coded;
  }
  // Whether the kernel multiplies bf16, so that weights and queries are rounded to it.
  bool rounds() const {
    return std::string_view(codec->name) == "bf16" && kernel->weight_bytes != nullptr;
  }
  double value(int slot, int channel) const {
    return double{decoded[size_of(slot * shape.dim + channel)]};
  }
};

// What a row of queries or weights becomes.
struct Prepared {
  Bytes bytes;
  std::ptrdiff_t stride = 0;
  int count = 0;
  Operands operands() const { return {bytes.data(), stride, count}; }
};

// queries [rows][dim], folded where the codec folds.
inline Prepared prepare(const Page& page, const std::vector<float>& queries) {
  const auto stride = page.kernel->query_bytes(page.shape.dim);
  EXPECT_EQ(stride % 64, 0u);
  Prepared made{{},
                static_cast<std::ptrdiff_t>(stride),
                static_cast<int>(queries.size() / size_of(page.shape.dim))};
  made.bytes.resize(stride * size_of(made.count), std::byte{0xa5});
  for (int row = 0; row < made.count; ++row) {
    page.kernel->prepare(&queries[size_of(row * page.shape.dim)], page.shape.dim, page.split(),
                         made.bytes.data() + row * made.stride);
  }
  if (page.kernel->fold == nullptr) return made;
  const auto folded_stride = page.kernel->folded_bytes(page.shape.dim);
  EXPECT_EQ(folded_stride % 64, 0u);
  Prepared folded{{}, static_cast<std::ptrdiff_t>(folded_stride), made.count};
  folded.bytes.resize(folded_stride * size_of(made.count), std::byte{0xa5});
  page.kernel->fold(page.side(false), made.operands(), folded.bytes.data());
  return folded;
}

// logits [rows][slots], at most 0, -inf outside [first, end).
inline Prepared weigh_logits(const Page& page, std::vector<float> logits, int first, int end) {
  const int slots = page.shape.slots;
  Prepared made{{}, slots * std::ptrdiff_t{4}, static_cast<int>(logits.size()) / slots};
  const bool in_place = page.kernel->weight_bytes == nullptr;
  if (!in_place) made.stride = static_cast<std::ptrdiff_t>(page.kernel->weight_bytes(slots));
  made.bytes.resize(size_of(made.count) * static_cast<std::size_t>(made.stride), std::byte{0xa5});
  std::vector<float> top(size_of(made.count), 0.0f);
  std::vector<float> sums(size_of(made.count), 0.0f);
  std::vector<float> base = top;
  std::vector<float> keep = top;
  page.kernel->weigh(page.side(false),
                     {logits.data(), slots, made.count, first, end, 1.0f, top.data(), sums.data(),
                      base.data(), keep.data(), made.bytes.data(), made.stride});
  if (in_place) std::memcpy(made.bytes.data(), logits.data(), made.bytes.size());
  return made;
}

// weights [rows][slots], 0 outside [first, end). Kernels make them of logits; whole powers of 2
// (and 0 and NaN) come out as they are, and no others are taken.
inline Prepared weigh(const Page& page, const std::vector<float>& weights, int first, int end) {
  std::vector<float> logits;
  for (const float w : weights) {
    int power = 0;
    EXPECT_TRUE(w == 0.0f || std::isnan(w) || (w <= 1.0f && std::frexp(w, &power) == 0.5f)) << w;
    logits.push_back(std::log2(w));
  }
  return weigh_logits(page, std::move(logits), first, end);
}

// [rows][slots].
inline std::vector<float> scores(const Page& page, const Prepared& queries, int first, int end,
                                 bool of_expanded) {
  const int slots = page.shape.slots;
  std::vector<float> out(size_of(queries.count * slots), kUntouched);
  page.products(of_expanded)
      .scores(page.side(of_expanded), first, end, queries.operands(), out.data(), slots, {});
  return out;
}

inline std::vector<float> scores(const Page& page, const std::vector<float>& queries,
                                 bool of_expanded) {
  return scores(page, prepare(page, queries), 0, page.shape.slots, of_expanded);
}
inline std::vector<float> scores(const Page& page, const std::vector<float>& queries) {
  return scores(page, queries, page.forms().front());
}

// What o [rows][dim] becomes.
inline std::vector<float> mix(const Page& page, const Prepared& weights, int first, int end,
                              const std::vector<float>& keep, std::vector<float> o,
                              bool of_expanded) {
  page.products(of_expanded)
      .mix(page.side(of_expanded), first, end, weights.operands(), keep.data(), o.data(),
           page.shape.dim, {});
  return o;
}

inline std::vector<float> mix(const Page& page, const std::vector<float>& weights,
                              const std::vector<float>& keep, const std::vector<float>& o,
                              bool of_expanded) {
  const int slots = page.shape.slots;
  return mix(page, weigh(page, weights, 0, slots), 0, slots, keep, o, of_expanded);
}
inline std::vector<float> mix(const Page& page, const std::vector<float>& weights,
                              const std::vector<float>& keep, const std::vector<float>& o) {
  return mix(page, weights, keep, o, page.forms().front());
}

// Codecs without kernels are decoded to be attended to.
inline bool has_kernel(const Codec& codec, Isa isa, const TileShape& shape) {
  return codec.kernels[static_cast<std::size_t>(isa)] != nullptr && stores(codec, shape);
}

// Rows that are not all alike: some large, some small.
inline std::vector<float> page_rows(std::mt19937_64& random, const TileShape& shape) {
  std::vector<float> rows = normals(random, shape.slots * shape.dim);
  for (int slot = 0; slot < shape.slots; slot += 3) {
    for (int ch = 0; ch < shape.dim; ++ch) rows[size_of(slot * shape.dim + ch)] *= 0.05f;
  }
  return rows;
}

// Weights as softmax makes them: at most 1, many of them small, some 0; whole powers of 2.
inline std::vector<float> random_weights(std::mt19937_64& random, int count) {
  std::vector<float> weights = normals(random, count, 6.0f);
  for (float& w : weights) w = w > 5.0f ? 0.0f : std::exp2(-std::round(std::fabs(w)));
  return weights;
}

}  // namespace quire::test
