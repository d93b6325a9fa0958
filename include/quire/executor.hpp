// Who runs the parallel parts of put and attend. Give your own to use an engine's thread pool, or
// make one here to share among caches and with loops of your own.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "quire/export.h"
#include "quire/result.hpp"

namespace quire {

class QUIRE_API Executor {
 public:
  virtual ~Executor() = default;
  // Runs task(0) .. task(count - 1), each once, on any threads, and returns when all are done.
  // Tasks do not throw and do not depend on each other. Steps of several threads call at once.
  // Some take long and some nothing: give each thread the next one when it is done with its last.
  virtual void run(std::size_t count, const std::function<void(std::size_t)>& task) = 0;
};

// Cores that the calling thread may run on, and threads it starts; fewer than the machine has where
// it was confined to some (taskset, a container's cpuset). At least 1.
QUIRE_API int usable_cores() noexcept;

// The executor that caches make for themselves: `threads` threads, the caller's among them; 0: one
// per usable core. Threads start with the first run that can use them. When two callers run at
// once, the second works alone; so does a task that runs tasks.
QUIRE_API Result<std::unique_ptr<Executor>> make_executor(int threads);

}  // namespace quire
