#include "codec/ints_scalar.h"
// After the lanes it is written with.
#include "codec/dual/attend.h"
#include "codec/dual/kernels.h"

namespace quire {

const Kernel kDual3KernelScalar = Dual<3>::kernel();
const Kernel kDual4KernelScalar = Dual<4>::kernel();
const Kernel kDual5KernelScalar = Dual<5>::kernel();
const Kernel kDual6KernelScalar = Dual<6>::kernel();

}  // namespace quire
