#if defined(__x86_64__)
#include "codec/ints_avx2.h"
// After the lanes it is written with.
#include "codec/tq/attend.h"
#include "codec/tq/kernels.h"

namespace quire {

const Kernel kTq2KernelAvx2 = Tq<2>::kernel();
const Kernel kTq3KernelAvx2 = Tq<3>::kernel();
const Kernel kTq4KernelAvx2 = Tq<4>::kernel();
const Kernel kTq5KernelAvx2 = Tq<5>::kernel();
const Kernel kTq6KernelAvx2 = Tq<6>::kernel();

}  // namespace quire
#endif
