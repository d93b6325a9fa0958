// How fast this machine reads memory, and how fast it does now. Memory is read in order and from
// several places in turn, with and without prefetch, in pages of the usual size and in huge ones.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

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

  int threads() const noexcept { return threads_; }
  // GB/s of the best read so far.
  double best() const noexcept { return best_; }
  // GB/s of the better of two reads more, in the ways that were the fastest most of the time. Cost:
  // some milliseconds.
  double read_again();

 private:
  class Buffer;
  struct Way {
    bool huge = false;
    std::size_t streams = 1;
    std::size_t ahead = 0;
    std::vector<double> gbps;  // of each read
  };

  double read(Way& way);

  const RateLoops& loops_;
  int threads_;
  std::size_t parts_;                   // of a buffer; in no cache when their turn comes
  std::size_t part_;                    // bytes of a part that a thread reads
  std::size_t next_part_[2] = {};       // of each buffer
  std::unique_ptr<Buffer> buffers_[2];  // of pages of the usual size, of huge ones
  std::vector<Way> ways_;               // the fastest first
  double best_ = 0;
};

}  // namespace quire::tool
