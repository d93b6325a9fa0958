#include "cache/shelf.h"

#include <gtest/gtest.h>

#include <thread>

namespace quire::test {
namespace {

TEST(Shelf, MakesWhatNobodyLeft) {
  Shelf<int> shelf;
  const std::unique_ptr<int> first = shelf.take();
  const std::unique_ptr<int> second = shelf.take();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first, second);
}

TEST(Shelf, AThreadGetsWhatItLeftItself) {
  Shelf<int> shelf;
  shelf.leave(std::make_unique<int>(1));
  std::thread([&] {
    shelf.leave(std::make_unique<int>(2));
    EXPECT_EQ(*shelf.take(), 2);
    shelf.leave(std::make_unique<int>(3));
  }).join();
  shelf.leave(std::make_unique<int>(4));
  EXPECT_EQ(*shelf.take(), 4);  // the last of its own
  EXPECT_EQ(*shelf.take(), 1);
  EXPECT_EQ(*shelf.take(), 3);  // of a thread that is gone: better than none
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
