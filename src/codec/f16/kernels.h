// The attention kernels of f16, one for each instruction set.
#pragma once

#include "codec/kernel.h"

namespace quire {

extern const Kernel kF16KernelScalar;
extern const Kernel kF16KernelAvx2;
extern const Kernel kF16KernelAvx512;

}  // namespace quire
