#include "base/stream.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace quire {

#if defined(__x86_64__)

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  constexpr std::size_t kLine = 64;
  std::size_t done = 0;
  if (reinterpret_cast<std::uintptr_t>(to) % kLine == 0) {
    for (; done + kLine <= bytes; done += kLine) {
      const auto* in = reinterpret_cast<const __m128i*>(from + done);
      auto* out = reinterpret_cast<__m128i*>(to + done);
      const __m128i a = _mm_loadu_si128(in);
      const __m128i b = _mm_loadu_si128(in + 1);
      const __m128i c = _mm_loadu_si128(in + 2);
      const __m128i d = _mm_loadu_si128(in + 3);
      _mm_stream_si128(out, a);
      _mm_stream_si128(out + 1, b);
      _mm_stream_si128(out + 2, c);
      _mm_stream_si128(out + 3, d);
    }
  }
  if (done < bytes) std::memcpy(to + done, from + done, bytes - done);
}

void stream_fence() noexcept { _mm_sfence(); }

#else

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  std::memcpy(to, from, bytes);
}

void stream_fence() noexcept {}

#endif

}  // namespace quire
