// Who runs the parallel parts of put and attend. Give your own to use an engine's thread pool.
#pragma once

#include <cstddef>
#include <functional>

#include "quire/export.h"

namespace quire {

class QUIRE_API Executor {
 public:
  virtual ~Executor() = default;
  // Runs task(0) .. task(count - 1), each once, on any threads, and returns when all are done.
  // Tasks do not throw and do not depend on each other. Steps of several threads call at once.
  virtual void run(std::size_t count, const std::function<void(std::size_t)>& task) = 0;
};

}  // namespace quire
