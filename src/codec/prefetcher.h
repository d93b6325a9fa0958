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

// The same address, but known eight cycles later. What asks for several lines one behind the other
// by it asks for one in 1.9 ns or less often (at 3.7 GHz: 34 GB/s), and holds up the loop around it
// where that is faster. Beyond what a core can have under way requests are dropped, and each line
// that is missing then is waited for: on Zen 4 a line in 1.3 ns lost up to 7 % of them, which made
// decode of bf16 a quarter slower.
QUIRE_INLINE const std::byte* later(const std::byte* at) {
#if defined(__x86_64__)
  asm("imul $1, %0, %0\n\timul $1, %0, %0\n\tadd $0, %0\n\tadd $0, %0" : "+r"(at) : : "cc");
#endif
  return at;
}

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
      back_ = 64 - (lines * 64 + steps - 1) / steps;
    } else {
      each_ = lines / steps;
      more_ = lines % steps;
    }
  }
  QUIRE_INLINE void step() {
    if (more_ > 0) {
      --more_;
      ask();
    }
    if (each_ > 0) ask();
    if (each_ > 1) ask_later();
    if (each_ > 2) ask_later();
    if (each_ > 3) ask_later();
    if (each_ > 4) ask_later();
    at_ -= back_;
  }

 private:
  QUIRE_INLINE void ask() {
    prefetch(at_);
    at_ += 64;
  }
  QUIRE_INLINE void ask_later() {
    at_ = later(at_);
    ask();
  }

  const std::byte* at_;
  int each_ = 0;             // lines of a step
  int more_ = 0;             // steps that ask for one more
  std::ptrdiff_t back_ = 0;  // where steps are more than lines: of the line that was asked for
};

}  // namespace
}  // namespace quire
