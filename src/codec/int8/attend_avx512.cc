#if defined(__x86_64__)
#include "codec/ints_avx512.h"
// After the lanes it is written with.
#include "codec/int8/attend.h"
#include "codec/int8/kernels.h"

namespace quire {

const Kernel kInt8KernelAvx512 = kInt8Kernel;

}  // namespace quire
#endif
