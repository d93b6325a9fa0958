// The rotation of rotation.h by lanes: the same operations on the same numbers, so the same bits.
// Included behind encode_avx2.h or encode_avx512.h; everything here has internal linkage, as there.
#pragma once

#include "codec/rotation/rotation.h"

namespace quire {
namespace {

// The sums of codec/lane_sums.h, of vectors that come in the order of channels: number i of a group
// of 16 channels is added to sums[i].
constexpr int kSums = 16 / kLanes;
struct LaneSums {
  Floats sums[kSums];

  LaneSums() {
    for (Floats& sum : sums) sum = zeros();
  }
  float total() const { return fold(sums); }
};

// Correctly rounded, as std::sqrt.
inline float root(float a) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a))); }

// One number as f16, and back.
inline std::uint16_t half_of(float a) {
  const __m128i halves = _mm_cvtps_ph(_mm_set_ss(a), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return static_cast<std::uint16_t>(_mm_cvtsi128_si32(halves));
}
inline float of_half(std::uint16_t a) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(a))); }

class LaneRotation {
 public:
  explicit LaneRotation(const TileShape& shape)
      : shape_(shape), transform_(transform_of(shape.dim)) {
    for (int ch = 0; ch < shape.dim; ch += 64) {
      const std::uint64_t word = sign_word(shape.seed, ch / 64);
      for (int i = 0; i < 64; i += kLanes) {
        const Bits lanes = spread(static_cast<std::uint32_t>(word >> i)) >> count_up();
        store_bits(signs_ + ch + i, lanes << 31);
      }
    }
  }

  // Writes the rotated row, and zeros up to a multiple of 16, to y [dim rounded up to 16].
  // Answers <y, y>.
  template <DType kRow>
  float rotate_row(const std::byte* row, float* y) const {
    const int dim = shape_.dim;
    Floats last = spread(1.0f);
    if (transform_.block < kLanes) {  // not in whole vectors
      for (int ch = 0; ch < dim; ch += kLanes) {
        const int left = dim - ch < kLanes ? dim - ch : kLanes;
        store_floats(y + ch, load<kRow>(row + ch * static_cast<int>(kBytesOf<kRow>), left));
      }
      turn_narrow(y);
    } else {
      for (int ch = 0; ch < dim; ch += kLanes) {
        const Bits x = bits_of(load<kRow>(row + ch * static_cast<int>(kBytesOf<kRow>)));
        store_floats(y + ch, in_lanes(floats_of(x ^ load_bits(signs_ + ch))));
      }
      across_lanes(y, false);
      last = spread(transform_.last);
    }
    for (int ch = dim; ch % 16 != 0; ++ch) y[ch] = 0.0f;
    LaneSums squares;
    for (int ch = 0; ch < dim; ch += 16) {
      for (int i = 0; i < kSums; ++i) {
        float* at = y + ch + i * kLanes;
        const Floats a = mul(load_floats(at), last);
        store_floats(at, a);
        squares.sums[i] = add(squares.sums[i], mul(a, a));
      }
    }
    return squares.total();
  }

  // Turns rows [dim], `stride` floats apart, in place, and back.
  void turn(float* rows, std::size_t count, std::size_t stride) const {
    for (std::size_t i = 0; i < count; ++i) turn(rows + i * stride);
  }
  void turn_back(float* rows, std::size_t count, std::size_t stride) const {
    for (std::size_t i = 0; i < count; ++i) turn_back(rows + i * stride);
  }

 private:
  void turn(float* y) const {
    if (transform_.block < kLanes) return turn_narrow(y);
    for (int ch = 0; ch < shape_.dim; ch += kLanes) {
      const Bits x = load_bits(y + ch) ^ load_bits(signs_ + ch);
      store_floats(y + ch, in_lanes(floats_of(x)));
    }
    across_lanes(y, false);
    for (int ch = 0; ch < shape_.dim; ch += kLanes) {
      store_floats(y + ch, mul(load_floats(y + ch), spread(transform_.last)));
    }
  }
  void turn_back(float* y) const {
    if (transform_.block < kLanes) return turn_narrow_back(y);
    for (int ch = 0; ch < shape_.dim; ch += kLanes) {
      store_floats(y + ch, in_lanes(load_floats(y + ch)));
    }
    across_lanes(y, true);
    for (int ch = 0; ch < shape_.dim; ch += kLanes) {
      const Floats x = mul(load_floats(y + ch), spread(transform_.last));
      store_bits(y + ch, bits_of(x) ^ load_bits(signs_ + ch));
    }
  }

  // Blocks that are no whole vectors: by lanes of half as many, or one by one.
  void turn_narrow(float* y) const {
    if constexpr (kLanes == 16) return rotate_rows_avx2(shape_, y, 1, 0);
    rotate(shape_, y);
  }
  void turn_narrow_back(float* y) const {
    if constexpr (kLanes == 16) return rotate_rows_back_avx2(shape_, y, 1, 0);
    rotate_back(shape_, y);
  }

  // The butterflies between lanes of one vector, then all that is between vectors.
  static Floats in_lanes(Floats a) {
    a = butterfly<4>(butterfly<2>(butterfly<1>(a)));
    if constexpr (kLanes == 16) a = butterfly<8>(a);
    return a;
  }
  void across_lanes(float* y, bool back) const {
    int half = kLanes;
    for (; 4 * half <= transform_.block; half *= 4) two_butterflies(y, half);
    if (half < transform_.block) butterflies(y, half);
    int step = transform_.block;
    for (int i = 0; transform_.factors[i] != 0; ++i) {
      const int p = transform_.factors[i];
      if (p < kFirstPaley) {
        reflect(y, p, step);
      } else {
        apply_paley(y, p, step, back ? p - 1 : 1);
      }
      step *= p;
    }
  }

  // Numbers at a distance of `half`.
  void butterflies(float* y, int half) const {
    for (int first = 0; first < shape_.dim; first += 2 * half) {
      for (int ch = first; ch < first + half; ch += kLanes) {
        const Floats u = load_floats(y + ch);
        const Floats v = load_floats(y + ch + half);
        store_floats(y + ch, add(u, v));
        store_floats(y + ch + half, sub(u, v));
      }
    }
  }

  // At `half`, then at twice that.
  void two_butterflies(float* y, int half) const {
    for (int first = 0; first < shape_.dim; first += 4 * half) {
      for (int ch = first; ch < first + half; ch += kLanes) {
        const Floats a = load_floats(y + ch);
        const Floats b = load_floats(y + ch + half);
        const Floats c = load_floats(y + ch + 2 * half);
        const Floats d = load_floats(y + ch + 3 * half);
        const Floats ab = add(a, b);
        const Floats cd = add(c, d);
        const Floats a_b = sub(a, b);
        const Floats c_d = sub(c, d);
        store_floats(y + ch, add(ab, cd));
        store_floats(y + ch + half, add(a_b, c_d));
        store_floats(y + ch + 2 * half, sub(ab, cd));
        store_floats(y + ch + 3 * half, sub(a_b, c_d));
      }
    }
  }

  void reflect(float* y, int p, int step) const {
    const Floats part = spread(2.0f / static_cast<float>(p));
    for (int first = 0; first < shape_.dim; first += p * step) {
      for (int ch = first; ch < first + step; ch += kLanes) {
        Floats sum = load_floats(y + ch);
        for (int a = 1; a < p; ++a) sum = add(sum, load_floats(y + ch + a * step));
        const Floats taken = mul(sum, part);
        for (int a = 0; a < p; ++a) {
          store_floats(y + ch + a * step, sub(load_floats(y + ch + a * step), taken));
        }
      }
    }
  }

  void apply_paley(float* y, int p, int step, int turn) const {
    const Paley paley = paley_of(p);
    alignas(64) float x[kMaxRotatedDim];  // [p][lane]: steps are whole vectors
    for (int first = 0; first < shape_.dim; first += p * step) {
      for (int ch = first; ch < first + step; ch += kLanes) {
        Floats sum = load_floats(y + ch);
        store_floats(x, sum);
        for (int a = 1; a < p; ++a) {
          const Floats next = load_floats(y + ch + a * step);
          store_floats(x + a * kLanes, next);
          sum = add(sum, next);
        }
        const Floats of_all = mul(sum, spread(paley.all));
        for (int a = 0; a < p; ++a) {
          Floats near = paley.own ? load_floats(x + a * kLanes) : zeros();
          for (int n = 1, place = a; n < p; ++n) {
            place += turn;
            if (place >= p) place -= p;
            const Floats neighbour = load_floats(x + place * kLanes);
            near =
                paley.added[n / 64] >> (n % 64) & 1 ? add(near, neighbour) : sub(near, neighbour);
          }
          store_floats(y + ch + a * step, add(mul(near, spread(paley.near)), of_all));
        }
      }
    }
  }

  TileShape shape_;
  Transform transform_;
  // The sign bit of channels that are negated.
  alignas(64) std::uint32_t signs_[kMaxRotatedDim];
};

}  // namespace
}  // namespace quire
