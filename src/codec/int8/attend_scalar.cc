#include "base/lanes_scalar.h"
#include "codec/int8/kernels.h"

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
// sum + the products of both 16-bit halves of each lane.
inline Ints add_dots(const Ints& sum, const Ints& a, const Ints& b) {
  return make_ints([&](int i) {
    return sum.lanes[i] + low_half(a.lanes[i]) * low_half(b.lanes[i]) +
           high_half(a.lanes[i]) * high_half(b.lanes[i]);
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

// Rounds to 16-bit integers, ties to even, in the order 0, 2, 1, 3 of each four.
inline void store_quads_i16(std::byte* to, const Floats& a) {
  for (int i = 0; i < kLanes; ++i) {
    const float value = a[(i & ~3) + (i & 1) * 2 + (i >> 1 & 1)];
    // What is no number is multiplied by a scale that is none.
    const auto code = static_cast<std::int16_t>(
        std::fabs(value) <= 32768.0f ? static_cast<int>(std::nearbyint(value)) : 0);
    std::memcpy(to + i * 2, &code, sizeof code);
  }
}

}  // namespace
}  // namespace quire

#include "codec/int8/attend.h"

namespace quire {

const Kernel kInt8KernelScalar = kInt8Kernel;

}  // namespace quire
