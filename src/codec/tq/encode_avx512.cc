#if defined(__x86_64__)

#include "codec/encode_avx512.h"
// After the lanes it is written with.
#include "codec/tq/encode.h"

namespace quire {

#define QUIRE_TQ(bits)                                                                         \
  void encode_tq##bits##_avx512(const TileShape& shape, DType row_type, const std::byte* rows, \
                                int count, std::byte* data, std::byte* scales) noexcept {      \
    encode_tq<bits>(shape, row_type, rows, count, data, scales);                               \
  }
QUIRE_TQ(2)
QUIRE_TQ(3)
QUIRE_TQ(4)
QUIRE_TQ(5)
QUIRE_TQ(6)
#undef QUIRE_TQ

}  // namespace quire

#endif
