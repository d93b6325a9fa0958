#include "model/resident.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <fstream>
#include <limits>
#include <string>

#include "model/error.h"

namespace quire::model {

Result<Resident> resident_memory() {
  Resident found{-1, -1, -1};
  std::ifstream file("/proc/self/status");
  for (std::string name; file >> name;) {
    std::int64_t* field = name == "RssAnon:"   ? &found.anonymous_bytes
                          : name == "RssFile:" ? &found.file_bytes
                          : name == "VmHWM:"   ? &found.peak_bytes
                                               : nullptr;
    std::int64_t kib = 0;
    if (field != nullptr && file >> kib) *field = kib * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  if (found.anonymous_bytes < 0 || found.file_bytes < 0 || found.peak_bytes < 0) {
    return Error{ErrorCode::not_supported,
                 "resident memory: /proc/self/status has no RssAnon, RssFile and VmHWM"};
  }
  return found;
}

Result<CacheMemory> empty_and_measure(Cache& cache) {
#if defined(__GLIBC__)
  malloc_trim(0);  // so that free memory of others does not go between the two looks
#endif
  const Stats full = cache.stats();
  MODEL_TRY(const Resident before, resident_memory());
  MODEL_CHECK(cache.clear());
  cache.shrink();
  MODEL_TRY(const Resident after, resident_memory());
  const Stats empty = cache.stats();
  return CacheMemory{static_cast<std::int64_t>(full.bytes) - static_cast<std::int64_t>(empty.bytes),
                     before.anonymous_bytes - after.anonymous_bytes};
}

}  // namespace quire::model
