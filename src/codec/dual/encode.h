// Codes of dual by lanes; see dual.cc for what they are. Included behind encode_avx2.h or
// encode_avx512.h; everything here has internal linkage, as there.
#pragma once

#include "codec/encode.h"
// After the lanes they are written with.
#include "base/elements.h"
#include "codec/planes_lanes.h"
#include "codec/rotation/rotate_lanes.h"

namespace quire {
namespace {

template <int kBits>
class DualEncoder {
 public:
  explicit DualEncoder(const TileShape& shape) : shape_(shape), rotation_(shape) {}

  template <DType kRow>
  void encode(const std::byte* rows, int count, std::byte* data, std::byte* scales) {
    const int dim = shape_.dim;
    const int slots = (shape_.slots + 15) / 16 * 16;
    std::memset(scales, 0, static_cast<std::size_t>(slots + 2 * dim) * 2);
    keeps_ = count * padded_dim() <= kKept;
    if (!find_ranges<kRow>(rows, count, scales)) count = 0;
    store_ranges(count > 0, scales + slots * 2, scales + (slots + dim) * 2);
    for (int first = 0; first < slots; first += 16) {
      if (first >= count) {
        const int bytes_left = (slots - first) * ((dim + 3) / 4 * 4) / 8 * kBits;
        std::memset(data, 0, static_cast<std::size_t>(bytes_left));
        return;
      }
      for (int t = 0; t < 16; ++t) {
        if (first + t < count) {
          encode_row<kRow>(rows, first + t, norm_at(scales, first + t), writer_.codes(t));
        } else {
          clear(writer_.codes(t));
        }
      }
      data = writer_.write(Side::key, dim, data);
    }
  }

 private:
  static constexpr int kSteps = (1 << kBits) - 1;
  static constexpr int kKept = 64 * 128;

  void clear(std::uint8_t* codes) const {
    std::memset(codes, 0, static_cast<std::size_t>(shape_.dim + 3));
  }

  template <DType kRow>
  const std::byte* row_at(const std::byte* rows, int t) const {
    return rows + static_cast<std::ptrdiff_t>(t) * shape_.dim *
                      static_cast<std::ptrdiff_t>(kBytesOf<kRow>);
  }

  int padded_dim() const { return (shape_.dim + 15) / 16 * 16; }
  // Where a rotated row lies: pages that are not too large stay, of others one row at a time does.
  float* place_of(int t) { return y_ + (keeps_ ? t * padded_dim() : 0); }

  static float norm_at(const std::byte* scales, int t) {
    std::uint16_t bits;
    std::memcpy(&bits, scales + t * 2, sizeof bits);
    return of_half(bits);
  }

  // Writes the norms, and sets low_ and high_. False when no token has a norm.
  template <DType kRow>
  bool find_ranges(const std::byte* rows, int count, std::byte* scales) {
    const int dim = shape_.dim;
    const float root_dim = root(static_cast<float>(dim));
    bool any = false;
    for (int t = 0; t < count; ++t) {
      float* y = place_of(t);
      const float square = rotation_.template rotate_row<kRow>(row_at<kRow>(rows, t), y);
      const float norm = root(square) / root_dim;
      const std::uint16_t bits = half_of(norm < 65504.0f ? norm : 65504.0f);
      std::memcpy(scales + t * 2, &bits, sizeof bits);
      if (bits == 0) continue;
      const Floats inverse = spread(1.0f / of_half(bits));
      for (int ch = 0; ch < dim; ch += kLanes) {
        const Floats z = mul(load_floats(y + ch), inverse);
        store_floats(low_ + ch, any ? smaller_of(z, load_floats(low_ + ch)) : z);
        store_floats(high_ + ch, any ? larger_of(z, load_floats(high_ + ch)) : z);
      }
      any = true;
    }
    return any;
  }

  // Writes the ranges as f16, and sets low_ to what was written and high_ to the inverse of steps.
  void store_ranges(bool any, std::byte* low_at, std::byte* step_at) {
    if (!any) return;
    for (int ch = 0; ch < shape_.dim; ch += kLanes) {
      const int left = shape_.dim - ch < kLanes ? shape_.dim - ch : kLanes;
      const std::size_t bytes = static_cast<std::size_t>(left) * 2;
      const Floats low = load_floats(low_ + ch);
      const Floats step = (load_floats(high_ + ch) - low) / static_cast<float>(kSteps);
      std::byte halves[kVectorBytes];
      store_f16(halves, low);
      std::memcpy(low_at + ch * 2, halves, bytes);
      store_floats(low_ + ch, load<DType::f16>(halves));
      store_f16(halves, step);
      std::memcpy(step_at + ch * 2, halves, bytes);
      const Floats stored = load<DType::f16>(halves);
      store_floats(high_ + ch, where_positive(stored, 1.0f / stored));
    }
  }

  template <DType kRow>
  void encode_row(const std::byte* rows, int t, float norm, std::uint8_t* codes) {
    if (norm == 0.0f) return clear(codes);
    const int dim = shape_.dim;
    float* y = place_of(t);
    if (!keeps_) rotation_.template rotate_row<kRow>(row_at<kRow>(rows, t), y);
    const Floats inverse = spread(1.0f / norm);
    for (int ch = 0; ch < dim; ch += kLanes) {
      const Floats z = mul(load_floats(y + ch), inverse);
      const Floats steps = mul(sub(z, load_floats(low_ + ch)), load_floats(high_ + ch));
      const Floats limited =
          smaller_of(spread(static_cast<float>(kSteps)), larger_of(steps, zeros()));
      store_bytes(codes + ch, cut_off(add(limited, spread(0.5f))));
    }
    for (int ch = dim; ch % 4 != 0; ++ch) codes[ch] = 0;
  }

  TileShape shape_;
  LaneRotation rotation_;
  PlaneWriter<kBits> writer_;
  bool keeps_ = false;
  alignas(64) float y_[kKept];
  alignas(64) float low_[kMaxRotatedDim + 16];
  alignas(64) float high_[kMaxRotatedDim + 16];
};

template <int kBits>
inline void encode_dual(const TileShape& shape, DType row_type, const std::byte* rows, int count,
                        std::byte* data, std::byte* scales) {
  DualEncoder<kBits> encoder(shape);
  switch (row_type) {
    case DType::f32:
      return encoder.template encode<DType::f32>(rows, count, data, scales);
    case DType::f16:
      return encoder.template encode<DType::f16>(rows, count, data, scales);
    case DType::bf16:
      return encoder.template encode<DType::bf16>(rows, count, data, scales);
  }
}

}  // namespace
}  // namespace quire
