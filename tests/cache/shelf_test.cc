#include "cache/shelf.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace quire::test {
namespace {

TEST(ThreadNumber, IsTheLeastThatNoOtherThreadHas) {
  const std::size_t here = ThreadNumber::own();
  EXPECT_EQ(ThreadNumber::own(), here);
  std::size_t first = here;
  std::thread([&] { first = ThreadNumber::own(); }).join();
  EXPECT_NE(first, here);
  for (int i = 0; i < 3; ++i) {
    std::size_t later = here;
    std::thread([&] { later = ThreadNumber::own(); }).join();
    EXPECT_EQ(later, first);  // free again
  }
}

TEST(Shelf, MakesWhatNobodyLeft) {
  Shelf<int> shelf;
  const std::unique_ptr<int> first = shelf.take();
  const std::unique_ptr<int> second = shelf.take();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first, second);
}

// Calls f on another thread, which has another place than the calling one: of few threads, at
// least.
template <typename F>
void on_another_thread(const F& f) {
  const std::size_t place = ThreadNumber::own() % Shelf<int>::kPlaces;
  std::thread([&] {
    ASSERT_NE(ThreadNumber::own() % Shelf<int>::kPlaces, place);
    f();
  }).join();
}

TEST(Shelf, AThreadGetsWhatItLeftItself) {
  Shelf<int> shelf;
  shelf.leave(std::make_unique<int>(1));
  on_another_thread([&] {
    shelf.leave(std::make_unique<int>(2));
    EXPECT_EQ(*shelf.take(), 2);
    shelf.leave(std::make_unique<int>(3));
  });
  shelf.leave(std::make_unique<int>(4));
  EXPECT_EQ(*shelf.take(), 4);  // the last of its own
  EXPECT_EQ(*shelf.take(), 1);
  EXPECT_EQ(*shelf.take(), 3);  // of a thread that is gone: better than none
}

TEST(Shelf, ThreadsThatShareAPlaceEachGetAnother) {
  Shelf<int> shelf;
  const int threads = 3 * static_cast<int>(Shelf<int>::kPlaces);
  std::atomic<int> made = 0;  // zeros that were taken
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&] {
      for (int round = 0; round < 1000; ++round) {
        std::unique_ptr<int> mine = shelf.take();
        if (*mine == 0) ++made;
        const int before = ++*mine;
        std::this_thread::yield();
        EXPECT_EQ(*mine, before);  // nobody else has it
        shelf.leave(std::move(mine));
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  EXPECT_LT(made, 10 * threads);  // most were left by others
  int left = 0;
  int uses = 0;
  while (const int used = *shelf.take()) {
    ++left;
    uses += used;
  }
  EXPECT_EQ(left, made);  // none is lost
  EXPECT_EQ(uses, 1000 * threads);
}

TEST(Shelf, LendsUntilTheBorrowerIsGone) {
  Shelf<int> shelf;
  shelf.leave(std::make_unique<int>(5));
  {
    const Lent<int> lent(shelf);
    EXPECT_EQ(*lent, 5);
    EXPECT_NE(shelf.take().get(), &*lent);
    *lent = 6;
  }
  EXPECT_EQ(*shelf.take(), 6);
}

}  // namespace
}  // namespace quire::test
