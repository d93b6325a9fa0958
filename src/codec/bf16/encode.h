// Codes of bf16 by lanes. Included behind encode_avx2.h or encode_avx512.h.
#pragma once

#include "codec/encode.h"
#include "codec/encode_tiles.h"

namespace quire {
namespace {

struct Bf16Code {
  static constexpr int kPack = 2;
  static constexpr bool kSigned = false;
  template <DType kRow>
  static constexpr bool kSame = kRow == DType::bf16;

  template <DType kRow>
  void begin(const TileRows&, int) {}
  template <DType kRow>
  Bits codes(Floats x, int, int) const {
    return kSame<kRow> ? bits_of(x) >> 16 : bf16_codes(x);
  }
};

}  // namespace
}  // namespace quire
