#if defined(__x86_64__)
#include "codec/ints_avx2.h"
// After the lanes it is written with.
#include "codec/dual/attend.h"
#include "codec/dual/kernels.h"

namespace quire {

const Kernel kDual3KernelAvx2 = Dual<3>::kernel();
const Kernel kDual4KernelAvx2 = Dual<4>::kernel();
const Kernel kDual5KernelAvx2 = Dual<5>::kernel();
const Kernel kDual6KernelAvx2 = Dual<6>::kernel();

}  // namespace quire
#endif
