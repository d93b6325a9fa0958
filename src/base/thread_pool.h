// The built-in executor: a few threads that wait for work.
//
// How a run is shared. The caller writes task_, count_ and unfinished_, then sets left_ to the
// number of tasks: from here on any thread may take one. Who lowers left_ by one has taken a task,
// and only then looks at task_ and count_: they hold still until unfinished_ is 0, so nothing of an
// older or newer run is ever mixed in. Each thread subtracts what it has done from unfinished_ once
// it finds no more to take; the run is over at 0.
//
//     caller   prepare, left_ = n   take ... take, unfinished_ -= done   wait for unfinished_ == 0
//     helper   wait for left_ > 0   take ... take, unfinished_ -= done   wait for left_ > 0
//
// Who waits looks again and again for at most 50 us and then sleeps: a step has many short runs,
// and to wake a thread takes about 10 us. A sleeper says so (sleepers_, caller_sleeps_) before it
// looks a last time; the other side changes what is looked at before it asks for sleepers. All of
// these are sequentially consistent, so one of the two sees the other and no wake-up is lost.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "quire/executor.hpp"

namespace quire {

// Most threads of a pool.
inline constexpr int kMaxThreads = 4096;

// What make_executor makes. Threads end with the pool.
class ThreadPool : public Executor {
 public:
  // Requires: threads in [0, kMaxThreads].
  explicit ThreadPool(int threads);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t size() const noexcept { return helpers_ + 1; }  // threads, the caller's among them
  void run(std::size_t count, const std::function<void(std::size_t)>& task) override;

 private:
  void start_threads();
  void wake_helpers(std::size_t count);
  void work();
  void take_tasks();

  const std::size_t helpers_;       // threads besides the caller's
  std::atomic<bool> busy_ = false;  // owned by the caller whose tasks are being run

  // Of that caller.
  std::vector<std::thread> threads_;
  const std::function<void(std::size_t)>* task_ = nullptr;
  std::size_t count_ = 0;
  alignas(64) std::atomic<std::size_t> left_ = 0;        // tasks nobody has taken
  alignas(64) std::atomic<std::size_t> unfinished_ = 0;  // tasks not known to be done

  alignas(64) std::mutex mutex_;  // held to fall asleep and to wake
  std::condition_variable wake_;  // helpers
  std::condition_variable done_;  // the caller
  std::atomic<std::size_t> sleepers_ = 0;
  std::atomic<bool> caller_sleeps_ = false;
  std::atomic<bool> stop_ = false;
};

}  // namespace quire
