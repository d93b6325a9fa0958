#if defined(__x86_64__)
#include "base/lanes_avx2.h"

// After the lanes it is written in.
#include "attend/softmax_lanes.h"

namespace quire {

extern const Softmax kSoftmaxAvx2;
const Softmax kSoftmaxAvx2 = {raise, rescale, blend};

}  // namespace quire
#endif
