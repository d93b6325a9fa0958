// An executor with a thread for each task, all of which begin at the same moment: in any order,
// many more at once than the machine has cores.
#pragma once

#include <algorithm>
#include <cstddef>
#include <latch>
#include <thread>
#include <vector>

#include "quire/executor.hpp"

namespace quire::test {

class Crowd : public Executor {
 public:
  void run(std::size_t count, const std::function<void(std::size_t)>& task) override {
    std::latch all(static_cast<std::ptrdiff_t>(count));
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        all.arrive_and_wait();
        task(i);
      });
    }
    for (std::thread& thread : threads) thread.join();
    most = std::max(most, count);
  }

  std::size_t most = 0;  // tasks of a run
};

}  // namespace quire::test
