#if defined(__x86_64__)
#include "base/lanes_avx512.h"
#include "codec/f16/attend.h"
#include "codec/f16/kernels.h"

namespace quire {

const Kernel kF16KernelAvx512 = kF16Kernel;

}  // namespace quire
#endif
