// quire bench put: how fast a cache takes keys and values in, next to memcpy.
//
// 32 layers of 8 KV heads of 128 channels, f16 keys and values in steps of 512 tokens, all threads.
// A cycle fills a sequence in 4 steps and closes it, so that later cycles get its pages again; the
// first is not counted. Every layer of every step of a cycle has rows of its own, 256 MiB in all,
// so that they come from memory. Only put is timed: begin and commit are `bench manage`.
//
// `gbps` are source bytes, over the seconds of the fastest cycle. `memcpy_gbps` is the fastest copy
// of the same source into memory of the same size, a part per thread; cycles and copies alternate,
// so that both see the same machine. `ratio` is gbps over memcpy_gbps.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "machine.h"
#include "noise.h"
#include "options.h"
#include "print.h"
#include "quire/cache.hpp"
#include "quire/executor.hpp"
#include "rates.h"

namespace quire::tool {
namespace {

constexpr int kKvHeads = 8;
constexpr int kHeadDim = 128;
constexpr int kCycleSteps = 4;
constexpr int kCycles = 5;            // at least
constexpr double kEnoughSeconds = 1;  // of puts
constexpr double kPatience = 10;      // seconds after which two cycles will do

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Size {
  int layers = 32;
  std::int64_t step_tokens = 512;

  std::size_t side_elements() const {  // keys or values of one layer of a step
    return static_cast<std::size_t>(step_tokens) * kKvHeads * kHeadDim;
  }
  std::size_t cycle_elements() const {
    return side_elements() * 2 * static_cast<std::size_t>(layers) * kCycleSteps;
  }
};

class Puts {
 public:
  Puts(const CodecPair& codec, const Size& size, const std::vector<std::uint16_t>& source)
      : size_(size), source_(source), cache_(Cache::create(spec_of(codec, size)).value()) {}

  // One sequence, opened, filled and closed; returns the seconds of its puts.
  double cycle();

 private:
  static CacheSpec spec_of(const CodecPair& codec, const Size& size) {
    CacheSpec spec = CacheSpec::uniform(
        {.layers = size.layers, .kv_heads = kKvHeads, .head_dim = kHeadDim, .codec = codec});
    spec.threads = usable_cores();
    return spec;
  }

  Size size_;
  const std::vector<std::uint16_t>& source_;
  Cache cache_;
};

double Puts::cycle() {
  const Sequence sequence = cache_.open().value();
  const std::uint16_t* source = source_.data();
  const auto next_rows = [&] {
    const auto rows = TensorView::dense(source, DType::f16, size_.step_tokens, kKvHeads, kHeadDim);
    source += size_.side_elements();
    return rows;
  };
  double seconds = 0;
  for (int i = 0; i < kCycleSteps; ++i) {
    Step step =
        cache_.begin(Batch().add(sequence.id(), i * size_.step_tokens, size_.step_tokens)).value();
    const auto start = Clock::now();
    for (int layer = 0; layer < size_.layers; ++layer) {
      const TensorView keys = next_rows();
      step.put(layer, keys, next_rows()).value();
    }
    seconds += seconds_since(start);
    step.commit().value();
  }
  sequence.close().value();
  return seconds;
}

// Copies all of `source`, a part per thread; returns the seconds.
double copy(const std::vector<std::uint16_t>& source, std::vector<std::uint16_t>& target,
            int threads) {
  const std::size_t part = source.size() / static_cast<std::size_t>(threads);
  return run_together(threads, [&](int thread) {
    const std::size_t begin = part * static_cast<std::size_t>(thread);
    const std::size_t end = thread + 1 == threads ? source.size() : begin + part;
    std::memcpy(target.data() + begin, source.data() + begin, (end - begin) * sizeof source[0]);
  });
}

Json measure(const std::vector<CodecPair>& codecs, bool quick) {
  const Size size = quick ? Size{2, 64} : Size{};
  const int threads = usable_cores();
  const std::vector<std::uint16_t> source = normal_f16(size.cycle_elements());
  std::vector<std::uint16_t> target(source.size());
  const auto bytes = static_cast<double>(source.size() * sizeof source[0]);
  Json rows = Json::array();
  for (const CodecPair& codec : codecs) {
    fmt::print(stderr, "bench put: {}\n", name_of(codec));
    Puts puts(codec, size, source);
    puts.cycle();
    double put_s = std::numeric_limits<double>::infinity();
    double copy_s = put_s;
    double total = 0;
    for (int cycles = 0; cycles < kCycles || total < (quick ? 0 : kEnoughSeconds); ++cycles) {
      if (cycles >= 2 && total > kPatience) break;
      const double seconds = puts.cycle();
      put_s = std::min(put_s, seconds);
      total += seconds;
      copy_s = std::min(copy_s, copy(source, target, threads));
    }
    rows.push_back({{"codec", name_of(codec)},
                    {"layers", size.layers},
                    {"threads", threads},
                    {"gbps", bytes / put_s / 1e9},
                    {"memcpy_gbps", bytes / copy_s / 1e9},
                    {"ratio", copy_s / put_s}});
  }
  return rows;
}

struct Options {
  bool json = false;
  bool quick = false;
  std::vector<CodecPair> codecs;  // empty: all
};

void run(const Options& options) {
  const Json rows = measure(options.codecs.empty() ? all_codecs() : options.codecs, options.quick);
  print_measured(rows, options.json,
                 {{"codec", "codec"},
                  {"layers", "layers"},
                  {"threads", "threads"},
                  {"gbps", "put GB/s", 2},
                  {"memcpy_gbps", "memcpy GB/s", 2},
                  {"ratio", "ratio", 3}});
}

}  // namespace

void add_bench_put(CLI::App& bench) {
  CLI::App* put = bench.add_subcommand("put", "Source bytes per second of put, next to memcpy");
  auto options = std::make_shared<Options>();
  put->add_flag("--json", options->json, "Print {\"machine\": {...}, \"rows\": [...]}");
  put->add_flag("--quick", options->quick,
                "Few tokens and cycles, for a test: the numbers mean little");
  add_list(*put, "--codec", options->codecs, codec_of,
           "Of keys and values, of each, or presets: f16,int8/f16,balanced");
  put->callback([options] { run(*options); });
}

}  // namespace quire::tool
