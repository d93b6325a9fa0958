#if defined(__x86_64__)

#include "codec/encode_avx2.h"
// After the lanes it is written with.
#include "base/elements.h"
#include "codec/rotation/rotate_lanes.h"

namespace quire {

void rotate_rows_avx2(const TileShape& shape, float* rows, std::size_t count,
                      std::size_t stride) noexcept {
  LaneRotation(shape).turn(rows, count, stride);
}

void rotate_rows_back_avx2(const TileShape& shape, float* rows, std::size_t count,
                           std::size_t stride) noexcept {
  LaneRotation(shape).turn_back(rows, count, stride);
}

}  // namespace quire

#endif
