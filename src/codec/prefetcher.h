// What is read next, asked for while something else is multiplied: include after
// base/lanes_<set>.h, whose prefetch() it calls.
//
// Everything here has internal linkage on purpose.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernel.h"

#define QUIRE_INLINE [[gnu::always_inline]] inline

namespace quire {
namespace {

// Lines to prefetch, spread over the steps of a loop: many at once would hold up the loop's own
// loads, and one that is left out costs as much as twenty steps. No loop here, which would keep
// sums from the registers, and no pattern that cannot be foreseen: each step asks for as many
// lines, up to five, the first of them for one more; where steps are more than lines, some ask
// again.
class Prefetcher {
 public:
  QUIRE_INLINE Prefetcher(const Ahead& ahead, int steps)
      : at_(reinterpret_cast<const std::byte*>(reinterpret_cast<std::uintptr_t>(ahead.data) &
                                               ~std::uintptr_t{63})) {
    if (ahead.bytes == 0 || steps == 0) return;
    const int lines = static_cast<int>((ahead.data + ahead.bytes - at_ + 63) / 64);
    if (lines < steps) {
      each_ = 1;
      step_bytes_ = (lines * 64 + steps - 1) / steps;
    } else {
      each_ = lines / steps;
      step_bytes_ = each_ * 64;
      more_ = lines % steps;
    }
  }
  QUIRE_INLINE void step() {
    if (more_ > 0) {
      --more_;
      prefetch(at_);
      at_ += 64;
    }
    if (each_ > 0) prefetch(at_);
    if (each_ > 1) prefetch(at_ + 64);
    if (each_ > 2) prefetch(at_ + 128);
    if (each_ > 3) prefetch(at_ + 192);
    if (each_ > 4) prefetch(at_ + 256);
    at_ += step_bytes_;
  }

 private:
  const std::byte* at_;
  std::ptrdiff_t step_bytes_ = 0;
  int each_ = 0;  // lines of a step
  int more_ = 0;  // steps that ask for one more
};

}  // namespace
}  // namespace quire
