#if defined(__x86_64__)

#include "codec/encode_avx2.h"
// After the lanes it is written with.
#include "codec/bf16/encode.h"

namespace quire {

void encode_bf16_avx2(const TileShape& shape, DType row_type, const std::byte* rows, int count,
                      std::byte* data, std::byte*) noexcept {
  encode_tiles(shape, row_type, rows, count, data, Bf16Code{});
}

}  // namespace quire

#endif
