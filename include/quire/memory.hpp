// Where a cache's memory comes from. Give your own to place pages (huge, pinned, shared memory),
// to count them, or to make allocation fail in a test.
#pragma once

#include <cstddef>

#include "quire/export.h"

namespace quire {

class QUIRE_API MemorySource {
 public:
  virtual ~MemorySource() = default;
  // At least `bytes` bytes aligned to 64, or null when there are none.
  // Thread-safety: the cache calls from any thread, one call at a time.
  virtual void* allocate(std::size_t bytes) noexcept = 0;
  // Requires: (data, bytes) came from allocate.
  virtual void release(void* data, std::size_t bytes) noexcept = 0;
};

}  // namespace quire
