// Small numbers of threads, for what each of a few threads has a place of its own for.
//
// Thread-safety: any thread.
#pragma once

#include <atomic>
#include <cstddef>

namespace quire {

// The least number that no other thread has, of those that have asked and not ended; all of more
// than kMost threads have that one.
class ThreadNumber {
 public:
  static std::size_t own() noexcept {
    thread_local const ThreadNumber number;
    return number.value_;
  }

 private:
  ThreadNumber() noexcept {
    while (value_ < kMost && taken_[value_].exchange(true)) ++value_;
  }
  ~ThreadNumber() {
    if (value_ < kMost) taken_[value_] = false;
  }

  static constexpr std::size_t kMost = 1024;
  static inline std::atomic<bool> taken_[kMost] = {};
  std::size_t value_ = 0;
};

}  // namespace quire
