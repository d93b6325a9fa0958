#include "base/lanes_scalar.h"
#include "codec/fp8/kernels.h"

namespace quire {
namespace {

// Floats 0, 1 in all pairs of lanes.
inline Floats spread_pair(const std::byte* at) {
  float pair[2];
  std::memcpy(pair, at, sizeof pair);
  return make_floats([&](int i) { return pair[i % 2]; });
}

// Sums of neighbouring lanes: those of `low`, then those of `high`.
inline Floats add_pairs(const Floats& low, const Floats& high) {
  return make_floats([&](int i) {
    const Floats& half = i < kLanes / 2 ? low : high;
    const int pair = i % (kLanes / 2) * 2;
    return half[pair] + half[pair + 1];
  });
}

// Lanes 0, 2, 1, 3 of each four.
inline Floats even_then_odd(const Floats& a) {
  return make_floats([&](int i) { return a[(i & ~3) + (i & 1) * 2 + (i >> 1 & 1)]; });
}

}  // namespace
}  // namespace quire

#include "codec/fp8/attend.h"

namespace quire {
namespace {

template <float (*decode)(std::uint8_t) noexcept>
struct Fp8Format {
  static constexpr float kScale = 1.0f;
  static Quads unpack(const std::byte* data) {
    // Pair lanes of one half: bytes `first` and first + 2 of each lane's four.
    const auto half = [&](int lane, int first) {
      return make_floats([&](int i) {
        return decode(static_cast<std::uint8_t>(data[(lane + i / 2) * 4 + first + i % 2 * 2]));
      });
    };
    return {half(0, 0), half(kLanes / 2, 0), half(0, 1), half(kLanes / 2, 1)};
  }
};

}  // namespace

const Kernel kFp8E4m3KernelScalar = fp8_kernel<Fp8Format<f32_from_e4m3>>();
const Kernel kFp8E5m2KernelScalar = fp8_kernel<Fp8Format<f32_from_e5m2>>();

}  // namespace quire
