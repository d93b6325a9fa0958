#include "base/thread_pool.h"

#ifdef __linux__
#include <sched.h>
#endif

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <new>

#include "base/error.h"

namespace quire {
namespace {

constexpr std::chrono::microseconds kSpin{50};
constexpr int kLooks = 32;  // about 1 us, a clock is read after them

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Looks for at most kSpin; returns whether `ready`. Leaves the core to others now and then, for
// where there are fewer cores than threads.
template <class Ready>
bool spin_until(Ready ready) {
  if (ready()) return true;
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kLooks; ++i) {
      relax();
      if (ready()) return true;
    }
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < deadline);
  return ready();
}

}  // namespace

int usable_cores() noexcept {
#ifdef __linux__
  cpu_set_t mine;
  if (::sched_getaffinity(0, sizeof(mine), &mine) == 0) return std::max(1, CPU_COUNT(&mine));
#endif
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

Result<std::unique_ptr<Executor>> make_executor(int threads) {
  if (threads < 0 || threads > kMaxThreads) {
    return fail(ErrorCode::invalid_argument, "make_executor: {} threads; 0 to {} can be made",
                threads, kMaxThreads);
  }
  try {
    return std::unique_ptr<Executor>(std::make_unique<ThreadPool>(threads));
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::out_of_memory, "make_executor: no memory"};
  }
}

ThreadPool::ThreadPool(int threads)
    : helpers_(static_cast<std::size_t>(threads == 0 ? usable_cores() : threads) - 1) {}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run(std::size_t count, const std::function<void(std::size_t)>& task) {
  if (helpers_ == 0 || count < 2 || busy_.exchange(true)) {
    for (std::size_t i = 0; i < count; ++i) task(i);
    return;
  }
  start_threads();
  task_ = &task;
  count_ = count;
  unfinished_ = count;
  left_ = count;
  wake_helpers(count - 1);
  take_tasks();
  const auto all_done = [this] { return unfinished_ == 0; };
  if (!spin_until(all_done)) {
    std::unique_lock lock(mutex_);
    caller_sleeps_ = true;
    done_.wait(lock, all_done);
    caller_sleeps_ = false;
  }
  busy_ = false;
}

void ThreadPool::start_threads() {
  try {
    while (threads_.size() < helpers_) threads_.emplace_back([this] { work(); });
  } catch (const std::exception&) {
    // Fewer threads, or none: the work is done all the same.
  }
}

// Has `count` helpers awake, or all.
void ThreadPool::wake_helpers(std::size_t count) {
  const std::size_t sleepers = sleepers_;
  const std::size_t awake = threads_.size() - sleepers;
  if (sleepers == 0 || count <= awake) return;
  { const std::lock_guard lock(mutex_); }  // who was about to sleep now hears it
  for (std::size_t i = std::min(count - awake, sleepers); i > 0; --i) wake_.notify_one();
}

void ThreadPool::take_tasks() {
  std::size_t done = 0;
  for (std::size_t left = left_; left > 0;) {
    if (!left_.compare_exchange_weak(left, left - 1)) continue;
    (*task_)(count_ - left);
    ++done;
    left = left_;
  }
  if (done == 0) return;
  if (unfinished_.fetch_sub(done) == done && caller_sleeps_) {
    const std::lock_guard lock(mutex_);
    done_.notify_one();
  }
}

void ThreadPool::work() {
  while (!stop_) {
    if (spin_until([this] { return left_ > 0 || stop_; })) {
      take_tasks();
      continue;
    }
    std::unique_lock lock(mutex_);
    ++sleepers_;
    if (left_ == 0 && !stop_) wake_.wait(lock);  // woken for nothing, it looks for 50 us once more
    --sleepers_;
  }
}

}  // namespace quire
