// The attention kernels of dual, one for each number of bits and instruction set.
#pragma once

#include "codec/kernel.h"

namespace quire {

#define QUIRE_DUAL_KERNELS(bits)                 \
  extern const Kernel kDual##bits##KernelScalar; \
  extern const Kernel kDual##bits##KernelAvx2;   \
  extern const Kernel kDual##bits##KernelAvx512;
QUIRE_DUAL_KERNELS(3)
QUIRE_DUAL_KERNELS(4)
QUIRE_DUAL_KERNELS(5)
QUIRE_DUAL_KERNELS(6)
#undef QUIRE_DUAL_KERNELS

}  // namespace quire
