#if defined(__x86_64__)

#include "codec/encode_avx2.h"
// After the lanes it is written with.
#include "codec/dual/encode.h"

namespace quire {

#define QUIRE_DUAL(bits)                                                                       \
  void encode_dual##bits##_avx2(const TileShape& shape, DType row_type, const std::byte* rows, \
                                int count, std::byte* data, std::byte* scales) noexcept {      \
    encode_dual<bits>(shape, row_type, rows, count, data, scales);                             \
  }
QUIRE_DUAL(3)
QUIRE_DUAL(4)
QUIRE_DUAL(5)
QUIRE_DUAL(6)
#undef QUIRE_DUAL

}  // namespace quire

#endif
