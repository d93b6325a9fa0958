#include "cache/shelf.h"

#include <gtest/gtest.h>

#include <thread>

namespace quire::test {
namespace {

TEST(Shelf, MakesWhatNobodyLeft) {
  Shelf<int> shelf;
  const std::unique_ptr<int> first = shelf.take();
  const std::unique_ptr<int> second = shelf.take([] { return std::make_unique<int>(7); });
  EXPECT_NE(first, second);
  EXPECT_EQ(*second, 7);
  EXPECT_EQ(shelf.take([] { return nullptr; }), nullptr);
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

TEST(Shelf, WhatWasLentStaysTheBorrowersWhoeverReturnsIt) {
  Shelf<int> shelf;
  std::unique_ptr<Lent<int>> lent;
  shelf.leave(std::make_unique<int>(5));
  std::thread borrower([&] { lent = std::make_unique<Lent<int>>(shelf); });
  borrower.join();
  shelf.leave(std::make_unique<int>(6));
  lent.reset();
  EXPECT_EQ(*shelf.take(), 6);
  EXPECT_EQ(*shelf.take(), 5);
}

TEST(Shelf, LendsUntilTheBorrowerIsGone) {
  Shelf<int> shelf;
  shelf.leave(std::make_unique<int>(5));
  {
    const Lent<int> lent(shelf);
    EXPECT_EQ(*lent, 5);
    EXPECT_EQ(shelf.take([] { return nullptr; }), nullptr);
    *lent = 6;
  }
  EXPECT_EQ(*shelf.take(), 6);
}

}  // namespace
}  // namespace quire::test
