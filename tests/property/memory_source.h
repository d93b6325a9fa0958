// Memory for caches under test: counts what is out, and fails when told to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "quire/memory.hpp"

namespace quire::test {

class TestMemory : public MemorySource {
 public:
  void* allocate(std::size_t bytes) noexcept override {
    ++calls_;
    if (fail_all || (fail_every > 0 && calls_ % fail_every == 0)) {
      ++failures;
      return nullptr;
    }
    const std::size_t rounded = (bytes + 63) / 64 * 64;
    void* block = std::aligned_alloc(64, rounded);
    std::memset(block, 0xa5, rounded);  // whoever counts on zeros will see it
    live_bytes += bytes;
    ++live_blocks;
    if (live_bytes > most_bytes) most_bytes = live_bytes;
    return block;
  }
  void release(void* data, std::size_t bytes) noexcept override {
    std::memset(data, 0x5a, bytes);
    std::free(data);
    live_bytes -= bytes;
    --live_blocks;
  }

  bool fail_all = false;
  std::uint64_t fail_every = 0;  // 0: never
  std::uint64_t failures = 0;
  std::size_t live_bytes = 0;
  std::size_t live_blocks = 0;
  std::size_t most_bytes = 0;  // that were ever out at once

 private:
  std::uint64_t calls_ = 0;
};

}  // namespace quire::test
