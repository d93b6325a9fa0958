#include "base/nearest_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace quire {
namespace {

// What is fetched and what is at hand are as large, and something else is near too.
TEST(NearestCache, HasRoomForThreeTimesWhatIsFetchedIntoIt) {
  const std::size_t bytes = nearest_fetch_bytes();
  EXPECT_EQ(bytes, nearest_fetch_bytes());
  EXPECT_TRUE(bytes == 0 || bytes == 16 * 1024) << bytes;
#ifdef _SC_LEVEL1_DCACHE_SIZE
  const long found = ::sysconf(_SC_LEVEL1_DCACHE_SIZE);
  if (found > 0) {
    EXPECT_LE(3 * bytes, static_cast<std::size_t>(found));
  }
#endif
}

}  // namespace
}  // namespace quire
