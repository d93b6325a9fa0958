#include "codec/ints_scalar.h"
// After the lanes it is written with.
#include "codec/tq/attend.h"
#include "codec/tq/kernels.h"

namespace quire {

const Kernel kTq2KernelScalar = Tq<2>::kernel();
const Kernel kTq3KernelScalar = Tq<3>::kernel();
const Kernel kTq4KernelScalar = Tq<4>::kernel();
const Kernel kTq5KernelScalar = Tq<5>::kernel();
const Kernel kTq6KernelScalar = Tq<6>::kernel();

}  // namespace quire
