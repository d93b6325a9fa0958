// The attention kernels of the fp8 codecs, one for each instruction set.
#pragma once

#include "codec/kernel.h"

namespace quire {

extern const Kernel kFp8E4m3KernelScalar;
extern const Kernel kFp8E4m3KernelAvx2;
extern const Kernel kFp8E4m3KernelAvx512;
extern const Kernel kFp8E5m2KernelScalar;
extern const Kernel kFp8E5m2KernelAvx2;
extern const Kernel kFp8E5m2KernelAvx512;

}  // namespace quire
