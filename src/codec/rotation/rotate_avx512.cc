#if defined(__x86_64__)

#include "codec/encode_avx512.h"
// After the lanes it is written with.
#include "base/elements.h"
#include "codec/rotation/rotate_lanes.h"

namespace quire {

void rotate_avx512(const TileShape& shape, float* row) noexcept { LaneRotation(shape).turn(row); }
void rotate_back_avx512(const TileShape& shape, float* row) noexcept {
  LaneRotation(shape).turn_back(row);
}

}  // namespace quire

#endif
