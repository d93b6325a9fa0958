// The built-in executor.
#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "base/seed.h"

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

TEST(ThreadPool, TheSecondOfTwoCallersWorksAlone) {
  ThreadPool pool(3);
  std::atomic<bool> first_runs = false;
  std::atomic<bool> second_done = false;
  std::thread first([&] {
    pool.run(2, [&](std::size_t) {
      first_runs = true;
      while (!second_done) std::this_thread::yield();
    });
  });
  while (!first_runs) std::this_thread::yield();
  std::vector<std::thread::id> ids;
  pool.run(10, [&](std::size_t) { ids.push_back(std::this_thread::get_id()); });
  second_done = true;
  first.join();
  EXPECT_EQ(ids, std::vector<std::thread::id>(10, std::this_thread::get_id()));
}

TEST(ThreadPool, ATaskThatRunsTasksWorksAlone) {
  ThreadPool pool(3);
  std::atomic<int> elsewhere = 0;
  std::atomic<int> done = 0;
  pool.run(20, [&](std::size_t) {
    const std::thread::id here = std::this_thread::get_id();
    pool.run(5, [&](std::size_t) {
      ++done;
      if (std::this_thread::get_id() != here) ++elsewhere;
    });
  });
  EXPECT_EQ(done, 100);
  EXPECT_EQ(elsewhere, 0);
}

TEST(ThreadPool, UsesNoMoreThreadsThanItWasGiven) {
  ThreadPool pool(3);
  std::mutex mutex;
  std::set<std::thread::id> ids;
  for (int round = 0; round < 200; ++round) {
    pool.run(10, [&](std::size_t) {
      const std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    });
  }
  EXPECT_LE(ids.size(), 3u);
  EXPECT_EQ(ids.count(std::this_thread::get_id()), 1u);
}

TEST(ThreadPool, ThreadsStartWithTheFirstRunThatCanUseThem) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  const auto before = threads();
  ThreadPool pool(8);
  pool.run(0, [](std::size_t) {});
  pool.run(1, [](std::size_t) {});
  EXPECT_LE(threads(), before);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(ThreadPool, WorksWithoutThreadsWhereNoneCanStart) {
  const auto run_without_address_space = [] {
    rlimit none{};
    none.rlim_cur = none.rlim_max = 1 << 20;
    if (::setrlimit(RLIMIT_AS, &none) != 0) std::_Exit(2);
    ThreadPool pool(64);
    for (int round = 0; round < 3; ++round) {
      std::atomic<int> done = 0;
      pool.run(100, [&](std::size_t) { ++done; });
      if (done != 100) std::_Exit(1);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(run_without_address_space(), testing::ExitedWithCode(0), "");
}
#endif

TEST(ThreadPool, EveryTaskOfManyRunsRunsOnce) {
  std::mt19937_64 random(test::announce_seed());
  ThreadPool pool(4);
  std::vector<std::atomic<int>> runs(64);
  for (int round = 0; round < 10000; ++round) {
    const std::size_t count = random() % (runs.size() + 1);
    // Now and then a gap, so that some helpers are at work, some look and some sleep.
    if (random() % 256 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
    pool.run(count, [&](std::size_t i) { runs[i].fetch_add(1, std::memory_order_relaxed); });
    for (std::size_t i = 0; i < runs.size(); ++i) {
      ASSERT_EQ(runs[i].exchange(0, std::memory_order_relaxed), i < count ? 1 : 0)
          << "run " << round << ", task " << i << " of " << count;
    }
  }
}

// Each run has its own function and its own plain memory: a helper that is late must touch neither.
TEST(ThreadPool, ManyShortRunsOfSeveralCallers) {
  const std::uint64_t seed = test::announce_seed();
  ThreadPool pool(4);
  std::vector<std::thread> callers;
  for (std::uint64_t caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&pool, seed, caller] {
      std::mt19937_64 random(seed + caller);
      for (int round = 0; round < 10000; ++round) {
        std::vector<std::uint64_t> out(2 + random() % 6);
        const std::uint64_t key = random();
        pool.run(out.size(), [&out, key](std::size_t i) { out[i] += key + i; });
        for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], key + i) << round;
        if (random() % 64 == 0) std::this_thread::yield();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

double cpu_ms(clockid_t clock) {
  timespec used{};
  ::clock_gettime(clock, &used);
  return static_cast<double>(used.tv_sec) * 1e3 + static_cast<double>(used.tv_nsec) / 1e6;
}

TEST(ThreadPool, TheCallerSleepsUntilALongTaskIsDone) {
  ThreadPool pool(2);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> helper_works = false;
  int done = 0;  // written by the helper alone
  const double before = cpu_ms(CLOCK_THREAD_CPUTIME_ID);
  pool.run(2, [&](std::size_t) {
    if (std::this_thread::get_id() == caller) {
      while (!helper_works) std::this_thread::sleep_for(std::chrono::microseconds(100));
      return;
    }
    helper_works = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ++done;
  });
  EXPECT_EQ(done, 1);
  EXPECT_LT(cpu_ms(CLOCK_THREAD_CPUTIME_ID) - before, 25.0) << "it looked for 100 ms";
}

// A helper looks for work for 50 us; three that never stop would use 100 ms each.
TEST(ThreadPool, AnIdlePoolSleeps) {
  ThreadPool pool(4);
  for (int round = 0; round < 10; ++round) pool.run(4, [](std::size_t) {});
  const double before = cpu_ms(CLOCK_PROCESS_CPUTIME_ID);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LT(cpu_ms(CLOCK_PROCESS_CPUTIME_ID) - before, 25.0);
}

TEST(ThreadPool, SleepingHelpersAreWoken) {
  ThreadPool pool(3);
  for (int round = 0; round < 1000; ++round) {
    // All three have to be here at once.
    std::atomic<int> here = 0;
    std::atomic<bool> met = true;
    pool.run(3, [&](std::size_t) {
      ++here;
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (here < 3 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
      if (here < 3) met = false;
    });
    ASSERT_TRUE(met) << round;
    // Helpers are asleep, still look, or are about to fall asleep.
    const auto next = std::chrono::steady_clock::now() + std::chrono::microseconds(30 + round % 40);
    while (std::chrono::steady_clock::now() < next) {
    }
  }
}

TEST(ThreadPool, APoolMayEndRightAfterARun) {
  for (int round = 0; round < 300; ++round) {
    std::atomic<int> done = 0;
    {
      ThreadPool pool(3);
      pool.run(8, [&](std::size_t) { ++done; });
      if (round % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(round));
    }
    ASSERT_EQ(done, 8);
  }
}

TEST(ThreadPool, APoolThatNeverRanEndsAtOnce) {
  for (int i = 0; i < 100; ++i) ThreadPool pool(4);
}

TEST(MakeExecutor, RunsOnAsManyThreadsAsAsked) {
  const std::unique_ptr<Executor> executor = make_executor(3).value();
  std::mutex mutex;
  std::set<std::thread::id> seen;
  // A helper may come too late for a run.
  for (int round = 0; round < 100'000 && seen.size() < 3; ++round) {
    executor->run(64, [&](std::size_t) {
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
  }
  EXPECT_EQ(seen.size(), 3u);
}

// Where a process is confined to some of the cores, threads for all of them would only take turns.
TEST(UsableCores, AreThoseThatTheThreadMayRunOn) {
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
  EXPECT_EQ(usable_cores(), CPU_COUNT(&mine));
  EXPECT_EQ(ThreadPool(0).size(), static_cast<std::size_t>(CPU_COUNT(&mine)));
  std::thread([] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(usable_cores(), 1);
    EXPECT_EQ(ThreadPool(0).size(), 1u);
    EXPECT_EQ(ThreadPool(3).size(), 3u);
  }).join();
}

TEST(MakeExecutor, RefusesImpossibleNumbers) {
  for (const int threads : {-1, 4097}) {
    const auto made = make_executor(threads);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(made.error().text.find(std::to_string(threads)), std::string::npos);
  }
}

}  // namespace
}  // namespace quire
