#if defined(__x86_64__)
#include "codec/ints_avx512.h"
// After the lanes it is written with.
#include "codec/dual/attend.h"
#include "codec/dual/kernels.h"

namespace quire {

const Kernel kDual3KernelAvx512 = Dual<3>::kernel();
const Kernel kDual4KernelAvx512 = Dual<4>::kernel();
const Kernel kDual5KernelAvx512 = Dual<5>::kernel();
const Kernel kDual6KernelAvx512 = Dual<6>::kernel();

}  // namespace quire
#endif
