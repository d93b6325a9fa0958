// Loops that keep a core as busy as its instruction set allows: reads, and multiply-adds of each
// kind. rates.cc and read_meter.cc time them on all threads at once.
//
// rates_avx2.cc and rates_avx512.cc are compiled for their set alone, so this header holds plain
// structs only: an inline function shared with other files could be the copy the linker keeps.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::tool {

// Bytes of the operands of a loop: half of the smallest L1 data cache in use.
inline constexpr std::size_t kOperandBytes = 16384;

// `run` takes `turns` turns of `macs` multiply-adds each, on kOperandBytes of operands that are
// aligned to 64 bytes and hold numbers of the loop's own type.
struct PeakLoop {
  double macs;
  void (*run)(std::int64_t turns, const std::byte* operands) noexcept;
};

// Lists of loops of which the fastest counts; they end with a null `run`. Null: the set has no such
// instruction.
struct RateLoops {
  // Adds up `bytes` at `data`, `streams` places of it in turn, and asks for what lies `ahead` bytes
  // further on (0: leaves that to the machine). Requires: both multiples of 256 bytes times
  // streams.
  std::uint64_t (*read)(const std::byte* data, std::size_t bytes, std::size_t streams,
                        std::size_t ahead) noexcept;
  const PeakLoop* fma_f32;
  const PeakLoop* dot_bf16;
  const PeakLoop* dot16;
  const PeakLoop* dot8;
};

#if defined(__x86_64__)
extern const RateLoops kRateLoopsAvx2;
extern const RateLoops kRateLoopsAvx512;
#endif

}  // namespace quire::tool
