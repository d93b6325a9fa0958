// Keeping within bytes, and saying what they are used for. All require the store's lock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cache/core.h"

namespace quire {

Stats count_stats(const CacheCore& cache);

// Cuts the longest sequence to three quarters, oldest first, until true bytes are at most `bytes`.
// True when it cut. Sequences with an open step are left alone. Throws MemoryError.
Result<bool> enforce_limit(CacheCore& cache, std::size_t bytes, const char* operation);

// Puts tokens of sparsely used sealed pages together, undecoded; returns the pages given back.
Result<std::int64_t> compact_pages(CacheCore& cache);

}  // namespace quire
