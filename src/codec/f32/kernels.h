// The attention kernels of f32, one for each instruction set.
#pragma once

#include "codec/kernel.h"

namespace quire {

extern const Kernel kF32KernelScalar;
extern const Kernel kF32KernelAvx2;
extern const Kernel kF32KernelAvx512;

}  // namespace quire
