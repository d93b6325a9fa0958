#include "base/nearest_cache.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace quire {
namespace {

constexpr unsigned kLargeKib = 48;

// KiB of the nearest cache for data as AMD's processors tell them. Others tell nothing, or in a
// virtual machine 64, which no AMD processor with AVX2 has.
unsigned nearest_cache_kib() noexcept {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0x80000005, &a, &b, &c, &d) != 0) return c >> 24;
#endif
  return 0;
}

}  // namespace

std::size_t nearest_fetch_bytes() noexcept {
  static const std::size_t bytes =
      nearest_cache_kib() == kLargeKib ? std::size_t{kLargeKib} * 1024 / 3 : 0;
  return bytes;
}

}  // namespace quire
