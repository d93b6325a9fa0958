// What the library says of itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "cache/fixture.h"

namespace quire::test {
namespace {

TEST(BuildInfo, NamesVersionCompilerAndCodecs) {
  const BuildInfo info = build_info();
  EXPECT_EQ(std::count(info.version.begin(), info.version.end(), '.'), 2) << info.version;
  EXPECT_TRUE(std::isdigit(static_cast<unsigned char>(info.version.at(0)))) << info.version;
  EXPECT_FALSE(info.commit.empty());
  EXPECT_FALSE(info.compiler.empty());
  EXPECT_EQ(info.codecs, codec_names());
}

TEST(BuildInfo, TheChosenInstructionSetIsOneOfThoseFound) {
  const BuildInfo info = build_info();
  EXPECT_EQ(std::count(info.isas_found.begin(), info.isas_found.end(), info.isa_chosen), 1);
  EXPECT_EQ(std::count(info.isas_found.begin(), info.isas_found.end(), "scalar"), 1);
}

}  // namespace
}  // namespace quire::test
