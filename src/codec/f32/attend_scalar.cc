#include "base/lanes_scalar.h"
#include "codec/f32/attend.h"
#include "codec/f32/kernels.h"

namespace quire {

const Kernel kF32KernelScalar = kF32Kernel;

}  // namespace quire
