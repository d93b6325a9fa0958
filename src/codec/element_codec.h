// A codec that rounds each element by itself and keeps no scale, made from how one element is
// written. The float codecs and fp8 are this and nothing more:
//
//     struct F16Element {
//       using Code = std::uint16_t;
//       static constexpr const char* kName = "f16";
//       static constexpr std::optional<DType> kLossless = DType::f16;
//       static constexpr int kPack = 1;  // as in codec/tile.h
//       static constexpr std::array<const Kernel*, kIsas> kKernels = QUIRE_KERNELS(kF16Kernel);
//       static constexpr Encoders kEncoders = kF16Encoders;
//       static constexpr float kLargest = 65519.996f;  // as Codec::largest
//       static Code encode(float value) noexcept;
//       static float decode(Code code) noexcept;
//     };
//     const Codec kF16Codec = element_codec<F16Element>();
#pragma once

#include <cstddef>
#include <cstring>

#include "codec/codec.h"
#include "codec/encode.h"
#include "codec/tile.h"

namespace quire {

template <typename Element>
struct ElementCodec {
  using Code = typename Element::Code;
  static constexpr int kPack = Element::kPack;

  static std::size_t data_bytes(const TileShape& shape) noexcept {
    return stored_codes(shape, kPack) * sizeof(Code);
  }

  static std::size_t scale_bytes(const TileShape&) noexcept { return 0; }

  static void encode_slot(const TileShape& shape, const float* row, int slot, std::byte* data,
                          std::byte*) noexcept {
    const SlotPlace place = slot_place(shape, kPack, slot);
    const auto dim = static_cast<std::size_t>(shape.dim);
    for (std::size_t ch = 0; ch < dim; ++ch) {
      store_code(data, place.at(ch), Element::encode(row[ch]));
    }
    clear_padding<Code>(shape, kPack, place, data);
  }

  static void encode(const TileShape& shape, const float* rows, int count, std::byte* data,
                     std::byte* scales) noexcept {
    std::memset(data, 0, data_bytes(shape));
    for (int slot = 0; slot < count; ++slot) {
      encode_slot(shape, rows, slot, data, scales);
      rows += shape.dim;
    }
  }

  static void decode(const TileShape& shape, const std::byte* data, const std::byte*, int first,
                     int count, float* rows) noexcept {
    const auto dim = static_cast<std::size_t>(shape.dim);
    for (int slot = first; slot < first + count; ++slot) {
      const SlotPlace place = slot_place(shape, kPack, slot);
      for (std::size_t ch = 0; ch < dim; ++ch) {
        rows[ch] = Element::decode(load_code<Code>(data, place.at(ch)));
      }
      rows += dim;
    }
  }

  static void copy_slot(const TileShape& shape, const std::byte* data, const std::byte*, int slot,
                        std::byte* to_data, std::byte*, int to_slot) noexcept {
    copy_slot_codes<Code>(shape, kPack, data, slot, to_data, to_slot);
  }
};

template <typename Element>
constexpr Codec element_codec() {
  using Functions = ElementCodec<Element>;
  return {.name = Element::kName,
          .lossless = Element::kLossless,
          .data_bytes = Functions::data_bytes,
          .scale_bytes = Functions::scale_bytes,
          .largest = Element::kLargest,
          .encode = Functions::encode,
          .decode = Functions::decode,
          .encode_rows = Element::kEncoders,
          .kernels = Element::kKernels,
          .encode_slot = Functions::encode_slot,
          .copy_slot = Functions::copy_slot};
}

}  // namespace quire
