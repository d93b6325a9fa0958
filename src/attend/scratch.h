// Bytes to work in that grow and are used again, and that share no line with anything else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace quire {

// What a thread writes all the time lies this far from what others read: a line, and the one that
// is fetched along with it. A line that one core writes and another reads goes to and fro, which
// takes long where they share no cache.
inline constexpr std::size_t kApart = 128;

class Scratch {
 public:
  // At least `bytes` bytes, as they were left where there were enough. Throws std::bad_alloc.
  std::byte* take(std::size_t bytes) {
    if (bytes > size_) {
      size_ = 0;
      const std::size_t whole = (bytes + kApart - 1) / kApart * kApart;
      held_ = std::make_unique_for_overwrite<std::byte[]>(whole + kApart);
      size_ = whole;
      at_ = held_.get() + (kApart - reinterpret_cast<std::uintptr_t>(held_.get()) % kApart);
    }
    return at_;
  }
  float* take_floats(std::size_t count) {
    return reinterpret_cast<float*>(take(count * sizeof(float)));
  }
  std::byte* data() const noexcept { return at_; }

 private:
  std::unique_ptr<std::byte[]> held_;
  std::byte* at_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace quire
