// Objects that tasks work with for a while and leave for the next. A thread takes the one it left
// last, if that is still there: what it holds is most likely in that core's cache, and would have
// to come from another's otherwise.
//
// Thread-safety: any thread.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

namespace quire {

template <typename T>
class Shelf {
 public:
  // One that was left, or a new one. Throws std::bad_alloc.
  std::unique_ptr<T> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!left_.empty()) {
        const auto own = std::find_if(left_.rbegin(), left_.rend(), [](const Left& left) {
          return left.by == std::this_thread::get_id();
        });
        const auto at = own == left_.rend() ? left_.begin() : own.base() - 1;
        std::unique_ptr<T> taken = std::move(at->object);
        left_.erase(at);
        return taken;
      }
    }
    return std::make_unique<T>();
  }

  void leave(std::unique_ptr<T> object) noexcept {
    const std::lock_guard lock(mutex_);
    try {
      left_.push_back({std::this_thread::get_id(), std::move(object)});
    } catch (const std::bad_alloc&) {
      // The object goes, and the next taker makes one.
    }
  }

 private:
  struct Left {
    std::thread::id by;
    std::unique_ptr<T> object;
  };

  std::mutex mutex_;
  std::vector<Left> left_;
};

// An object from a shelf, until it is left there again.
template <typename T>
class Lent {
 public:
  explicit Lent(Shelf<T>& shelf) : shelf_(shelf), object_(shelf.take()) {}
  ~Lent() { shelf_.leave(std::move(object_)); }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  T& operator*() const noexcept { return *object_; }

 private:
  Shelf<T>& shelf_;
  std::unique_ptr<T> object_;
};

}  // namespace quire
