// Integers in plain C++, for kernels that multiply codes of 8 bits and less. Everything here has
// internal linkage on purpose, as in base/lanes_scalar.h.
#pragma once

#include "base/lanes_scalar.h"

namespace quire {
namespace {

struct Ints {
  std::int32_t lanes[kLanes];
};

template <class F>
inline Ints make_ints(const F& f) {
  Ints made;
  for (int i = 0; i < kLanes; ++i) made.lanes[i] = f(i);
  return made;
}

// The 16-bit halves of a lane.
inline std::int32_t low_half(std::int32_t a) { return static_cast<std::int16_t>(a & 0xffff); }
inline std::int32_t high_half(std::int32_t a) { return a >> 16; }
inline std::int32_t halves(std::int32_t low, std::int32_t high) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(high) << 16 |
                                   (static_cast<std::uint32_t>(low) & 0xffffu));
}
inline std::int32_t byte_of(std::int32_t a, int index) {
  return static_cast<std::int8_t>(static_cast<std::uint32_t>(a) >> (8 * index) & 0xffu);
}

inline Ints zero_ints() {
  return make_ints([](int) { return 0; });
}
inline Ints load_ints(const std::byte* from) {
  Ints a;
  std::memcpy(&a, from, sizeof a);
  return a;
}
inline void store_ints(std::byte* to, const Ints& a) { std::memcpy(to, &a, sizeof a); }
inline Ints spread_ints(const std::byte* at) {
  std::int32_t lane;
  std::memcpy(&lane, at, sizeof lane);
  return make_ints([&](int) { return lane; });
}
// Bytes 0 and 2, or 1 and 3, of each four, widened to 16 bits.
inline Ints even_bytes(const Ints& a) {
  return make_ints([&](int i) { return halves(byte_of(a.lanes[i], 0), byte_of(a.lanes[i], 2)); });
}
inline Ints odd_bytes(const Ints& a) {
  return make_ints([&](int i) { return halves(byte_of(a.lanes[i], 1), byte_of(a.lanes[i], 3)); });
}
inline Ints even_unsigned(const Ints& a) {
  return make_ints([&](int i) { return a.lanes[i] & 0x00ff00ff; });
}
inline Ints odd_unsigned(const Ints& a) {
  return make_ints([&](int i) { return a.lanes[i] >> 8 & 0x00ff00ff; });
}
// Sums are modulo 2^32, as those of vectors are.
inline std::int32_t wrapped_sum(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}
// sum + the products of both 16-bit halves of each lane.
inline Ints add_dots(const Ints& sum, const Ints& a, const Ints& b) {
  return make_ints([&](int i) {
    return wrapped_sum(sum.lanes[i], low_half(a.lanes[i]) * low_half(b.lanes[i]) +
                                         high_half(a.lanes[i]) * high_half(b.lanes[i]));
  });
}
inline Floats to_floats(const Ints& a) {
  return make_floats([&](int i) { return static_cast<float>(a.lanes[i]); });
}

// Magnitudes are compared as bits, in which NaN is the largest.
inline Floats larger_magnitude(const Floats& a, const Floats& b) {
  return make_floats([&](int i) {
    const auto bits = std::bit_cast<std::uint32_t>(b[i]) & 0x7fffffffu;
    const auto before = std::bit_cast<std::uint32_t>(a[i]);
    return std::bit_cast<float>(before > bits ? before : bits);
  });
}
inline float largest_magnitude_of(const Floats& a) {
  std::uint32_t largest = 0;
  for (int i = 0; i < kLanes; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(a[i]);
    largest = largest > bits ? largest : bits;
  }
  return std::bit_cast<float>(largest);
}

inline Quad largest_magnitudes_of_rows(const Floats (&rows)[4]) {
  return Quad{largest_magnitude_of(rows[0]), largest_magnitude_of(rows[1]),
              largest_magnitude_of(rows[2]), largest_magnitude_of(rows[3])};
}

inline void sums_of_int_rows(const Ints (&rows)[4], std::int32_t* out) {
  for (int r = 0; r < 4; ++r) {
    out[r] = 0;
    for (int i = 0; i < kLanes; ++i) out[r] = wrapped_sum(out[r], rows[r].lanes[i]);
  }
}

// A byte of a lane, as it lies in memory.
inline std::uint8_t memory_byte(const Ints& a, int index) {
  std::uint8_t byte;
  std::memcpy(&byte, reinterpret_cast<const char*>(&a) + index, 1);
  return byte;
}
template <class F>
inline Ints make_bytes(const F& f) {
  std::uint8_t bytes[4 * kLanes];
  for (int i = 0; i < 4 * kLanes; ++i) bytes[i] = static_cast<std::uint8_t>(f(i));
  Ints made;
  std::memcpy(&made, bytes, sizeof bytes);
  return made;
}

// sum + the products of the four bytes of each lane, those of `a` unsigned, those of `b` signed.
inline Ints add_byte_dots(const Ints& sum, const Ints& a, const Ints& b) {
  return make_ints([&](int i) {
    std::int32_t lane = sum.lanes[i];
    for (int j = 0; j < 4; ++j) {
      lane += (byte_of(a.lanes[i], j) & 0xff) * byte_of(b.lanes[i], j);
    }
    return lane;
  });
}
constexpr bool kKeepsSpread = false;
constexpr bool kHasShortSums = false;
inline Ints sub_ints(const Ints& a, const Ints& b) {
  return make_ints([&](int i) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a.lanes[i]) -
                                     static_cast<std::uint32_t>(b.lanes[i]));
  });
}

// Bits [shift, shift + width) of each byte.
template <int kWidth>
inline Ints byte_bits(const Ints& a, int shift) {
  return make_bytes([&](int i) { return memory_byte(a, i) >> shift & ((1 << kWidth) - 1); });
}
// Half a unit of a plane of 1 bit: 32 bytes, twice, the second time from bit 1 on.
inline Ints half_unit(const std::byte* from) {
  return make_bytes([&](int i) { return std::to_integer<int>(from[i % 32]) >> i / 32; });
}
// `low` of kLow bits, and above it bits [shift, shift + kHigh) of `high`, byte by byte.
template <int kLow, int kHigh>
inline Ints join_bits(const Ints& low, const Ints& high, int shift) {
  return make_bytes([&](int i) {
    return memory_byte(low, i) | (memory_byte(high, i) >> shift & ((1 << kHigh) - 1)) << kLow;
  });
}

// Bytes by codes of kBits bits, from a table of 64 that repeats them.
template <int kBits>
struct ByteTable {
  static constexpr bool kTakesPlanes = false;
  const std::int8_t* bytes;
  explicit ByteTable(const std::int8_t* from) : bytes(from) {}
  Ints at(const Ints& codes) const {
    return make_bytes([&](int i) { return bytes[memory_byte(codes, i)]; });
  }
};

// Rounds, ties to even.
inline int rounded(float a, float low, float high) {
  // What is no number is multiplied by a scale that is none.
  return a >= low - 1.0f && a <= high + 1.0f ? static_cast<int>(std::nearbyint(a < low    ? low
                                                                               : a > high ? high
                                                                                          : a))
                                             : 0;
}
// Floats rounded to bytes, in their order.
inline Ints signed_bytes(const Floats (&a)[4]) {
  return make_bytes([&](int i) { return rounded(a[i / kLanes][i % kLanes], -128.0f, 127.0f); });
}
inline Ints unsigned_bytes(const Floats (&a)[4]) {
  return make_bytes([&](int i) { return rounded(a[i / kLanes][i % kLanes], 0.0f, 255.0f); });
}
// Floats rounded to 16-bit integers, in the order 0, 2, 1, 3 of each four.
inline Ints quad_words(const Floats& a, const Floats& b) {
  return make_ints([&](int i) {
    const Floats& from = i < kLanes / 2 ? a : b;
    const int first = i % (kLanes / 2) / 2 * 4 + i % 2;
    return halves(rounded(from[first], -32768.0f, 32767.0f),
                  rounded(from[first + 2], -32768.0f, 32767.0f));
  });
}

}  // namespace
}  // namespace quire
