#include "model/resident.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/slow_build.h"
#include "quire/memory.hpp"

namespace quire::model::test {
namespace {

TEST(Resident, CountsWhatIsTouched) {
  if (quire::test::kSlowBuild) GTEST_SKIP() << "instrumented programs have memory of their own";
  const Resident before = resident_memory().value();
  EXPECT_GT(before.anonymous_bytes, 0);
  EXPECT_GT(before.file_bytes, 0);
  EXPECT_GE(before.peak_bytes, before.anonymous_bytes + before.file_bytes);
  constexpr std::size_t kBytes = 64 * MiB;
  {
    const std::vector<char> block(kBytes, 1);
    const Resident with = resident_memory().value();
    EXPECT_GE(with.anonymous_bytes, before.anonymous_bytes + std::int64_t{kBytes} * 9 / 10);
  }
  EXPECT_LT(resident_memory().value().anonymous_bytes, before.anonymous_bytes + std::int64_t{MiB});
}

// Large blocks in mappings of their own, in pages of the usual size.
class PlainMemory : public MemorySource {
 public:
  void* allocate(std::size_t bytes) noexcept override {
    if (bytes < kMapped) return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    ::madvise(data, bytes, MADV_NOHUGEPAGE);
    return data;
  }
  void release(void* data, std::size_t bytes) noexcept override {
    if (bytes < kMapped) {
      std::free(data);
    } else {
      ::munmap(data, bytes);
    }
  }

 private:
  static constexpr std::size_t kMapped = 64 * KiB;
};

// A full context of 8,192 tokens in a cache of the default model's shape.
CacheMemory memory_of_full_context(const std::string& codec, MemorySource* source) {
  CacheSpec spec = CacheSpec::gqa(30, 9, 3, 64);
  spec.set_codec(codec).value();
  spec.memory = source;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  constexpr std::int64_t kStep = 512;
  std::vector<float> rows(kStep * 3 * 64);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i % 97) - 48;
  const TensorView view = TensorView::dense(rows.data(), DType::f32, kStep, 3, 64);
  for (std::int64_t at = 0; at < 8192; at += kStep) {
    Step step = cache.begin(Batch().add(sequence.id(), at, kStep)).value();
    for (int layer = 0; layer < 30; ++layer) step.put(layer, view, view).value();
    step.commit().value();
  }
  const CacheMemory memory = empty_and_measure(cache).value();
  EXPECT_TRUE(cache.sequences().empty());
  return memory;
}

TEST(Resident, ACacheTakesTheBytesThatItSays) {
  if (quire::test::kSlowBuild) GTEST_SKIP() << "instrumented programs have memory of their own";
  for (const char* codec : {"f16", "int8", "balanced", "tiny"}) {
    SCOPED_TRACE(codec);
    PlainMemory plain;
    const CacheMemory exact = memory_of_full_context(codec, &plain);
    EXPECT_GT(exact.stats_bytes, 40 << 20);
    EXPECT_NEAR(static_cast<double>(exact.resident_bytes) / static_cast<double>(exact.stats_bytes),
                1, 0.01);
    const CacheMemory built_in = memory_of_full_context(codec, nullptr);
    EXPECT_NEAR(
        static_cast<double>(built_in.resident_bytes) / static_cast<double>(built_in.stats_bytes), 1,
        0.01);
  }
}

}  // namespace
}  // namespace quire::model::test
