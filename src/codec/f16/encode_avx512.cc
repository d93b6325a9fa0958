#if defined(__x86_64__)

#include "codec/f16/encode.h"

namespace quire {

void encode_f16_avx512(const TileShape& shape, DType row_type, const std::byte* rows, int count,
                       std::byte* data, std::byte*) noexcept {
  encode_f16(shape, row_type, rows, count, data, Isa::avx512);
}

}  // namespace quire

#endif
