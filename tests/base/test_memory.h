// A memory source that counts what it gave and can be told to have no more.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "quire/memory.hpp"

namespace quire::test {

class TestMemory : public MemorySource {
 public:
  ~TestMemory() override { EXPECT_EQ(bytes, 0u) << "blocks were not given back"; }

  void* allocate(std::size_t size) noexcept override {
    ++calls;
    if (allowed <= 0) return nullptr;
    --allowed;
    bytes += size;
    if (bytes > peak_bytes) peak_bytes = bytes;
    return std::aligned_alloc(64, (size + 63) / 64 * 64);
  }
  void release(void* data, std::size_t size) noexcept override {
    bytes -= size;
    std::free(data);
  }

  std::int64_t allowed = INT64_MAX;  // allocations that still succeed
  std::size_t bytes = 0;             // given and not yet back
  std::size_t peak_bytes = 0;
  std::int64_t calls = 0;
};

}  // namespace quire::test
