#if defined(__x86_64__)

#include "codec/encode_avx512.h"
// After the lanes it is written with.
#include "codec/int8/encode.h"

namespace quire {

void encode_int8_avx512(const TileShape& shape, DType row_type, const std::byte* rows, int count,
                        std::byte* data, std::byte* scales) noexcept {
  encode_int8(shape, row_type, rows, count, data, scales);
}

}  // namespace quire

#endif
