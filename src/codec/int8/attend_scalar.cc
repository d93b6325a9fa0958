#include "codec/ints_scalar.h"
// After the lanes it is written with.
#include "codec/int8/attend.h"
#include "codec/int8/kernels.h"

namespace quire {

const Kernel kInt8KernelScalar = kInt8Kernel;

}  // namespace quire
