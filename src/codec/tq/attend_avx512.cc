#if defined(__x86_64__)
#include "codec/ints_avx512.h"
// After the lanes it is written with.
#include "codec/tq/attend.h"
#include "codec/tq/kernels.h"

namespace quire {

const Kernel kTq2KernelAvx512 = Tq<2>::kernel();
const Kernel kTq3KernelAvx512 = Tq<3>::kernel();
const Kernel kTq4KernelAvx512 = Tq<4>::kernel();
const Kernel kTq5KernelAvx512 = Tq<5>::kernel();
const Kernel kTq6KernelAvx512 = Tq<6>::kernel();

}  // namespace quire
#endif
