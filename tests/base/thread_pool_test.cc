// The built-in executor.
#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace quire {
namespace {

TEST(ThreadPool, RunsEachIndexOnce) {
  for (const int threads : {0, 1, 2, 5}) {
    ThreadPool pool(threads);
    for (const std::size_t count : {0u, 1u, 2u, 7u, 1000u}) {
      std::vector<std::atomic<int>> runs(count);
      pool.run(count, [&](std::size_t i) { ++runs[i]; });
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(runs[i], 1) << threads << " threads, task " << i << " of " << count;
      }
    }
  }
}

TEST(ThreadPool, OneThreadIsTheCallersOwnAndKeepsTheOrder) {
  ThreadPool pool(1);
  std::vector<std::size_t> order;
  std::vector<std::thread::id> ids;
  pool.run(5, [&](std::size_t i) {
    order.push_back(i);
    ids.push_back(std::this_thread::get_id());
  });
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(ids, std::vector<std::thread::id>(5, std::this_thread::get_id()));
}

TEST(ThreadPool, TwoThreadsWorkAtTheSameTime) {
  ThreadPool pool(2);
  std::atomic<int> here = 0;
  std::atomic<bool> met = true;
  pool.run(2, [&](std::size_t) {
    ++here;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (here < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    if (here < 2) met = false;
  });
  EXPECT_TRUE(met) << "one thread ran both tasks, one after the other";
}

TEST(ThreadPool, RunReturnsWhenAllTasksAreDone) {
  ThreadPool pool(4);
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> done = 0;
    pool.run(16, [&](std::size_t) { ++done; });
    ASSERT_EQ(done, 16) << round;
  }
}

TEST(ThreadPool, SeveralCallersAtOnceAllFinish) {
  ThreadPool pool(3);
  constexpr int kCallers = 4;
  constexpr int kRounds = 200;
  constexpr std::size_t kTasks = 20;
  std::atomic<std::int64_t> done = 0;
  std::vector<std::thread> callers;
  for (int c = 0; c < kCallers; ++c) {
    callers.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        std::atomic<std::size_t> mine = 0;
        pool.run(kTasks, [&](std::size_t) {
          ++mine;
          ++done;
        });
        EXPECT_EQ(mine, kTasks);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(done, std::int64_t{kCallers} * kRounds * static_cast<std::int64_t>(kTasks));
}

TEST(ThreadPool, APoolThatNeverRanEndsAtOnce) {
  for (int i = 0; i < 100; ++i) ThreadPool pool(4);
}

}  // namespace
}  // namespace quire
