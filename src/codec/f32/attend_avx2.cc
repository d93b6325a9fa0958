#if defined(__x86_64__)
#include "base/lanes_avx2.h"
#include "codec/f32/attend.h"
#include "codec/f32/kernels.h"

namespace quire {

const Kernel kF32KernelAvx2 = kF32Kernel;

}  // namespace quire
#endif
