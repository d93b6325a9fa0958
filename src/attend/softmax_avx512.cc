#if defined(__x86_64__)
#include "base/lanes_avx512.h"

// After the lanes it is written in.
#include "attend/softmax_lanes.h"

namespace quire {

extern const Softmax kSoftmaxAvx512;
const Softmax kSoftmaxAvx512 = {raise, rescale, blend};

}  // namespace quire
#endif
