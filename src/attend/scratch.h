// Bytes to work in, aligned to 64, that grow and are used again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace quire {

class Scratch {
 public:
  // At least `bytes` bytes, as they were left where there were enough. Throws std::bad_alloc.
  std::byte* take(std::size_t bytes) {
    if (bytes > size_) {
      size_ = 0;
      held_ = std::make_unique_for_overwrite<std::byte[]>(bytes + kAlign);
      size_ = bytes;
      at_ = held_.get() + (kAlign - reinterpret_cast<std::uintptr_t>(held_.get()) % kAlign);
    }
    return at_;
  }
  float* take_floats(std::size_t count) {
    return reinterpret_cast<float*>(take(count * sizeof(float)));
  }
  std::byte* data() const noexcept { return at_; }

 private:
  static constexpr std::size_t kAlign = 64;
  std::unique_ptr<std::byte[]> held_;
  std::byte* at_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace quire
