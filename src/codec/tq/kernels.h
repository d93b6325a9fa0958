// The attention kernels of tq, one for each number of bits and instruction set.
#pragma once

#include "codec/kernel.h"

namespace quire {

#define QUIRE_TQ_KERNELS(bits)                 \
  extern const Kernel kTq##bits##KernelScalar; \
  extern const Kernel kTq##bits##KernelAvx2;   \
  extern const Kernel kTq##bits##KernelAvx512;
QUIRE_TQ_KERNELS(2)
QUIRE_TQ_KERNELS(3)
QUIRE_TQ_KERNELS(4)
QUIRE_TQ_KERNELS(5)
QUIRE_TQ_KERNELS(6)
#undef QUIRE_TQ_KERNELS

}  // namespace quire
