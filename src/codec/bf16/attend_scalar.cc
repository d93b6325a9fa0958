#include "base/lanes_scalar.h"
#include "codec/bf16/attend.h"
#include "codec/bf16/kernels.h"

namespace quire {

const Kernel kBf16KernelScalar = kBf16Kernel;

}  // namespace quire
