// What is read next, asked for while something else is multiplied: include after
// base/lanes_<set>.h, whose prefetch() and prefetch_nearest() it calls.
//
// Everything here has internal linkage on purpose.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernel.h"

#define QUIRE_INLINE [[gnu::always_inline]] inline

namespace quire {
namespace {

// The same address, but known later: three cycles where lines come into the nearest cache, six
// where they come into the one behind. What asks for several lines one behind the other by it asks
// for one in seven cycles (these and the addition; at 3.7 GHz 1.9 ns), for four of a step in 22
// (1.5 ns a line), and holds up the loop around it where that is faster. Beyond what a core can
// have under way requests are dropped, and each line that is missing then is waited for: on Zen 4 a
// line in 1.3 ns lost up to 7 % of them: decode of bf16 was a quarter slower. Zen 5 takes more.
template <bool kNearest>
QUIRE_INLINE const std::byte* later(const std::byte* at) {
#if defined(__x86_64__)
  if constexpr (kNearest) {
    asm("imul $1, %0, %0" : "+r"(at) : : "cc");
  } else {
    asm("imul $1, %0, %0\n\timul $1, %0, %0" : "+r"(at) : : "cc");
  }
#endif
  return at;
}

// Lines to prefetch, spread over the steps of a loop: many at once would hold up the loop's own
// loads, and one that is left out costs as much as twenty steps. A step asks for kLines of them,
// however many there are, so that it has next to no branches: for some again where there are fewer,
// and for those that are too many before each block of steps. kLines: as many as a step reads,
// since what comes next is mostly as large as what is at hand.
template <int kLines, bool kNearest = false>
class Prefetcher {
 public:
  // For `steps` steps that ask, in so many blocks.
  QUIRE_INLINE Prefetcher(const Ahead& ahead, int blocks, int steps)
      : at_(reinterpret_cast<const std::byte*>(reinterpret_cast<std::uintptr_t>(ahead.data) &
                                               ~std::uintptr_t{63})) {
    const int asks = steps * kLines;
    if (ahead.bytes == 0 || asks == 0) {
      at_ = kNowhere;
      return;
    }
    const int lines = static_cast<int>((ahead.data + ahead.bytes - at_ + 63) / 64);
    if (lines <= asks) {
      stride_ = (lines * 64 + asks - 1) / asks;
    } else {
      stride_ = 64;
      before_block_ = (lines - asks + blocks - 1) / blocks;
    }
  }
  QUIRE_INLINE void block() {
    for (int line = 0; line < before_block_; ++line) {
      ask();
      at_ = later<kNearest>(at_);
    }
  }
  QUIRE_INLINE void step() {
    ask();
#pragma GCC unroll 4
    for (int line = 1; line < kLines; ++line) {
      at_ = later<kNearest>(at_);
      ask();
    }
  }

 private:
  // Near already, so that asking for it costs next to nothing; an address of no page would be
  // looked for in vain, each time.
  alignas(64) static constexpr std::byte kNowhere[64] = {};

  QUIRE_INLINE void ask() {
    if constexpr (kNearest) {
      prefetch_nearest(at_);
    } else {
      prefetch(at_);
    }
    at_ += stride_;
  }

  const std::byte* at_;
  std::ptrdiff_t stride_ = 0;  // from one request to the next
  int before_block_ = 0;
};

// Nothing to ask for.
struct NoPrefetcher {
  QUIRE_INLINE void block() {}
  QUIRE_INLINE void step() {}
};

// run(prefetcher), which asks for the nearest cache where that is wanted and kNearest. Where
// nothing comes, a loop does not keep the pace of several requests; nor has it a branch around
// them, for which g++ 12 moves the sums of the loop to and fro.
template <int kLines, bool kNearest, class Run>
QUIRE_INLINE void with_prefetcher(const Ahead& ahead, int blocks, int steps, const Run& run) {
  if constexpr (kLines > 1) {
    if (ahead.bytes == 0) {
      NoPrefetcher nothing;
      return run(nothing);
    }
  }
  if constexpr (kNearest) {
    if (ahead.nearest) {
      Prefetcher<kLines, true> prefetcher(ahead, blocks, steps);
      return run(prefetcher);
    }
  }
  Prefetcher<kLines> prefetcher(ahead, blocks, steps);
  run(prefetcher);
}

}  // namespace
}  // namespace quire
