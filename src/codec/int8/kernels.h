// The attention kernels of int8, one for each instruction set.
#pragma once

#include "codec/kernel.h"

namespace quire {

extern const Kernel kInt8KernelScalar;
extern const Kernel kInt8KernelAvx2;
extern const Kernel kInt8KernelAvx512;

}  // namespace quire
