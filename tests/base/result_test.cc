// Errors as values.
#include "quire/result.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/error.h"

namespace quire {
namespace {

Result<int> half(int number) {
  if (number % 2 != 0) return fail(ErrorCode::out_of_range, "half: {} is odd", number);
  return number / 2;
}

Result<int> quarter(int number) {
  QUIRE_TRY(const int once, half(number));
  return half(once);
}

Result<void> check_even(int number) {
  QUIRE_CHECK(half(number));
  return {};
}

TEST(Result, HoldsAValueOrAnError) {
  const Result<int> good = half(8);
  EXPECT_TRUE(good.ok());
  EXPECT_TRUE(static_cast<bool>(good));
  EXPECT_EQ(*good, 4);
  EXPECT_EQ(good.value(), 4);
  EXPECT_EQ(good.code(), ErrorCode::ok);
  const Result<int> bad = half(7);
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.code(), ErrorCode::out_of_range);
  EXPECT_EQ(bad.error().text, "half: 7 is odd");
}

TEST(Result, TheValueOfAFailedOneThrowsWithCodeAndText) {
  try {
    half(7).value();
    FAIL();
  } catch (const ResultError& error) {
    EXPECT_EQ(error.code, ErrorCode::out_of_range);
    EXPECT_STREQ(error.what(), "out_of_range: half: 7 is odd");
  }
  EXPECT_THROW(check_even(3).value(), ResultError);
  EXPECT_NO_THROW(check_even(2).value());
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(3);
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 3);
}

TEST(Result, TryAndCheckPassErrorsOn) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).error().text, "half: 3 is odd");
  EXPECT_EQ(check_even(5).code(), ErrorCode::out_of_range);
  EXPECT_EQ(check_even(4).code(), ErrorCode::ok);
}

}  // namespace
}  // namespace quire
