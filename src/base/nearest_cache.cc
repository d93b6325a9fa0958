#include "base/nearest_cache.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace quire {
namespace {

// KiB of the nearest cache for data, as AMD's processors tell them; others tell 0.
unsigned nearest_cache_kib() noexcept {
  unsigned c = 0;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, d = 0;
  if (__get_cpuid(0x80000005, &a, &b, &c, &d) == 0) return 0;
#endif
  return c >> 24;
}

}  // namespace

bool fetches_to_nearest_cache() noexcept {
  static const bool fetches = nearest_cache_kib() >= 48;
  return fetches;
}

}  // namespace quire
