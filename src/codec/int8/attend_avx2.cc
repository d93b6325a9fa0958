#if defined(__x86_64__)
#include "codec/ints_avx2.h"
// After the lanes it is written with.
#include "codec/int8/attend.h"
#include "codec/int8/kernels.h"

namespace quire {

const Kernel kInt8KernelAvx2 = kInt8Kernel;

}  // namespace quire
#endif
