#if defined(__x86_64__)

#include "codec/encode_avx512.h"
// After the lanes it is written with.
#include "codec/fp8/encode.h"

namespace quire {

void encode_e4m3_avx512(const TileShape& shape, DType row_type, const std::byte* rows, int count,
                        std::byte* data, std::byte*) noexcept {
  encode_tiles(shape, row_type, rows, count, data, E4m3Code{});
}

void encode_e5m2_avx512(const TileShape& shape, DType row_type, const std::byte* rows, int count,
                        std::byte* data, std::byte*) noexcept {
  encode_tiles(shape, row_type, rows, count, data, E5m2Code{});
}

}  // namespace quire

#endif
