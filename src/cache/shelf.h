// Objects that tasks work with for a while and leave for the next. The one left last is taken
// first: it is most likely still in the taker's cache.
//
// Thread-safety: any thread.
#pragma once

#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace quire {

template <typename T>
class Shelf {
 public:
  // One that was left, or a new one from make(), which returns std::unique_ptr<T>.
  template <typename Make>
  std::unique_ptr<T> take(const Make& make) {
    {
      const std::lock_guard lock(mutex_);
      if (!left_.empty()) {
        std::unique_ptr<T> taken = std::move(left_.back());
        left_.pop_back();
        return taken;
      }
    }
    return make();
  }
  // Throws std::bad_alloc.
  std::unique_ptr<T> take() {
    return take([] { return std::make_unique<T>(); });
  }

  void leave(std::unique_ptr<T> object) noexcept {
    const std::lock_guard lock(mutex_);
    try {
      left_.push_back(std::move(object));
    } catch (const std::bad_alloc&) {
      // The object goes, and the next taker makes one.
    }
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> left_;
};

}  // namespace quire
