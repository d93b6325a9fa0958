// Codes of f32 by lanes. Included behind encode_avx2.h or encode_avx512.h.
#pragma once

#include "codec/encode.h"
#include "codec/encode_plain.h"
#include "codec/encode_tiles.h"

namespace quire {
namespace {

struct F32Code {
  static constexpr int kPack = 1;
  static constexpr bool kSigned = false;
  template <DType kRow>
  static constexpr bool kSame = kRow == DType::f32;

  template <DType kRow>
  void begin(const TileRows&, int) {}
  template <DType kRow>
  Bits codes(Floats x, int, int) const {
    return bits_of(x);
  }
};

}  // namespace
}  // namespace quire
