// The loops of rates_loops.h for AVX2 with FMA.
//
// Instructions are written as volatile assembly: the compiler can then neither drop nor merge them,
// while it still chooses the registers. All operands are 32 bytes, whatever they hold.
#include "rates_loops.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace quire::tool {
namespace {

__m256i multiply_16(__m256i a, __m256i b) {
  __m256i products;
  asm volatile("vpmaddwd %2, %1, %0" : "=x"(products) : "x"(a), "x"(b));
  return products;
}

__m256i multiply_8(__m256i a, __m256i b) {
  __m256i products;
  asm volatile("vpmaddubsw %2, %1, %0" : "=x"(products) : "x"(a), "x"(b));
  return products;
}

void add_16(__m256i& sum, __m256i a) { asm volatile("vpaddw %1, %0, %0" : "+x"(sum) : "x"(a)); }
void add_32(__m256i& sum, __m256i a) { asm volatile("vpaddd %1, %0, %0" : "+x"(sum) : "x"(a)); }

struct FmaF32 {
  static constexpr int kMacs = 8;
  static void add(__m256i& sum, __m256i a, __m256i b) {
    asm volatile("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
  }
};

struct Dot16 {
  static constexpr int kMacs = 16;
  static __m256i multiply(__m256i a, __m256i b) { return multiply_16(a, b); }
  static void add(__m256i& sum, __m256i a, __m256i b) { add_32(sum, multiply(a, b)); }
};

struct Dot8 {
  static constexpr int kMacs = 32;
  static __m256i multiply(__m256i a, __m256i b) {
    return multiply_16(multiply_8(a, b), _mm256_set1_epi16(1));
  }
  static void add(__m256i& sum, __m256i a, __m256i b) { add_32(sum, multiply(a, b)); }
};

__m256i load(const std::byte* from) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
}

// The 4 bytes at `from`, eight times.
__m256i broadcast(const std::byte* from) {
  int number;
  __builtin_memcpy(&number, from, sizeof number);
  return _mm256_set1_epi32(number);
}

// All operands in registers. 12 sums: two instructions per cycle of a latency of up to 6, and they
// fit into 16 registers with their operands.
constexpr int kSums = 12;

template <typename Op>
void in_registers(std::int64_t turns, const std::byte* operands) noexcept {
  const __m256i a = load(operands);
  const __m256i b = load(operands + 32);
  __m256i sums[kSums] = {};
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    for (int i = 0; i < kSums; ++i) Op::add(sums[i], a, b);
  }
}

// The same with 6 products, then 6 sums: Zen 4 is at half its rate when the two kinds alternate.
constexpr int kGroup = 6;

template <typename Op>
void in_groups(std::int64_t turns, const std::byte* operands) noexcept {
  const __m256i a = load(operands);
  const __m256i b = load(operands + 32);
  __m256i sums[kGroup] = {};
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    __m256i products[kGroup];
    for (int i = 0; i < kGroup; ++i) products[i] = Op::multiply(a, b);
    for (int i = 0; i < kGroup; ++i) add_32(sums[i], products[i]);
  }
}

constexpr int kRounds = 64;

// A product of `kVectors` vectors and `kNumbers` broadcast numbers, as in a matrix product, with
// all operands loaded from L1.
template <typename Op, int kVectors, int kNumbers>
void in_tiles(std::int64_t turns, const std::byte* operands) noexcept {
  static_assert(kRounds * kVectors * 32 <= kOperandBytes / 2);
  static_assert(kRounds * kNumbers * 4 <= kOperandBytes / 2);
  __m256i sums[kVectors][kNumbers] = {};
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    const std::byte* vectors = operands;
    const std::byte* numbers = operands + kOperandBytes / 2;
    for (int round = 0; round < kRounds; ++round) {
      __m256i a[kVectors];
      for (int i = 0; i < kVectors; ++i) a[i] = load(vectors + i * 32);
      for (int j = 0; j < kNumbers; ++j) {
        const __m256i b = broadcast(numbers + j * 4);
        for (int i = 0; i < kVectors; ++i) Op::add(sums[i][j], a[i], b);
      }
      vectors += kVectors * 32;
      numbers += kNumbers * 4;
    }
  }
}

// Products of bytes, added up in 16 bits over 8 rounds and only then in 32: 17 instructions for 8
// times 32 multiply-adds. Sums may saturate; how long it takes is all that counts here.
constexpr int kNarrow = 8;

void narrow_in_registers(std::int64_t turns, const std::byte* operands) noexcept {
  constexpr int kChains = 4;
  const __m256i ones = _mm256_set1_epi16(1);
  const __m256i a = load(operands);
  const __m256i b = load(operands + 32);
  __m256i sums[kChains] = {};
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    __m256i narrow[kChains];
    for (int c = 0; c < kChains; ++c) narrow[c] = multiply_8(a, b);
    for (int i = 1; i < kNarrow; ++i) {
      __m256i products[kChains];
      for (int c = 0; c < kChains; ++c) products[c] = multiply_8(a, b);
      for (int c = 0; c < kChains; ++c) add_16(narrow[c], products[c]);
    }
    for (int c = 0; c < kChains; ++c) add_32(sums[c], multiply_16(narrow[c], ones));
  }
}

void narrow_in_tiles(std::int64_t turns, const std::byte* operands) noexcept {
  constexpr int kVectors = 2;
  constexpr int kNumbers = 2;
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sums[kVectors][kNumbers] = {};
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    const std::byte* vectors = operands;
    const std::byte* numbers = operands + kOperandBytes / 2;
    for (int round = 0; round < kRounds; round += kNarrow) {
      __m256i narrow[kVectors][kNumbers];
      for (int n = 0; n < kNarrow; ++n) {
        for (int j = 0; j < kNumbers; ++j) {
          const __m256i b = broadcast(numbers + j * 4);
          for (int i = 0; i < kVectors; ++i) {
            const __m256i products = multiply_8(load(vectors + i * 32), b);
            if (n == 0) {
              narrow[i][j] = products;
            } else {
              add_16(narrow[i][j], products);
            }
          }
        }
        vectors += kVectors * 32;
        numbers += kNumbers * 4;
      }
      for (int j = 0; j < kNumbers; ++j) {
        for (int i = 0; i < kVectors; ++i) add_32(sums[i][j], multiply_16(narrow[i][j], ones));
      }
    }
  }
}

constexpr PeakLoop kFmaF32[] = {
    {kSums * FmaF32::kMacs, in_registers<FmaF32>},
    {kRounds * 2 * 6 * FmaF32::kMacs, in_tiles<FmaF32, 2, 6>},
    {0, nullptr},
};

constexpr PeakLoop kDot16[] = {
    {kSums * Dot16::kMacs, in_registers<Dot16>},
    {kGroup * Dot16::kMacs, in_groups<Dot16>},
    {kRounds * 2 * 4 * Dot16::kMacs, in_tiles<Dot16, 2, 4>},
    {0, nullptr},
};

constexpr PeakLoop kDot8[] = {
    {kSums * Dot8::kMacs, in_registers<Dot8>},
    {kGroup * Dot8::kMacs, in_groups<Dot8>},
    {kRounds * 2 * 4 * Dot8::kMacs, in_tiles<Dot8, 2, 4>},
    {4 * kNarrow * Dot8::kMacs, narrow_in_registers},
    {kRounds * 2 * 2 * Dot8::kMacs, narrow_in_tiles},
    {0, nullptr},
};

template <bool kPrefetch>
std::uint64_t read_streams(const std::byte* data, std::size_t bytes, std::size_t streams,
                           std::size_t ahead) noexcept {
  const std::size_t stream_bytes = bytes / streams;
  __m256i s0 = {}, s1 = {}, s2 = {}, s3 = {};
  for (std::size_t at = 0; at < stream_bytes; at += 256) {
    for (std::size_t stream = 0; stream < streams; ++stream) {
      const std::byte* from = data + stream * stream_bytes + at;
      for (int line = 0; kPrefetch && line < 256; line += 64) {
        __builtin_prefetch(from + ahead + line);
      }
      s0 = _mm256_add_epi64(s0, load(from));
      s1 = _mm256_add_epi64(s1, load(from + 32));
      s2 = _mm256_add_epi64(s2, load(from + 64));
      s3 = _mm256_add_epi64(s3, load(from + 96));
      s0 = _mm256_add_epi64(s0, load(from + 128));
      s1 = _mm256_add_epi64(s1, load(from + 160));
      s2 = _mm256_add_epi64(s2, load(from + 192));
      s3 = _mm256_add_epi64(s3, load(from + 224));
    }
  }
  s0 = _mm256_add_epi64(_mm256_add_epi64(s0, s1), _mm256_add_epi64(s2, s3));
  alignas(32) std::uint64_t lanes[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), s0);
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

const RateLoops kRateLoopsAvx2 = {read, kFmaF32, nullptr, kDot16, kDot8};

}  // namespace quire::tool

#endif
