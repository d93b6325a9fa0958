// Pages and who holds them.
#include "page/page.h"

#include <gtest/gtest.h>

#include "base/test_memory.h"

namespace quire {
namespace {

class PagePoolTest : public testing::Test {
 protected:
  test::TestMemory source;
  Memory memory{&source, SIZE_MAX};
  PagePool pool{memory, 4, 1000, 200};

  std::size_t headers() const { return memory.blocks_used(pool.header_class()); }
  std::size_t rows() const { return memory.blocks_used(pool.rows_class()); }
  std::size_t sealed() const { return memory.blocks_used(pool.sealed_class()); }
};

TEST_F(PagePoolTest, APageStartsWithoutBlocksOrReferences) {
  Page* page = pool.make(3, 8);
  EXPECT_EQ(page->slots, 3);
  EXPECT_EQ(page->first_ordinal, 8);
  EXPECT_EQ(page->refs, 0u);
  EXPECT_EQ(page->row_refs, 0u);
  EXPECT_EQ(page->rows, nullptr);
  EXPECT_EQ(page->sealed, nullptr);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(page->positions[i], 0);
    EXPECT_EQ(page->keys[i], 0u);
  }
  pool.discard(*page);
}

TEST_F(PagePoolTest, APageCoversTheOrdinalsItWasMadeFor) {
  Page* page = pool.make(3, 8);
  EXPECT_FALSE(page->covers(7));
  EXPECT_TRUE(page->covers(8));
  EXPECT_TRUE(page->covers(10));
  EXPECT_FALSE(page->covers(11));
  pool.discard(*page);
}

TEST_F(PagePoolTest, BlocksCountInMemory) {
  Page* page = pool.make(4, 0);
  pool.add_rows(*page);
  pool.add_sealed(*page);
  EXPECT_EQ(memory.bytes_used(pool.rows_class()), 1024u);  // in whole units of 64
  EXPECT_EQ(memory.bytes_used(pool.sealed_class()), 256u);
  EXPECT_EQ(memory.bytes_used(pool.header_class()), pool.header_bytes());
  pool.drop_rows(*page);
  EXPECT_EQ(page->rows, nullptr);
  EXPECT_EQ(rows(), 0u);
  pool.drop_sealed(*page);
  EXPECT_EQ(page->sealed, nullptr);
  EXPECT_EQ(sealed(), 0u);
  pool.discard(*page);
  EXPECT_EQ(headers(), 0u);
}

TEST_F(PagePoolTest, RowsGoWithTheLastThatNeedsThem) {
  Page* page = pool.make(4, 0);
  pool.add_rows(*page);
  pool.add_sealed(*page);
  pool.retain(*page);
  pool.retain_rows(*page);
  pool.retain_rows(*page);
  pool.release_rows(*page);
  EXPECT_NE(page->rows, nullptr);
  pool.release_rows(*page);
  EXPECT_EQ(page->rows, nullptr);
  EXPECT_NE(page->sealed, nullptr);
  pool.release(*page);
}

TEST_F(PagePoolTest, APageGoesWithItsLastReference) {
  Page* page = pool.make(4, 0);
  pool.add_rows(*page);
  pool.add_sealed(*page);
  pool.retain(*page);
  pool.retain(*page);
  pool.release(*page);
  EXPECT_EQ(headers(), 1u);
  pool.release(*page);
  EXPECT_EQ(headers(), 0u);
  EXPECT_EQ(rows(), 0u);
  EXPECT_EQ(sealed(), 0u);
}

TEST_F(PagePoolTest, AFreshPageGoesBackUnlessSomethingHoldsIt) {
  {
    FreshPage fresh(pool, 4, 0);
    pool.add_rows(*fresh);
    EXPECT_EQ(headers(), 1u);
  }
  EXPECT_EQ(headers(), 0u);
  Page* held = nullptr;
  {
    FreshPage fresh(pool, 4, 0);
    pool.retain(*fresh);
    held = &*fresh;
  }
  EXPECT_EQ(headers(), 1u);
  pool.release(*held);
}

TEST_F(PagePoolTest, AFailedBlockLeavesThePageAsItWas) {
  Page* page = pool.make(4, 0);
  source.allowed = 0;
  EXPECT_THROW(pool.add_rows(*page), MemoryError);
  EXPECT_THROW(pool.add_sealed(*page), MemoryError);
  EXPECT_EQ(page->rows, nullptr);
  EXPECT_EQ(page->sealed, nullptr);
  EXPECT_THROW(pool.make(4, 4), MemoryError);
  pool.discard(*page);
}

}  // namespace
}  // namespace quire
