// The built-in executor: a few threads that wait for work.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "quire/executor.hpp"

namespace quire {

// Runs tasks on `threads` threads, the caller's among them. Threads start with the first run that
// can use them and end with the pool. When two callers run at once, the second works alone.
class ThreadPool : public Executor {
 public:
  // 0: one thread per core.
  explicit ThreadPool(int threads);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  void run(std::size_t count, const std::function<void(std::size_t)>& task) override;

 private:
  void work();
  void take_tasks(std::unique_lock<std::mutex>& lock);

  const std::size_t helpers_;  // threads besides the caller's
  std::mutex running_;         // held by the caller whose tasks are being run
  std::mutex mutex_;           // guards all below
  std::condition_variable wake_;
  std::condition_variable done_;
  const std::function<void(std::size_t)>* task_ = nullptr;
  std::size_t count_ = 0;
  std::size_t next_ = 0;
  std::size_t unfinished_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace quire
