// Blocks of known sizes under one limit.
#include "base/memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/seed.h"
#include "base/test_memory.h"

namespace quire {
namespace {

using test::TestMemory;

// A list of `count` blocks of one class.
Memory::KeepList blocks(BlockClass block_class, std::size_t count) {
  Memory::KeepList list;
  list.add(block_class, count);
  return list;
}

// What take throws, or ok.
ErrorCode code_of_take(Memory& memory, BlockClass block_class, void*& block) {
  try {
    block = memory.take(block_class);
    return ErrorCode::ok;
  } catch (const MemoryError& error) {
    return error.code;
  }
}

TEST(Memory, BlocksAreAlignedTo64) {
  Memory memory(nullptr, SIZE_MAX);
  for (const std::size_t bytes : {1u, 64u, 100u, 4096u, 3u << 20}) {
    const BlockClass size = memory.add_class(bytes);
    void* block = memory.take(size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0u) << bytes;
    std::memset(block, 0x5a, bytes);
    memory.give(size, block);
  }
}

TEST(Memory, BytesHeldAreWhatTheSourceHasGiven) {
  TestMemory source;
  Memory memory(&source, SIZE_MAX);
  const BlockClass small = memory.add_class(100);  // rounded up to 128
  const BlockClass large = memory.add_class(1024);
  void* a = memory.take(small);
  void* b = memory.take(large);
  EXPECT_EQ(memory.bytes_held(), 128u + 1024u);
  EXPECT_EQ(source.bytes, memory.bytes_held());
  memory.give(small, a);
  EXPECT_EQ(memory.bytes_held(), 128u + 1024u) << "a free block is still held";
  EXPECT_EQ(memory.bytes_free(), 128u);
  memory.give(large, b);
  EXPECT_EQ(memory.bytes_free(), 128u + 1024u);
}

TEST(Memory, BlocksAreCountedByClass) {
  TestMemory source;
  Memory memory(&source, SIZE_MAX);
  const BlockClass size = memory.add_class(256);
  void* a = memory.take(size);
  void* b = memory.take(size);
  memory.give(size, a);
  EXPECT_EQ(memory.blocks_used(size), 1u);
  EXPECT_EQ(memory.blocks_free(size), 1u);
  EXPECT_EQ(memory.bytes_used(size), 256u);
  EXPECT_EQ(memory.bytes_used_tables(), 0u);
  memory.give(size, b);
}

TEST(Memory, AFreeBlockIsTakenBeforeANewOne) {
  TestMemory source;
  Memory memory(&source, SIZE_MAX);
  const BlockClass size = memory.add_class(256);
  void* block = memory.take(size);
  memory.give(size, block);
  const std::int64_t calls = source.calls;
  EXPECT_EQ(memory.take(size), block);
  EXPECT_EQ(source.calls, calls);
  memory.give(size, block);
}

TEST(Memory, TablesAreRoundedUpToAPowerOfTwo) {
  TestMemory source;
  Memory memory(&source, SIZE_MAX);
  for (const auto& [asked, taken] :
       std::vector<std::pair<std::size_t, std::size_t>>{{1, 64}, {64, 64}, {65, 128}, {129, 256}}) {
    void* table = memory.allocate(asked);
    EXPECT_EQ(memory.bytes_used_tables(), taken) << asked;
    EXPECT_EQ(Memory::table_bytes(asked), taken) << asked;
    memory.deallocate(table, asked);
  }
  EXPECT_EQ(memory.bytes_used_tables(), 0u);
}

TEST(Memory, OverTheLimitIsAnErrorThatNamesTheNumbers) {
  TestMemory source;
  Memory memory(&source, 1000);
  const BlockClass size = memory.add_class(512);
  void* block = memory.take(size);
  try {
    memory.take(size);
    FAIL() << "512 more do not fit 1000";
  } catch (const MemoryError& error) {
    EXPECT_EQ(error.code, ErrorCode::over_limit);
    const Error text = error.to_error("begin");
    EXPECT_EQ(text.code, ErrorCode::over_limit);
    for (const char* part : {"begin", "512", "488", "1000"}) {
      EXPECT_NE(text.text.find(part), std::string::npos) << text.text;
    }
  }
  EXPECT_EQ(memory.bytes_held(), 512u);
  EXPECT_EQ(memory.blocks_used(size), 1u);
  memory.give(size, block);
}

TEST(Memory, ABlockLargerThanTheLimitIsRefused) {
  TestMemory source;
  Memory memory(&source, 100);
  void* block = nullptr;
  EXPECT_EQ(code_of_take(memory, memory.add_class(128), block), ErrorCode::over_limit);
  EXPECT_EQ(source.calls, 0);
}

TEST(Memory, FreeBlocksOfOtherClassesMakeRoom) {
  TestMemory source;
  Memory memory(&source, 1024);
  const BlockClass small = memory.add_class(512);
  const BlockClass large = memory.add_class(1024);
  void* a = memory.take(small);
  void* b = memory.take(small);
  memory.give(small, a);
  memory.give(small, b);
  void* whole = memory.take(large);
  EXPECT_EQ(memory.bytes_held(), 1024u);
  EXPECT_LE(source.peak_bytes, 1024u);
  memory.give(large, whole);
}

TEST(Memory, TheLimitIsNeverExceeded) {
  std::mt19937_64 random(test::announce_seed());
  TestMemory source;
  constexpr std::size_t kLimit = 10000;
  Memory memory(&source, kLimit);
  std::vector<BlockClass> classes;
  for (const std::size_t bytes : {64u, 192u, 512u, 2048u}) {
    classes.push_back(memory.add_class(bytes));
  }
  std::vector<std::pair<BlockClass, void*>> held;
  for (int i = 0; i < 20000; ++i) {
    if (random() % 5 < 3) {
      const BlockClass size = classes[random() % classes.size()];
      void* block = nullptr;
      if (code_of_take(memory, size, block) == ErrorCode::ok) held.push_back({size, block});
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      memory.give(held.back().first, held.back().second);
      held.pop_back();
    }
    ASSERT_EQ(memory.bytes_held(), source.bytes);
    ASSERT_LE(source.peak_bytes, kLimit);
  }
  for (const auto& [size, block] : held) memory.give(size, block);
}

TEST(Memory, ALowerLimitStopsNewBlocksOnly) {
  TestMemory source;
  Memory memory(&source, SIZE_MAX);
  const BlockClass size = memory.add_class(512);
  void* block = memory.take(size);
  memory.set_limit(256);
  EXPECT_EQ(memory.bytes_limit(), 256u);
  void* more = nullptr;
  EXPECT_EQ(code_of_take(memory, size, more), ErrorCode::over_limit);
  EXPECT_EQ(memory.bytes_held(), 512u);
  memory.give(size, block);
}

TEST(Memory, ShrinkGivesFreeBlocksBack) {
  TestMemory source;
  Memory memory(&source, SIZE_MAX);
  const BlockClass size = memory.add_class(512);
  void* a = memory.take(size);
  void* b = memory.take(size);
  memory.give(size, b);
  EXPECT_EQ(memory.shrink(), 512u);
  EXPECT_EQ(memory.bytes_held(), 512u);
  EXPECT_EQ(memory.bytes_free(), 0u);
  EXPECT_EQ(source.bytes, 512u);
  EXPECT_EQ(memory.shrink(), 0u);
  memory.give(size, a);
}

TEST(Memory, AFailingSourceIsAnErrorAndChangesNothing) {
  TestMemory source;
  Memory memory(&source, SIZE_MAX);
  const BlockClass size = memory.add_class(512);
  source.allowed = 0;
  try {
    memory.take(size);
    FAIL();
  } catch (const MemoryError& error) {
    EXPECT_EQ(error.code, ErrorCode::out_of_memory);
    EXPECT_NE(error.to_error("open").text.find("512"), std::string::npos);
  }
  EXPECT_EQ(memory.bytes_held(), 0u);
  EXPECT_EQ(memory.blocks_used(size), 0u);
}

TEST(Memory, AFailingSourceIsAskedAgainAfterFreeBlocksWentBack) {
  // Has 1024 bytes and no more.
  class Small : public TestMemory {
   public:
    void* allocate(std::size_t size) noexcept override {
      return bytes + size <= 1024 ? TestMemory::allocate(size) : nullptr;
    }
  };
  Small source;
  Memory memory(&source, SIZE_MAX);
  const BlockClass half = memory.add_class(512);
  const BlockClass whole = memory.add_class(1024);
  memory.give(half, memory.take(half));
  void* block = memory.take(whole);
  ASSERT_NE(block, nullptr);
  memory.give(whole, block);
}

// --- keeping blocks for the next begin
// ------------------------------------------------------------

TEST(MemoryKeep, KeptBlocksAreFreeBlocksThatOthersLeaveAlone) {
  TestMemory source;
  Memory memory(&source, SIZE_MAX);
  const BlockClass size = memory.add_class(512);
  memory.keep(blocks(size, 2));
  EXPECT_EQ(memory.blocks_free(size), 2u);
  EXPECT_EQ(memory.bytes_held(), 1024u);
  void* other = memory.take(size);
  EXPECT_EQ(memory.blocks_free(size), 2u) << "take went to the source";
  EXPECT_EQ(memory.bytes_held(), 1536u);
  memory.give(size, other);
}

TEST(MemoryKeep, ADrawTakesKeptBlocksWithoutTheSource) {
  TestMemory source;
  Memory memory(&source, SIZE_MAX);
  const BlockClass size = memory.add_class(512);
  Memory::KeepList list = blocks(size, 2);
  list.add_table(100, 1);
  memory.keep(list);
  source.allowed = 0;
  void* a = nullptr;
  void* b = nullptr;
  void* table = nullptr;
  {
    Memory::Draw draw(memory);
    a = memory.take(size);
    b = memory.take(size);
    table = memory.allocate(100);
  }
  void* none = nullptr;
  EXPECT_EQ(code_of_take(memory, size, none), ErrorCode::out_of_memory);
  memory.give(size, a);
  memory.give(size, b);
  memory.deallocate(table, 100);
}

TEST(MemoryKeep, AListAddsUpAndReplacesTheOneBefore) {
  TestMemory source;
  Memory memory(&source, SIZE_MAX);
  const BlockClass size = memory.add_class(512);
  Memory::KeepList list;
  list.add(size, 2);
  list.add(size, 3);
  memory.keep(list);
  EXPECT_EQ(memory.blocks_free(size), 5u);
  memory.keep(blocks(size, 1));
  EXPECT_EQ(memory.shrink(), 4u * 512);
  memory.keep({});
  EXPECT_EQ(memory.shrink(), 512u);
}

TEST(MemoryKeep, FreeBlocksAreKeptBeforeNewOnesAreMade) {
  TestMemory source;
  Memory memory(&source, SIZE_MAX);
  const BlockClass size = memory.add_class(512);
  memory.give(size, memory.take(size));
  memory.keep(blocks(size, 1));
  EXPECT_EQ(memory.bytes_held(), 512u);
}

TEST(MemoryKeep, ShrinkLeavesKeptBlocks) {
  TestMemory source;
  Memory memory(&source, SIZE_MAX);
  const BlockClass size = memory.add_class(512);
  memory.keep(blocks(size, 2));
  EXPECT_EQ(memory.shrink(), 0u);
  memory.forget_kept();
  EXPECT_EQ(memory.shrink(), 1024u);
  EXPECT_EQ(memory.bytes_held(), 0u);
}

TEST(MemoryKeep, BlocksThatCameBackAreKeptAgain) {
  TestMemory source;
  Memory memory(&source, SIZE_MAX);
  const BlockClass size = memory.add_class(512);
  memory.keep(blocks(size, 2));
  std::vector<std::uint32_t> kept;
  void* block = nullptr;
  {
    Memory::Draw draw(memory);
    block = memory.take(size);
    kept = draw.release_kept();
  }
  memory.give(size, block);
  EXPECT_EQ(memory.shrink(), 512u) << "one of the two is an ordinary free block now";
  void* again = memory.take(size);
  memory.give(size, again);
  memory.restore_kept(kept);
  EXPECT_EQ(memory.shrink(), 0u);
}

TEST(MemoryKeep, MoreThanTheLimitIsRefusedAndKeepsWhatWasKept) {
  TestMemory source;
  Memory memory(&source, 1200);
  const BlockClass small = memory.add_class(64);
  const BlockClass size = memory.add_class(512);
  memory.keep(blocks(size, 1));
  Memory::KeepList list = blocks(size, 3);
  list.add(small, 2);
  EXPECT_THROW(memory.keep(list), MemoryError);
  EXPECT_LE(source.peak_bytes, 1200u);
  memory.shrink();
  EXPECT_EQ(memory.bytes_held(), 512u);
}

}  // namespace
}  // namespace quire
