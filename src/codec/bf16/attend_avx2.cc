#if defined(__x86_64__)
#include "base/lanes_avx2.h"
#include "codec/bf16/attend.h"
#include "codec/bf16/kernels.h"

namespace quire {

const Kernel kBf16KernelAvx2 = kBf16Kernel;

}  // namespace quire
#endif
