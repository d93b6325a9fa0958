// A rotation that spreads a row over all its channels: random signs, then a fixed transform.
//
//     y = T (s x)        x = s (T' y)
//
// Codecs with few levels need it: what is large in one channel becomes a little in all of them, and
// channels look like independent normal numbers whatever the model made of them. Inner products
// stay, so queries are rotated instead of rotating keys back.
//
// For d = m 2^k channels, m odd, channel ch = a 2^k + b:
//
//   s   ch is negated where bit ch % 64 of word ch / 64 of the seed's random words is set
//   H   Hadamard over b: for h = 1, 2, 4 .. 2^(k-1), (u, v) at distance h become (u + v, u - v)
//   G   for each prime factor p of m, smallest first, a transform of p numbers a fixed distance
//       apart (2^k, then that times the factors before)
//   last, all are multiplied by 2^(-k/2)
//
// For p = 3 and 5, G is a reflection: each number loses 2/p of their sum. Larger p would keep most
// of a number in its place that way, and take Paley's matrix instead, whose entries are nearly all
// equal but for their signs: with Q_ij = 1 where j - i is a square modulo p, -1 where it is none,
// and 0 for j = i, and J of ones,
//
//     p mod 4 = 3:   (I + Q) / sqrt(p + 1) + J (1 - 1 / sqrt(p + 1)) / p
//     p mod 4 = 1:   Q / sqrt(p) + J / p
//
// T' is the inverse of T and its transpose: the same, with i - j for j - i. A single channel
// becomes numbers with kurtosis 1 for m = 1, 1.22 for 3, 1.16 for 5, 1.2 for 7, 1.49 for 9 = 3 * 3,
// and below 1.36 for larger p (a normal variable has 3).
//
// Every step is an addition, a subtraction or a multiplication of two numbers, in an order that
// does not depend on the instruction set: sums of p run from the lowest channel up, those of Q from
// a channel's own place up and around (down, to turn back). So vector units that do the same
// elementwise get the same bits. Cost: p additions for each channel where p is 7 or more.
//
// Thread-safety: functions of their arguments.
#pragma once

#include <cstdint>

#include "codec/codec.h"

namespace quire {

// The largest row that can be rotated: encoders keep one in f32 on their stack.
inline constexpr int kMaxRotatedDim = 1024;

// Whether rows of this size can be rotated: even, so that tiles of fewer than 8 bits fill whole
// bytes (codec/planes.h), and no larger than that.
bool rotates(const TileShape& shape) noexcept;

// 64 signs of a seed: bit i is set where channel 64 index + i is negated.
std::uint64_t sign_word(std::uint64_t seed, int index) noexcept;

// The numbers that describe T.
struct Transform {
  int block = 1;         // 2^k
  int factors[12] = {};  // prime factors of m, smallest first, 0 behind the last
  float last = 1.0f;     // 2^(-k/2)
};
Transform transform_of(int dim) noexcept;

// From this prime on a factor has Paley's matrix.
inline constexpr int kFirstPaley = 7;

// Paley's matrix of p numbers: of each x, all its neighbours around are added or taken away, from
// it or from 0. That is multiplied by `near`, the sum of all by `all`, and both are added.
struct Paley {
  bool own = false;  // whether it begins with x itself
  float near = 0;
  float all = 0;
  std::uint64_t added[kMaxRotatedDim / 128] = {};  // bit n: whether the neighbour at n is added
};
Paley paley_of(int p) noexcept;  // Requires: a prime, 7 or more, below kMaxRotatedDim / 2

// Turns row [dim] in place, with shape.seed and shape.dim. Requires: rotates(shape).
void rotate(const TileShape& shape, float* row) noexcept;
void rotate_back(const TileShape& shape, float* row) noexcept;

// The same for rows `stride` floats apart, and to the bit by the instructions of a set.
void rotate_rows(const TileShape& shape, float* rows, std::size_t count,
                 std::size_t stride) noexcept;
void rotate_rows_back(const TileShape& shape, float* rows, std::size_t count,
                      std::size_t stride) noexcept;
#if defined(__x86_64__)
void rotate_rows_avx2(const TileShape& shape, float* rows, std::size_t count,
                      std::size_t stride) noexcept;
void rotate_rows_avx512(const TileShape& shape, float* rows, std::size_t count,
                        std::size_t stride) noexcept;
void rotate_rows_back_avx2(const TileShape& shape, float* rows, std::size_t count,
                           std::size_t stride) noexcept;
void rotate_rows_back_avx512(const TileShape& shape, float* rows, std::size_t count,
                             std::size_t stride) noexcept;
inline constexpr Codec::Rotators kRotators = {rotate_rows, rotate_rows_avx2, rotate_rows_avx512};
inline constexpr Codec::Rotators kRotatorsBack = {rotate_rows_back, rotate_rows_back_avx2,
                                                  rotate_rows_back_avx512};
#else
inline constexpr Codec::Rotators kRotators = {rotate_rows};
inline constexpr Codec::Rotators kRotatorsBack = {rotate_rows_back};
#endif

}  // namespace quire
