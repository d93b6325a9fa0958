// Memory in huge pages, where the system has them: weights are read from end to end for every
// token, and a stream that crosses a small page every few lines reaches only two thirds of what the
// memory can give.
//
//     HugePages pages;
//     std::pmr::monotonic_buffer_resource weights(&pages);
//
// Thread-safety: any thread.
#pragma once

#include <cstddef>
#include <memory_resource>

namespace quire::model {

class HugePages final : public std::pmr::memory_resource {
 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* data, std::size_t bytes, std::size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;
};

}  // namespace quire::model
