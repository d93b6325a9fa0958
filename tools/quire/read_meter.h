// How fast this machine reads memory, at its best and now. Memory is read in order and from several
// places in turn, with and without prefetch, in pages of the usual size and in huge ones.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace quire::tool {

struct RateLoops;  // rates_loops.h

class ReadMeter {
 public:
  // Reads with the instruction set of that name, on so many threads, in all ways a few times. Cost:
  // about a second, and buffers much larger than the caches; `quick`: some milliseconds, and a
  // number that means little.
  ReadMeter(const std::string& isa, int threads, bool quick);
  ~ReadMeter();
  ReadMeter(const ReadMeter&) = delete;
  ReadMeter& operator=(const ReadMeter&) = delete;

  // GB/s of the best read.
  double best() const noexcept { return best_; }
  // GB/s of one read more, in the way that was the best. Cost: some milliseconds.
  double read_once() const { return read(best_way_); }

 private:
  class Buffer;
  struct Way {
    bool huge = false;
    std::size_t streams = 1;
    std::size_t ahead = 0;
  };

  double read(const Way& way) const;

  const RateLoops& loops_;
  int threads_;
  std::size_t slice_;                   // bytes of a thread
  std::unique_ptr<Buffer> buffers_[2];  // of pages of the usual size, of huge ones
  Way best_way_;
  double best_ = 0;
};

}  // namespace quire::tool
