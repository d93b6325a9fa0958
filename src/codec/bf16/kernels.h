// The attention kernels of bf16, one for each instruction set.
#pragma once

#include "codec/kernel.h"

namespace quire {

extern const Kernel kBf16KernelScalar;
extern const Kernel kBf16KernelAvx2;
extern const Kernel kBf16KernelAvx512;

}  // namespace quire
