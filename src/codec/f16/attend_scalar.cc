#include "base/lanes_scalar.h"
#include "codec/f16/attend.h"
#include "codec/f16/kernels.h"

namespace quire {

const Kernel kF16KernelScalar = kF16Kernel;

}  // namespace quire
