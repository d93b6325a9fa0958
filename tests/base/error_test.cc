#include "base/error.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace quire {
namespace {

TEST(Error, EveryCodeHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::invalid_argument); ++code) {
    names.insert(error_name(static_cast<ErrorCode>(code)));
  }
  EXPECT_EQ(names.size(), 17u);
  EXPECT_EQ(names.count("unknown"), 0u);
  EXPECT_STREQ(error_name(ErrorCode::over_limit), "over_limit");
  EXPECT_STREQ(error_name(static_cast<ErrorCode>(-1)), "unknown");
}

}  // namespace
}  // namespace quire
