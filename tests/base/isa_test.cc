// Instruction sets: their names, which are found, and what QUIRE_ISA asks for. It is looked at once
// in the life of a process, so each value has a process of its own.
#include "base/isa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "quire/cache.hpp"

namespace quire {
namespace {

TEST(Isa, NamesAreThoseOfTheVariable) {
  EXPECT_STREQ(name_of(Isa::scalar), "scalar");
  EXPECT_STREQ(name_of(Isa::avx2), "avx2");
  EXPECT_STREQ(name_of(Isa::avx512), "avx512");
}

TEST(Isa, ScalarIsAlwaysFoundAndTheBestIsLast) {
  const std::vector<Isa> found = isas_found();
  ASSERT_FALSE(found.empty());
  EXPECT_LE(found.size(), kIsas);
  EXPECT_EQ(found.front(), Isa::scalar);
  for (std::size_t i = 1; i < found.size(); ++i) EXPECT_LT(found[i - 1], found[i]);
  EXPECT_EQ(isas_found(), found);
}

TEST(Isa, TheChosenOneIsFound) {
  const std::vector<Isa> found = isas_found();
  EXPECT_NE(std::find(found.begin(), found.end(), chosen_isa()), found.end());
}

// Ends the process with what it chose and what becomes of a cache, on one line of stderr.
[[noreturn]] void report_with(const char* value) {
  if (value == nullptr) {
    ::unsetenv("QUIRE_ISA");
  } else {
    ::setenv("QUIRE_ISA", value, 1);
  }
  CacheSpec spec = CacheSpec::mha(1, 1, 16);
  spec.memory_limit_bytes = 1 << 20;
  const Result<Cache> cache = Cache::create(spec);
  const std::string made =
      cache.ok() ? "made" : error_name(cache.code()) + std::string(", ") + cache.error().text;
  std::fprintf(stderr, "asked %s, chose %s, cache: %s\n",
               asked_isa().ok() ? name_of(asked_isa().value()) : "none", name_of(chosen_isa()),
               made.c_str());
  std::exit(0);
}

class IsaDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(IsaDeathTest, TheVariableNamesOneThatIsFound) {
  for (const Isa isa : isas_found()) {
    const std::string name = name_of(isa);
    EXPECT_EXIT(report_with(name.c_str()), testing::ExitedWithCode(0),
                "asked " + name + ", chose " + name + ", cache: made");
  }
}

TEST_F(IsaDeathTest, WithoutTheVariableTheBestIsChosen) {
  const std::string best = name_of(isas_found().back());
  const std::string expected = "asked " + best + ", chose " + best + ", cache: made";
  EXPECT_EXIT(report_with(nullptr), testing::ExitedWithCode(0), expected);
  EXPECT_EXIT(report_with(""), testing::ExitedWithCode(0), expected);
}

TEST_F(IsaDeathTest, AnyOtherValueIsRefusedByName) {
  const std::string best = name_of(isas_found().back());
  for (const std::string value : {"sse9", "AVX2", "avx", "scalar ", "none"}) {
    EXPECT_EXIT(
        report_with(value.c_str()), testing::ExitedWithCode(0),
        "asked none, chose " + best + ", cache: not_supported, .*\"" + value + "\".*scalar");
  }
}

}  // namespace
}  // namespace quire
