// Blocks of known sizes under one limit.
#include "base/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
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

// --- the system's memory
// ------------------------------------------------------------

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

std::size_t system_page() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

// How much memory lies behind the pages of [data, data + bytes).
std::size_t resident(void* data, std::size_t bytes) {
  std::vector<unsigned char> pages((bytes + system_page() - 1) / system_page());
  if (::mincore(data, bytes, pages.data()) != 0) return 0;  // nothing is mapped there
  const auto here = std::count_if(pages.begin(), pages.end(), [](auto page) { return page & 1; });
  return static_cast<std::size_t>(here) * system_page();
}

// The addresses this process has mapped.
std::size_t mapped_bytes() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * system_page();
}

TEST(SystemMemory, BlocksOf2MiBAndMoreAreAlignedTo2MiB) {
  MemorySource& source = system_memory();
  for (const std::size_t bytes : {2 * kMiB, 2 * kMiB + 1, 3 * kMiB, 5 * kMiB + 4096, 64 * kMiB}) {
    for (int i = 0; i < 3; ++i) {  // wherever the system puts them
      auto* block = static_cast<unsigned char*>(source.allocate(bytes));
      ASSERT_NE(block, nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % (2 * kMiB), 0u) << bytes;
      block[0] = 1;
      block[bytes / 2] = 2;
      block[bytes - 1] = 3;
      EXPECT_EQ(block[0] + block[bytes / 2] + block[bytes - 1], 6);
      source.release(block, bytes);
    }
  }
}

TEST(SystemMemory, ALargeBlockTakesNoMoreAddressesThanItsBytes) {
  MemorySource& source = system_memory();
  const std::size_t before = mapped_bytes();
  std::vector<void*> blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(source.allocate(3 * kMiB));
  EXPECT_LT(mapped_bytes() - before, 32 * 3 * kMiB + 8 * kMiB) << "the surplus was unmapped";
  for (void* block : blocks) source.release(block, 3 * kMiB);
  EXPECT_LT(mapped_bytes(), before + 8 * kMiB);
}

TEST(SystemMemory, AReleasedBlockLeavesNoMemoryBehind) {
  MemorySource& source = system_memory();
  for (const std::size_t bytes : {256 * kKiB, 300 * kKiB, 1536 * kKiB, 2 * kMiB, 5 * kMiB}) {
    std::vector<void*> blocks;
    for (int i = 0; i < 16; ++i) {
      blocks.push_back(source.allocate(bytes));
      ASSERT_NE(blocks.back(), nullptr);
      std::memset(blocks.back(), i + 1, bytes);
    }
    // Every second one: those between them lie in the same huge pages.
    for (std::size_t i = 0; i < blocks.size(); i += 2) {
      EXPECT_EQ(resident(blocks[i], bytes), bytes);
      source.release(blocks[i], bytes);
      EXPECT_EQ(resident(blocks[i], bytes), 0u) << "block " << i << " of " << bytes;
    }
    for (std::size_t i = 1; i < blocks.size(); i += 2) {
      const std::string written(bytes, static_cast<char>(i + 1));
      EXPECT_EQ(std::memcmp(blocks[i], written.data(), bytes), 0) << "block " << i;
    }
    for (std::size_t i = 1; i < blocks.size(); i += 2) source.release(blocks[i], bytes);
  }
}

TEST(SystemMemory, BlocksSideBySideTakeLessThanAHugePageMore) {
  MemorySource& source = system_memory();
  constexpr std::size_t kBytes = 300 * kKiB;
  std::vector<std::byte*> blocks;
  for (std::size_t i = 1; i <= 20; ++i) {
    blocks.push_back(static_cast<std::byte*>(source.allocate(kBytes)));
    std::memset(blocks.back(), 1, kBytes);
    const std::size_t taken = resident(blocks[0], 64 * kMiB);
    EXPECT_GE(taken, i * kBytes) << "the blocks lie side by side";
    EXPECT_LT(taken, i * kBytes + 2 * kMiB);
  }
  std::vector<std::byte*> kept;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i % 5 == 0) {
      kept.push_back(blocks[i]);
    } else {
      source.release(blocks[i], kBytes);
    }
  }
  EXPECT_EQ(resident(blocks[0], 64 * kMiB), kept.size() * kBytes) << "what was more went back too";
  for (std::byte* block : kept) source.release(block, kBytes);
}

TEST(SystemMemory, AReleasedPlaceIsTakenBeforeANewOne) {
  MemorySource& source = system_memory();
  std::vector<void*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(source.allocate(kMiB));
  for (const std::size_t i : {4u, 1u, 2u}) source.release(blocks[i], kMiB);
  for (const std::size_t i : {1u, 2u, 4u}) {
    EXPECT_EQ(source.allocate(kMiB), blocks[i]);
    const std::string zeros(kMiB, '\0');
    EXPECT_EQ(std::memcmp(blocks[i], zeros.data(), kMiB), 0) << "new memory";
  }
  for (void* block : blocks) source.release(block, kMiB);
}

TEST(SystemMemory, AddressesGoBackWithTheLastBlock) {
  MemorySource& source = system_memory();
  constexpr std::size_t kBytes = 1100 * kKiB;  // no other test has blocks of this size
  const std::size_t before = mapped_bytes();
  void* a = source.allocate(kBytes);
  void* b = source.allocate(kBytes);
  source.release(a, kBytes);
  source.release(b, kBytes);
  EXPECT_LT(mapped_bytes(), before + 8 * kMiB);
}

TEST(SystemMemory, BlocksAreWholeAndApart) {
  std::mt19937_64 random(test::announce_seed());
  MemorySource& source = system_memory();
  struct Block {
    unsigned char* data;
    std::size_t bytes;
    unsigned char stamp;
  };
  constexpr std::size_t kStep = 16 * kKiB;
  const auto each = [](const Block& block, auto visit) {
    for (std::size_t at = 0; at < block.bytes; at += kStep) visit(block.data[at]);
    visit(block.data[block.bytes - 1]);
  };
  std::vector<Block> blocks;
  const auto check_and_release = [&](const Block& block) {
    each(block, [&](unsigned char byte) { ASSERT_EQ(byte, block.stamp); });
    source.release(block.data, block.bytes);
  };
  const std::vector<std::size_t> sizes = {100 * kKiB,   256 * kKiB,      308 * kKiB,
                                          300000,       1536 * kKiB,     2 * kMiB - 4096,
                                          2 * kMiB - 1, 2 * kMiB + 4096, 3 * kMiB};
  for (int i = 0; i < 1000; ++i) {
    // Grows to about 80 blocks and back, over and over.
    if (random() % 100 < (i / 200 % 2 == 0 ? 70u : 30u)) {
      const std::size_t bytes = sizes[random() % sizes.size()];
      Block block{static_cast<unsigned char*>(source.allocate(bytes)), bytes,
                  static_cast<unsigned char>(random())};
      ASSERT_NE(block.data, nullptr);
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(block.data) % 64, 0u);
      each(block, [&](unsigned char& byte) { byte = block.stamp; });
      blocks.push_back(block);
    } else if (!blocks.empty()) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      check_and_release(blocks.back());
      blocks.pop_back();
    }
  }
  for (const Block& block : blocks) check_and_release(block);
}

TEST(SystemMemory, MoreBlocksThanARangeHoldsAreThere) {
  MemorySource& source = system_memory();
  std::vector<void*> blocks;
  for (int i = 0; i < 700; ++i) {  // 1050 MiB, none of it touched
    blocks.push_back(source.allocate(1536 * kKiB));
    ASSERT_NE(blocks.back(), nullptr);
  }
  std::sort(blocks.begin(), blocks.end());
  for (std::size_t i = 1; i < blocks.size(); ++i) {
    ASSERT_GE(static_cast<std::byte*>(blocks[i]) - static_cast<std::byte*>(blocks[i - 1]),
              static_cast<std::ptrdiff_t>(1536 * kKiB));
  }
  for (void* block : blocks) source.release(block, 1536 * kKiB);
}

TEST(SystemMemory, CachesOfSeveralThreadsShareIt) {
  MemorySource& source = system_memory();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<unsigned char*> blocks;
      for (int round = 0; round < 20; ++round) {
        for (int i = 0; i < 5; ++i) {
          blocks.push_back(static_cast<unsigned char*>(source.allocate(kMiB)));
          ASSERT_NE(blocks.back(), nullptr);
          blocks.back()[0] = blocks.back()[kMiB - 1] = static_cast<unsigned char>(t);
        }
        for (int i = 0; i < 5; ++i) {
          EXPECT_EQ(blocks.back()[0], t);
          EXPECT_EQ(blocks.back()[kMiB - 1], t);
          source.release(blocks.back(), kMiB);
          blocks.pop_back();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SystemMemory, MoreThanTheSystemHasIsNull) {
  EXPECT_EQ(system_memory().allocate(std::size_t{1} << 60), nullptr);
  EXPECT_EQ(system_memory().allocate(SIZE_MAX - 4096), nullptr);
}

TEST(Memory, MappedBlocksCountWholePages) {
  TestMemory source;
  Memory memory(&source, SIZE_MAX);
  for (const std::size_t bytes : {256 * kKiB + 1, 1536 * kKiB - 1, 2 * kMiB + 1}) {
    const BlockClass size = memory.add_class(bytes);
    void* block = memory.take(size);
    EXPECT_EQ(memory.bytes_used(size), (bytes + system_page() - 1) / system_page() * system_page());
    memory.give(size, block);
  }
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
