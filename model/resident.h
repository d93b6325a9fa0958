// Resident memory: what the process really has in memory, as the kernel counts it.
#pragma once

#include <cstdint>

#include "quire/cache.hpp"
#include "quire/result.hpp"

namespace quire::model {

struct Resident {
  std::int64_t anonymous_bytes = 0;  // what was allocated: caches, weights that were expanded, work
  std::int64_t file_bytes = 0;       // mapped files: the program, model files as far as read
  std::int64_t peak_bytes = 0;       // the most there ever was of both
};

// not_supported where the system has no /proc/self/status that says so.
Result<Resident> resident_memory();

// What a cache says that it holds, and what the process gets smaller by when it is emptied. The
// second is measured: it has the pages that the kernel gave, whoever asked for them.
struct CacheMemory {
  std::int64_t stats_bytes = 0;
  std::int64_t resident_bytes = 0;
};

// Empties the cache. Requires: no step is open, and no other thread allocates.
Result<CacheMemory> empty_and_measure(Cache& cache);

}  // namespace quire::model
