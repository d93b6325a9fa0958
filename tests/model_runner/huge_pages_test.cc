#include "model/huge_pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <new>

namespace quire::model {
namespace {

TEST(HugePages, GiveAlignedMemoryOfAnySize) {
  HugePages pages;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{100'000}, std::size_t{5'000'000}}) {
    void* const data = pages.allocate(bytes, 64);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % (2u << 20), 0u);
    std::memset(data, 7, bytes);
    pages.deallocate(data, bytes, 64);
  }
}

TEST(HugePages, SayWhenThereIsNoMemory) {
  HugePages pages;
  EXPECT_THROW((void)pages.allocate(SIZE_MAX - 4096), std::bad_alloc);
  EXPECT_THROW((void)pages.allocate(std::size_t{1} << 56), std::bad_alloc);
}

TEST(HugePages, AreAllTheSame) {
  EXPECT_TRUE(HugePages().is_equal(HugePages()));
  EXPECT_FALSE(HugePages().is_equal(*std::pmr::new_delete_resource()));
}

}  // namespace
}  // namespace quire::model
