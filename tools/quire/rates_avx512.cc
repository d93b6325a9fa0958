// The loops of rates_loops.h for AVX-512 with VNNI and BF16.
//
// Instructions are written as volatile assembly: the compiler can then neither drop nor merge them,
// while it still chooses the registers. All operands are 64 bytes, whatever they hold.
#include "rates_loops.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace quire::tool {
namespace {

struct FmaF32 {
  static constexpr int kMacs = 16;
  static void add(__m512i& sum, __m512i a, __m512i b) {
    asm volatile("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  }
};

struct DotBf16 {
  static constexpr int kMacs = 32;
  static void add(__m512i& sum, __m512i a, __m512i b) {
    asm volatile("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  }
};

struct Dot16 {
  static constexpr int kMacs = 32;
  static void add(__m512i& sum, __m512i a, __m512i b) {
    asm volatile("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  }
};

struct Dot8 {
  static constexpr int kMacs = 64;
  static void add(__m512i& sum, __m512i a, __m512i b) {
    asm volatile("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  }
};

__m512i load(const std::byte* from) { return _mm512_load_si512(from); }

// The 4 bytes at `from`, sixteen times.
__m512i broadcast(const std::byte* from) {
  int number;
  __builtin_memcpy(&number, from, sizeof number);
  return _mm512_set1_epi32(number);
}

// All operands in registers. 16 sums: two instructions per cycle of a latency of up to 8.
constexpr int kSums = 16;

template <typename Op>
void in_registers(std::int64_t turns, const std::byte* operands) noexcept {
  const __m512i a = load(operands);
  const __m512i b = load(operands + 64);
  __m512i sums[kSums] = {};
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    for (int i = 0; i < kSums; ++i) Op::add(sums[i], a, b);
  }
}

// A product of 4 vectors and 6 broadcast numbers, as in a matrix product: per round 4 loads and 6
// broadcasts from L1 for 24 multiply-adds.
constexpr int kVectors = 4;
constexpr int kNumbers = 6;
constexpr int kRounds = 32;
static_assert(2 * kRounds * kVectors * 64 == kOperandBytes);

template <typename Op>
void in_tiles(std::int64_t turns, const std::byte* operands) noexcept {
  __m512i sums[kVectors][kNumbers] = {};
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    const std::byte* vectors = operands;
    const std::byte* numbers = operands + kOperandBytes / 2;
    for (int round = 0; round < kRounds; ++round) {
      __m512i a[kVectors];
      for (int i = 0; i < kVectors; ++i) a[i] = load(vectors + i * 64);
      for (int j = 0; j < kNumbers; ++j) {
        const __m512i b = broadcast(numbers + j * 4);
        for (int i = 0; i < kVectors; ++i) Op::add(sums[i][j], a[i], b);
      }
      vectors += kVectors * 64;
      numbers += kNumbers * 4;
    }
  }
}

template <typename Op>
constexpr PeakLoop kLoops[] = {
    {kSums * Op::kMacs, in_registers<Op>},
    {kRounds * kVectors * kNumbers * Op::kMacs, in_tiles<Op>},
    {0, nullptr},
};

template <bool kPrefetch>
std::uint64_t read_streams(const std::byte* data, std::size_t bytes, std::size_t streams,
                           std::size_t ahead) noexcept {
  const std::size_t stream_bytes = bytes / streams;
  __m512i s0 = {}, s1 = {}, s2 = {}, s3 = {};
  for (std::size_t at = 0; at < stream_bytes; at += 256) {
    for (std::size_t stream = 0; stream < streams; ++stream) {
      const std::byte* from = data + stream * stream_bytes + at;
      for (int line = 0; kPrefetch && line < 256; line += 64) {
        __builtin_prefetch(from + ahead + line);
      }
      s0 = _mm512_add_epi64(s0, load(from));
      s1 = _mm512_add_epi64(s1, load(from + 64));
      s2 = _mm512_add_epi64(s2, load(from + 128));
      s3 = _mm512_add_epi64(s3, load(from + 192));
    }
  }
  s0 = _mm512_add_epi64(_mm512_add_epi64(s0, s1), _mm512_add_epi64(s2, s3));
  alignas(64) std::uint64_t lanes[8];
  _mm512_store_si512(lanes, s0);
  std::uint64_t total = 0;
  for (const std::uint64_t lane : lanes) total += lane;
  return total;
}

std::uint64_t read(const std::byte* data, std::size_t bytes, std::size_t streams,
                   std::size_t ahead) noexcept {
  return ahead > 0 ? read_streams<true>(data, bytes, streams, ahead)
                   : read_streams<false>(data, bytes, streams, ahead);
}

}  // namespace

const RateLoops kRateLoopsAvx512 = {read, kLoops<FmaF32>, kLoops<DotBf16>, kLoops<Dot16>,
                                    kLoops<Dot8>};

}  // namespace quire::tool

#endif
