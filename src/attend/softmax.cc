#include "attend/softmax.h"

namespace quire {

extern const Softmax kSoftmaxScalar;
extern const Softmax kSoftmaxAvx2;
extern const Softmax kSoftmaxAvx512;

const Softmax& softmax_of(Isa isa) noexcept {
#if defined(__x86_64__)
  if (isa == Isa::avx2) return kSoftmaxAvx2;
  if (isa == Isa::avx512) return kSoftmaxAvx512;
#endif
  return kSoftmaxScalar;
}

}  // namespace quire
