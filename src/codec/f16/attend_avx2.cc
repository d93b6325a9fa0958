#if defined(__x86_64__)
#include "base/lanes_avx2.h"
#include "codec/f16/attend.h"
#include "codec/f16/kernels.h"

namespace quire {

const Kernel kF16KernelAvx2 = kF16Kernel;

}  // namespace quire
#endif
