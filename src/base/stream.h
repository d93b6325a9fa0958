// Copies past the processor's cache, for bytes that are not read again soon. Memory is then not
// read before it is written, and what the cache holds stays there. Elsewhere than on x86-64 these
// are plain copies.
//
// Thread-safety: other threads see the bytes after stream_fence and whatever orders the threads.
#pragma once

#include <cstddef>

namespace quire {

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

// To be called by the thread that copied, before others read.
void stream_fence() noexcept;

}  // namespace quire
