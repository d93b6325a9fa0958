// Objects that tasks work with for a while and leave for the next. A thread gets the one it left
// last: what it holds is most likely in that core's cache, and would have to come from another's
// otherwise. It has a place of its own for it, on lines that others do not write; what does not fit
// there lies on a shelf for all.
//
// Thread-safety: any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "attend/scratch.h"
#include "base/thread_number.h"

namespace quire {

template <typename T>
class Shelf {
 public:
  Shelf() = default;
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;
  ~Shelf() {
    for (Place& place : places_) delete place.object.load();
  }

  // Threads have the same place if their numbers are equal modulo this.
  static constexpr std::size_t kPlaces = 16;

  // One that was left, or a new one. Throws std::bad_alloc.
  std::unique_ptr<T> take() {
    if (T* own = own_place().object.exchange(nullptr)) return std::unique_ptr<T>(own);
    {
      const std::lock_guard lock(mutex_);
      if (!left_.empty()) {
        std::unique_ptr<T> taken = std::move(left_.back());
        left_.pop_back();
        return taken;
      }
    }
    for (Place& other : places_) {
      if (other.object.load() == nullptr) continue;  // an exchange would take the line
      if (T* left = other.object.exchange(nullptr)) return std::unique_ptr<T>(left);
    }
    return std::make_unique<T>();
  }

  void leave(std::unique_ptr<T> object) noexcept {
    std::unique_ptr<T> before(own_place().object.exchange(object.release()));
    if (before == nullptr) return;
    const std::lock_guard lock(mutex_);
    try {
      left_.push_back(std::move(before));
    } catch (const std::bad_alloc&) {
      // The object goes, and the next taker makes one.
    }
  }

 private:
  struct alignas(kApart) Place {
    std::atomic<T*> object = nullptr;
  };

  Place& own_place() noexcept { return places_[ThreadNumber::own() % kPlaces]; }

  Place places_[kPlaces];
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> left_;
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
