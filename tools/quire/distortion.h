// Made-up keys and values, and how far what a codec gives back is from them.
//
// Numbers are the same on every run and machine with the same C++ library.
#pragma once

#include <cstdint>
#include <vector>

namespace quire::tool {

// [token][head][dim] in f32.
struct Rows {
  std::int64_t tokens = 0;
  int heads = 0;
  int dim = 0;
  std::vector<float> data;

  Rows(std::int64_t t, int h, int d)
      : tokens(t), heads(h), dim(d), data(static_cast<std::size_t>(t * h * d)) {}
  float* at(std::int64_t token, int head) {
    return data.data() + static_cast<std::size_t>((token * heads + head) * dim);
  }
  const float* at(std::int64_t token, int head) const {
    return data.data() + static_cast<std::size_t>((token * heads + head) * dim);
  }
};

// Independent, N(0, 1).
Rows gaussian_rows(std::int64_t tokens, int heads, int dim, std::uint32_t seed);

// Keys of a model whose projection has a large bias: a vector of norm 605 in the four slowest
// rotary pairs, the same for all tokens of a head, plus N(0, 1), turned by the token's position
// (pairs of halves, base 10^6). Almost all of a key is the same in every key.
// Requires: dim is at least 8. Of an odd one the last channel is not turned.
Rows biased_rows(std::int64_t tokens, int heads, int dim, std::uint32_t seed);

// Keys of uneven lengths: N(0, 1) times exp(0.3 n) with a normal n for each token, and every 16th
// channel eight times as large.
Rows uneven_rows(std::int64_t tokens, int heads, int dim, std::uint32_t seed);

// The squared norm of all differences, over that of all exact rows.
double relative_mse(const Rows& exact, const Rows& decoded);

// E<q, x'> / E<q, x> - 1, over queries q = x + N(0, 1): those that look for their key.
double inner_product_bias(const Rows& exact, const Rows& decoded);

// dim Var[<q, x' - x>] / (|q|^2 |x|^2), over queries that know nothing of the key.
double inner_product_variance(const Rows& exact, const Rows& decoded);

// The divergence, in nats, of softmax(q K' / sqrt(dim)) from softmax(q K / sqrt(dim)) over all
// tokens of a head, on average over heads and `queries` of N(0, 1) each.
double attention_kl(const Rows& exact, const Rows& decoded, int queries);

}  // namespace quire::tool
