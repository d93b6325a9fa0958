#if defined(__x86_64__)

#include "codec/encode_avx512.h"
// After the lanes it is written with.
#include "base/elements.h"
#include "codec/rotation/rotate_lanes.h"

namespace quire {

void rotate_rows_avx512(const TileShape& shape, float* rows, std::size_t count,
                        std::size_t stride) noexcept {
  const LaneRotation rotation(shape);
  for (std::size_t i = 0; i < count; ++i) rotation.turn(rows + i * stride);
}

void rotate_rows_back_avx512(const TileShape& shape, float* rows, std::size_t count,
                             std::size_t stride) noexcept {
  const LaneRotation rotation(shape);
  for (std::size_t i = 0; i < count; ++i) rotation.turn_back(rows + i * stride);
}

}  // namespace quire

#endif
