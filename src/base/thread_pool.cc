#include "base/thread_pool.h"

#include <algorithm>
#include <system_error>

namespace quire {
namespace {

std::size_t helpers_for(int threads) {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  return threads == 0 ? cores - 1 : static_cast<std::size_t>(threads - 1);
}

}  // namespace

ThreadPool::ThreadPool(int threads) : helpers_(helpers_for(threads)) {}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::take_tasks(std::unique_lock<std::mutex>& lock) {
  while (next_ < count_) {
    const std::size_t index = next_++;
    const std::function<void(std::size_t)>& task = *task_;
    lock.unlock();
    task(index);
    lock.lock();
    if (--unfinished_ == 0) done_.notify_all();
  }
}

void ThreadPool::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || next_ < count_; });
    if (stop_) return;
    take_tasks(lock);
  }
}

void ThreadPool::run(std::size_t count, const std::function<void(std::size_t)>& task) {
  const std::unique_lock exclusive(running_, std::try_to_lock);
  if (!exclusive || helpers_ == 0 || count < 2) {
    for (std::size_t i = 0; i < count; ++i) task(i);
    return;
  }
  std::unique_lock lock(mutex_);
  try {
    while (threads_.size() < helpers_) threads_.emplace_back([this] { work(); });
  } catch (const std::exception&) {
    // Fewer threads, or none: the work is done all the same.
  }
  task_ = &task;
  count_ = count;
  next_ = 0;
  unfinished_ = count;
  wake_.notify_all();
  take_tasks(lock);
  done_.wait(lock, [&] { return unfinished_ == 0; });
  count_ = 0;
  next_ = 0;
}

}  // namespace quire
