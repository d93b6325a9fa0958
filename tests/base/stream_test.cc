#include "base/stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace quire {
namespace {

TEST(Stream, CopiesAnyNumberOfBytesToAnyAddress) {
  std::vector<std::byte> from(400);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (std::size_t offset = 0; offset < 66; ++offset) {
    for (const std::size_t bytes : {0u, 1u, 16u, 63u, 64u, 65u, 128u, 200u, 256u}) {
      std::vector<std::byte> to(400, std::byte{0xee});
      stream_copy(to.data() + offset, from.data() + 3, bytes);
      stream_fence();
      std::vector<std::byte> expected(400, std::byte{0xee});
      std::copy_n(from.begin() + 3, bytes, expected.begin() + static_cast<std::ptrdiff_t>(offset));
      ASSERT_EQ(to, expected) << offset << ' ' << bytes;
    }
  }
}

}  // namespace
}  // namespace quire
