#include "read_meter.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include "machine.h"
#include "quire/spec.hpp"
#include "rates.h"
#include "rates_loops.h"

namespace quire::tool {
namespace {

constexpr std::size_t kHugePage = 2 * MiB;
constexpr int kRounds = 7;
constexpr std::size_t kWaysAgain = 2;
constexpr std::size_t kThreadBytes = 32 * MiB;  // that a thread reads at once, or all it has
constexpr std::size_t kStreams[] = {1, 8};
constexpr std::size_t kAhead[] = {0, 512, 4096};

std::atomic<std::uint64_t> sink;  // makes results look used

}  // namespace

// Fresh memory, aligned to huge pages, and made of them where asked for and where the system can.
class ReadMeter::Buffer {
 public:
  Buffer(std::size_t bytes, bool huge) : mapped_bytes_(bytes + kHugePage) {
    mapped_ =
        ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped_ == MAP_FAILED) throw std::bad_alloc();
    const auto address = reinterpret_cast<std::uintptr_t>(mapped_);
    data_ = static_cast<std::byte*>(mapped_) + (kHugePage - address % kHugePage) % kHugePage;
#ifdef MADV_HUGEPAGE
    if (huge) ::madvise(data_, bytes, MADV_HUGEPAGE);  // a wish
#endif
  }
  ~Buffer() { ::munmap(mapped_, mapped_bytes_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return data_; }

 private:
  std::size_t mapped_bytes_;
  void* mapped_;
  std::byte* data_;
};

ReadMeter::ReadMeter(const std::string& isa, int threads, bool quick)
    : loops_(loops_of(isa)), threads_(threads) {
  constexpr std::size_t kUnit = 8 * 256;  // what the most streams read in turn
  const std::size_t bytes = quick ? MiB : uncached_bytes();
  const auto count = static_cast<std::size_t>(threads);
  parts_ = std::max(bytes / (kThreadBytes * count), std::size_t{1});
  part_ = std::max(bytes / parts_ / count / kUnit, std::size_t{1}) * kUnit;
  for (const bool huge : {false, true}) {
    buffers_[huge] = std::make_unique<Buffer>(parts_ * part_ * count, huge);
    run_together(threads, [&](int thread) {
      const std::size_t slice = parts_ * part_;
      std::memset(buffers_[huge]->data() + static_cast<std::size_t>(thread) * slice, thread + 1,
                  slice);
    });
    for (const std::size_t streams : kStreams) {
      for (const std::size_t ahead : kAhead) ways_.push_back({huge, streams, ahead, {}});
    }
  }
  for (int round = 0; round < (quick ? 1 : kRounds); ++round) {
    for (Way& way : ways_) read(way);
  }
  // By their medians: the best may have been luck.
  const auto median = [](const Way& way) {
    std::vector<double> sorted = way.gbps;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  };
  std::sort(ways_.begin(), ways_.end(),
            [&](const Way& a, const Way& b) { return median(a) > median(b); });
}

ReadMeter::~ReadMeter() = default;

double ReadMeter::read_again() {
  double best = 0;
  for (std::size_t i = 0; i < kWaysAgain; ++i) best = std::max(best, read(ways_[i]));
  return best;
}

double ReadMeter::read(Way& way) {
  std::size_t& next = next_part_[way.huge];
  const std::size_t part = std::exchange(next, (next + 1) % parts_);
  const std::byte* data = buffers_[way.huge]->data() + part * part_;
  const double seconds = run_together(threads_, [&](int thread) {
    sink = loops_.read(data + static_cast<std::size_t>(thread) * parts_ * part_, part_, way.streams,
                       way.ahead);
  });
  const double gbps = static_cast<double>(part_) * threads_ / seconds / 1e9;
  way.gbps.push_back(gbps);
  best_ = std::max(best_, gbps);
  return gbps;
}

}  // namespace quire::tool
