#include "base/lanes_scalar.h"

// After the lanes it is written in.
#include "attend/softmax_lanes.h"

namespace quire {

extern const Softmax kSoftmaxScalar;
const Softmax kSoftmaxScalar = {raise, rescale, blend};

}  // namespace quire
