#include "rates.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "rates_loops.h"

namespace quire::tool {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<std::uint64_t> sink;  // makes results look used

// --- the loops without an instruction set: what the compiler makes of vectors of 16 bytes

using Words = std::uint64_t __attribute__((vector_size(16)));
using Floats = float __attribute__((vector_size(16)));

template <typename Vector>
Vector load(const std::byte* from) {
  Vector vector;
  __builtin_memcpy(&vector, from, sizeof vector);
  return vector;
}

std::uint64_t read_scalar(const std::byte* data, std::size_t bytes, std::size_t streams,
                          std::size_t ahead) noexcept {
  const std::size_t stream_bytes = bytes / streams;
  Words s0 = {}, s1 = {}, s2 = {}, s3 = {};
  for (std::size_t at = 0; at < stream_bytes; at += 256) {
    for (std::size_t stream = 0; stream < streams; ++stream) {
      const std::byte* from = data + stream * stream_bytes + at;
      for (int line = 0; line < 256; line += 64) {
        if (ahead > 0) __builtin_prefetch(from + ahead + line);
        s0 += load<Words>(from + line);
        s1 += load<Words>(from + line + 16);
        s2 += load<Words>(from + line + 32);
        s3 += load<Words>(from + line + 48);
      }
    }
  }
  s0 += s1 + s2 + s3;
  return s0[0] + s0[1];
}

// 2 vectors times 4 others, as in a matrix product: 8 sums, a multiplication and an addition each.
// The others are vectors too, since a number costs a shuffle.
constexpr int kRounds = 128;
static_assert(kRounds * 64 <= kOperandBytes / 2);

void multiply_scalar(std::int64_t turns, const std::byte* operands) noexcept {
  Floats sums[2][4] = {};
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    asm volatile("" ::: "memory");  // the operands might be others now
    for (int round = 0; round < kRounds; ++round) {
      const auto a0 = load<Floats>(operands + round * 32);
      const auto a1 = load<Floats>(operands + round * 32 + 16);
      for (int j = 0; j < 4; ++j) {
        const auto b = load<Floats>(operands + kOperandBytes / 2 + round * 64 + j * 16);
        sums[0][j] += a0 * b;
        sums[1][j] += a1 * b;
      }
    }
  }
  Floats total = {};
  for (int j = 0; j < 4; ++j) total += sums[0][j] + sums[1][j];
  sink = static_cast<std::uint64_t>(total[0] + total[1] + total[2] + total[3] != 0);
}

constexpr PeakLoop kScalarLoops[] = {{kRounds * 8 * 4, multiply_scalar}, {0, nullptr}};
constexpr RateLoops kRateLoopsScalar = {read_scalar, kScalarLoops, nullptr, nullptr, nullptr};

}  // namespace

const RateLoops& loops_of(const std::string& isa) {
#if defined(__x86_64__)
  if (isa == "avx2") return kRateLoopsAvx2;
  if (isa == "avx512") return kRateLoopsAvx512;
#endif
  (void)isa;
  return kRateLoopsScalar;
}

namespace {

// --- operands

struct alignas(64) Operands {
  std::byte bytes[kOperandBytes];
};

// Numbers between -1 and 1, so that no sum becomes infinite.
Operands random_f32() {
  Operands operands;
  std::minstd_rand random(1);
  for (std::size_t at = 0; at < kOperandBytes; at += sizeof(float)) {
    const float number = std::uniform_real_distribution<float>(-1, 1)(random);
    std::memcpy(operands.bytes + at, &number, sizeof number);
  }
  return operands;
}

// The upper halves of such numbers.
Operands random_bf16() {
  Operands operands = random_f32();
  for (std::size_t at = 0; at < kOperandBytes; at += 4) {
    std::memcpy(operands.bytes + at, operands.bytes + at + 2, 2);
  }
  return operands;
}

// Integers of either size.
Operands random_bytes() {
  Operands operands;
  std::minstd_rand random(1);
  for (std::byte& byte : operands.bytes) byte = static_cast<std::byte>(random() >> 8);
  return operands;
}

// --- multiply-adds

struct Effort {
  double round_s;
  int rounds;
};

double peak_of(const PeakLoop& loop, const Operands& operands, int threads, const Effort& effort) {
  const auto seconds = [&](std::int64_t turns) {
    return run_together(threads, [&](int) { loop.run(turns, operands.bytes); });
  };
  std::int64_t turns = 16;
  while (seconds(turns) < effort.round_s / 2 && turns < (std::int64_t{1} << 40)) turns *= 2;
  double best = seconds(turns);
  for (int round = 1; round < effort.rounds; ++round) best = std::min(best, seconds(turns));
  return loop.macs * static_cast<double>(turns) * threads / best / 1e9;
}

std::optional<double> best_peak(const PeakLoop* loops, const Operands& operands, int threads,
                                const Effort& effort) {
  std::optional<double> best;
  for (; loops != nullptr && loops->run != nullptr; ++loops) {
    best = std::max(best.value_or(0), peak_of(*loops, operands, threads, effort));
  }
  return best;
}

}  // namespace

double run_together(int threads, const std::function<void(int thread)>& work) {
  struct Times {
    Clock::time_point begin, end;
  };
  std::vector<Times> times(static_cast<std::size_t>(threads));
  std::atomic<int> missing = threads;
  std::atomic<bool> give_up = false;
  const auto run = [&](int thread) {
    --missing;
    while (missing > 0 && !give_up) std::this_thread::yield();
    if (give_up) return;
    Times& mine = times[static_cast<std::size_t>(thread)];
    mine.begin = Clock::now();
    work(thread);
    mine.end = Clock::now();
  };
  std::vector<std::thread> others;
  const auto join = [&] {
    for (std::thread& other : others) other.join();
  };
  try {
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
  } catch (...) {
    give_up = true;
    join();
    throw;
  }
  run(0);
  join();
  Times all = times.front();
  for (const Times& one : times) {
    all.begin = std::min(all.begin, one.begin);
    all.end = std::max(all.end, one.end);
  }
  return std::chrono::duration<double>(all.end - all.begin).count();
}

void Rates::keep_larger(const Rates& again) {
  read_gbps = std::max(read_gbps, again.read_gbps);
  fma_f32_gmacs = std::max(fma_f32_gmacs, again.fma_f32_gmacs);
  dot_bf16_gmacs = std::max(dot_bf16_gmacs, again.dot_bf16_gmacs);  // nothing is less than a number
  dot16_gmacs = std::max(dot16_gmacs, again.dot16_gmacs);
  dot8_gmacs = std::max(dot8_gmacs, again.dot8_gmacs);
}

Rates measure_multiplying(const std::string& isa, int threads, bool quick) {
  const Effort effort = quick ? Effort{0.0002, 2} : Effort{kRoundSeconds, 12};
  const RateLoops& loops = loops_of(isa);
  const Operands f32 = random_f32();
  const Operands bytes = random_bytes();
  Rates rates;
  rates.threads = threads;
  rates.fma_f32_gmacs = best_peak(loops.fma_f32, f32, threads, effort).value_or(0);
  rates.dot_bf16_gmacs = best_peak(loops.dot_bf16, random_bf16(), threads, effort);
  rates.dot16_gmacs = best_peak(loops.dot16, bytes, threads, effort);
  rates.dot8_gmacs = best_peak(loops.dot8, bytes, threads, effort);
  return rates;
}

Json to_json(const Rates& rates) {
  const auto number = [](const std::optional<double>& rate) -> Json {
    return rate.has_value() ? Json(*rate) : Json(nullptr);
  };
  return {{"read_gbps", rates.read_gbps},
          {"fma_f32_gmacs", rates.fma_f32_gmacs},
          {"dot_bf16_gmacs", number(rates.dot_bf16_gmacs)},
          {"dot16_gmacs", number(rates.dot16_gmacs)},
          {"dot8_gmacs", number(rates.dot8_gmacs)}};
}

}  // namespace quire::tool
