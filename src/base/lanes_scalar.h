// Sixteen floats in plain C++: what the other lanes are tested against, and what machines without
// them run. Everything here has internal linkage, as in the others.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/numbers.h"

namespace quire {
namespace {

constexpr int kLanes = 16;
constexpr int kRegisters = 4;  // of 16 lanes, as 16 registers of 4 hold them

// Four lanes at a time, as every vector unit has them. Said in the type, since g++ 12 keeps 16 sums
// of a plain loop in memory.
using Quad [[gnu::vector_size(16)]] = float;

struct Floats {
  Quad quads[4];
  float& operator[](int lane) { return reinterpret_cast<float*>(quads)[lane]; }
  float operator[](int lane) const { return reinterpret_cast<const float*>(quads)[lane]; }
};

// Each lane from f(lane).
template <class F>
inline Floats make_floats(const F& f) {
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = f(i);
  Floats made;
  std::memcpy(&made, lanes, sizeof lanes);
  return made;
}

inline Floats load_floats(const void* from) {
  Floats a;
  std::memcpy(&a, from, sizeof a);
  return a;
}
inline void store_floats(float* to, const Floats& a) { std::memcpy(to, &a, sizeof a); }
inline Floats spread(float value) {
  const Quad quad = {value, value, value, value};
  return {{quad, quad, quad, quad}};
}
inline Floats zeros() { return spread(0.0f); }

template <class F>
inline Floats each_quad(const F& f) {
  return {{f(0), f(1), f(2), f(3)}};
}
inline Floats add(const Floats& a, const Floats& b) {
  return each_quad([&](int i) { return a.quads[i] + b.quads[i]; });
}
inline Floats sub(const Floats& a, const Floats& b) {
  return each_quad([&](int i) { return a.quads[i] - b.quads[i]; });
}
inline Floats mul(const Floats& a, const Floats& b) {
  return each_quad([&](int i) { return a.quads[i] * b.quads[i]; });
}
// a b + c, rounded twice.
inline Floats fma(const Floats& a, const Floats& b, const Floats& c) {
  return each_quad([&](int i) { return a.quads[i] * b.quads[i] + c.quads[i]; });
}
// The larger; NaN where one is.
inline float larger(float a, float b) { return a > b || a != a ? a : b; }
inline Floats larger(const Floats& a, const Floats& b) {
  return make_floats([&](int i) { return larger(a[i], b[i]); });
}
// The larger; b where one is NaN.
inline Floats larger_number(const Floats& a, const Floats& b) {
  return make_floats([&](int i) { return a[i] > b[i] ? a[i] : b[i]; });
}

inline std::uint16_t load_u16(const void* from, int index) {
  std::uint16_t bits;
  std::memcpy(&bits, static_cast<const std::byte*>(from) + index * 2, sizeof bits);
  return bits;
}
inline Floats load_f16(const void* from) {
  return make_floats([&](int i) { return f32_from_f16(load_u16(from, i)); });
}
// The first and the second of each pair of bf16.
inline Floats load_even_bf16(const void* from) {
  return make_floats([&](int i) { return f32_from_bf16(load_u16(from, 2 * i)); });
}
inline Floats load_odd_bf16(const void* from) {
  return make_floats([&](int i) { return f32_from_bf16(load_u16(from, 2 * i + 1)); });
}

// Lanes [begin, end) of a, `other` elsewhere.
inline Floats only(const Floats& a, int begin, int end, const Floats& other) {
  return make_floats([&](int i) { return i >= begin && i < end ? a[i] : other[i]; });
}

// 2^a for a <= 0, as exact as can be; 0 below 2^-125.
template <int kDegree = 5>
inline Floats exp2(const Floats& a) {
  return make_floats([&](int i) { return a[i] < -125.0f ? 0.0f : std::exp2(a[i]); });
}
inline Quad exp2(const Quad& a) { return exp2(Floats{{a, a, a, a}}).quads[0]; }

// Folds the lanes as a tree.
inline float sum_of(const Floats& a) {
  const Quad fours = (a.quads[0] + a.quads[2]) + (a.quads[1] + a.quads[3]);
  return (fours[0] + fours[2]) + (fours[1] + fours[3]);
}
// The largest lane; NaN where one is.
inline float largest_of(const Floats& a) {
  float largest = a[0];
  for (int i = 1; i < kLanes; ++i) largest = larger(largest, a[i]);
  return largest;
}

// Folds the lanes of four rows: those of row i become lane i.
inline Quad sums_of_rows(const Floats (&rows)[4]) {
  return Quad{sum_of(rows[0]), sum_of(rows[1]), sum_of(rows[2]), sum_of(rows[3])};
}
inline Quad largest_of_rows(const Floats (&rows)[4]) {
  return Quad{largest_of(rows[0]), largest_of(rows[1]), largest_of(rows[2]), largest_of(rows[3])};
}

inline void prefetch(const std::byte*) {}
inline void prefetch_nearest(const std::byte*) {}

}  // namespace
}  // namespace quire
