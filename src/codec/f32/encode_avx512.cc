#if defined(__x86_64__)

#include "codec/encode_avx512.h"
// After the lanes it is written with.
#include "codec/f32/encode.h"

namespace quire {

void encode_f32_avx512(const TileShape& shape, DType row_type, const std::byte* rows, int count,
                       std::byte* data, std::byte*) noexcept {
  if (shape.side == Side::value) {
    encode_plain_values(shape, row_type, rows, count, DType::f32, data, Isa::avx512);
  } else {
    encode_tiles(shape, row_type, rows, count, data, F32Code{});
  }
}

}  // namespace quire

#endif
