// quire bench attention: how long attend takes for one layer, and how long this machine needs at
// least.
//
// A case is a shape, a context, a codec, a number of threads and a number of queries: 1 (decode) or
// more (prefill: the last ones of the context). Its cache is built through the public surface: a
// sequence gets all tokens but the queries' in steps of 512, then a step with the queries is left
// open, and attend is called on it for one layer after the other. A pass calls it for every layer
// of every sequence; there are as many sequences as it takes for a pass to read more than the
// caches hold (uncached_bytes), so that all of it comes from memory. Where that many take too long
// or too much memory there are fewer, and fewer layers if need be: a trial with one layer tells.
// Queries are f16, or bf16 where the keys are, as in an engine that computes in bf16.
//
// `us` is what a pass takes, over its calls. Passes are timed in pieces as short as the rounds of
// which a peak rate is the best (of one call, where that takes longer; the last what is left),
// memory is read before and behind each, and of each place in a pass that piece counts which took
// the least together with its floor: memory and cores that are shared are fast and slow by
// milliseconds, and may turn from one to the other between a piece and a read. The cache's threads
// fall asleep while memory is read. In an engine whose own loops they run, or whose loops are
// short, they are awake when attend is called: before a piece begins they are kept at work for a
// moment with short sequences, which is not timed. `pass_us` is that of the best whole pass.
// `bytes` are the cached bytes that the queries of one layer see, each once: pages that the last
// query reads sealed at their sealed bytes, the rest as rows. `gflops` counts the pairs of query
// and token that see each other, keys and values, 2 per multiply-add.
//
// `floor_us` is the larger of bytes over bandwidth and multiply-adds over their peak rate: that of
// the bf16 dot product for bf16, of the 16-bit one for int8, of the 8-bit one for codecs of fewer
// than 8 bits and of f32 FMA for the others, and of f32 FMA where the instruction set has no such
// dot product. Keys and values count at their own codec's rate, and add up. `efficiency` is
// floor_us over us; one above 1 means that the floor was measured too high.
//
// Bandwidth is that of the row, `read_gbps`: of those reads, with the same threads. On a shared
// machine it can jump by half, for milliseconds or for seconds, and a floor of one moment says
// nothing of a pass of another. The machine's read_gbps is the best of the whole run. Peak rates
// are measured before, between and behind the rows, and the best counts.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "machine.h"
#include "noise.h"
#include "options.h"
#include "print.h"
#include "quire/cache.hpp"
#include "quire/executor.hpp"
#include "rates.h"
#include "read_meter.h"

namespace quire::tool {
namespace {

constexpr std::int64_t kPageTokens = 64;
constexpr std::int64_t kStepTokens = 512;
constexpr std::int64_t kPrefill = 512;
constexpr std::size_t kCacheBytes = 3 * GiB;
constexpr int kPasses = 5;             // at least
constexpr int kSeconds = 3;            // of passes, where nothing is asked for
constexpr double kMostSeconds = 2;     // of kPasses passes
constexpr double kPatience = 10;       // seconds after which two passes will do
constexpr double kRateSeconds = 20;    // between two measurements of the machine
constexpr double kWakeSeconds = 2e-4;  // to have all threads awake

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Shape {
  int query_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;

  bool operator==(const Shape&) const = default;
  std::string text() const { return fmt::format("{}/{}/{}", query_heads, kv_heads, head_dim); }
  // Those of the models that have these shapes.
  int layers() const { return *this == Shape{9, 3, 64} ? 30 : 32; }
};

struct Case {
  Shape shape;
  std::int64_t context = 0;
  int threads = 1;
  CodecPair codec;
  std::int64_t queries = 1;

  std::string text() const {
    return fmt::format("{}, context {}, {}, {} {}, {} {}", shape.text(), grouped(context),
                       name_of(codec), queries, queries == 1 ? "query" : "queries", threads,
                       threads == 1 ? "thread" : "threads");
  }
  DType query_type() const { return codec.key == "bf16" ? DType::bf16 : DType::f16; }
  // Of all queries and query heads, for one side.
  double multiply_adds() const {
    const std::int64_t pairs = queries * (context - queries) + queries * (queries + 1) / 2;
    return static_cast<double>(pairs) * shape.query_heads * shape.head_dim;
  }
};

// --- a cache with open steps

class Workload {
 public:
  Workload(const Case& task, int layers, int sequences);

  // A part of a pass, and how long reading as many bytes took, before and behind it on the average.
  struct Piece {
    double attend_s = 0;
    double read_s = 0;
    int calls = 0;
  };

  // Attends to every layer of every sequence. `gbps`: asked before and behind each piece.
  std::vector<Piece> pass(int piece_calls, const std::function<double()>& gbps);
  // Keeps all threads at work for a moment.
  void wake();

  int calls() const { return static_cast<int>(steps_.size()) * layers_; }  // of a pass
  std::size_t bytes_seen() const;                                          // by one call
  std::size_t bytes_held() const { return cache_.stats().bytes; }

 private:
  Step filled(std::int64_t history, std::int64_t queries, int sequences = 1);
  void put(Step& step);
  TensorView next_rows(std::int64_t tokens);

  Case task_;
  int layers_;
  std::vector<std::uint16_t> source_;
  std::size_t source_at_ = 0;
  std::vector<std::uint16_t> q_;
  std::vector<float> out_;
  Cache cache_;
  std::vector<Step> steps_;
  Step short_;  // of one token behind two pages, for as many sequences as threads
};

CacheSpec spec_of(const Case& task, int layers) {
  CacheSpec spec = CacheSpec::uniform({.layers = layers,
                                       .kv_heads = task.shape.kv_heads,
                                       .head_dim = task.shape.head_dim,
                                       .query_heads = task.shape.query_heads,
                                       .codec = task.codec});
  spec.page_tokens = static_cast<int>(kPageTokens);
  spec.threads = task.threads;
  return spec;
}

// Views of the source begin anywhere in this many numbers, so that no two pages are equal.
constexpr std::size_t kSourceShift = 1 << 17;

Workload::Workload(const Case& task, int layers, int sequences)
    : task_(task), layers_(layers), cache_(Cache::create(spec_of(task, layers)).value()) {
  const Shape& shape = task.shape;
  const std::int64_t queries = std::max<std::int64_t>(task.queries, task.threads);
  const std::int64_t rows = std::max(kStepTokens, queries);
  source_ =
      normal_f16(static_cast<std::size_t>(rows * shape.kv_heads * shape.head_dim) + kSourceShift);
  const auto numbers = static_cast<std::size_t>(queries * shape.query_heads * shape.head_dim);
  q_ = task.query_type() == DType::bf16 ? normal_bf16(numbers) : normal_f16(numbers);
  out_.resize(q_.size());
  for (int i = 0; i < sequences; ++i) {
    steps_.push_back(filled(task.context - task.queries, task.queries));
  }
  short_ = filled(2 * kPageTokens, 1, task.threads);
}

// An open step of so many queries behind a history, of each of some sequences.
Step Workload::filled(std::int64_t history, std::int64_t queries, int sequences) {
  Batch batch;
  for (int i = 0; i < sequences; ++i) {
    const Sequence sequence = cache_.open().value();
    for (std::int64_t at = 0; at < history; at += kStepTokens) {
      Step step =
          cache_.begin(Batch().add(sequence.id(), at, std::min(kStepTokens, history - at))).value();
      put(step);
      step.commit().value();
    }
    batch.add(sequence.id(), history, queries);
  }
  Step step = cache_.begin(batch).value();
  put(step);
  return step;
}

void Workload::wake() {
  const Shape& shape = task_.shape;
  const auto q = TensorView::dense(q_.data(), task_.query_type(), task_.threads, shape.query_heads,
                                   shape.head_dim);
  const auto out = OutputView::dense(out_.data(), task_.threads, shape.query_heads, shape.head_dim);
  const auto start = Clock::now();
  while (seconds_since(start) < kWakeSeconds) short_.attend(0, q, out).value();
}

TensorView Workload::next_rows(std::int64_t tokens) {
  source_at_ = (source_at_ + 64 * 331) % kSourceShift;
  return TensorView::dense(source_.data() + source_at_, DType::f16, tokens, task_.shape.kv_heads,
                           task_.shape.head_dim);
}

void Workload::put(Step& step) {
  for (int layer = 0; layer < layers_; ++layer) {
    const TensorView keys = next_rows(step.tokens());
    step.put(layer, keys, next_rows(step.tokens())).value();
  }
}

std::vector<Workload::Piece> Workload::pass(int piece_calls, const std::function<double()>& gbps) {
  const auto q = TensorView::dense(q_.data(), task_.query_type(), task_.queries,
                                   task_.shape.query_heads, task_.shape.head_dim);
  const auto out =
      OutputView::dense(out_.data(), task_.queries, task_.shape.query_heads, task_.shape.head_dim);
  std::vector<Piece> pieces;
  const auto call_bytes = static_cast<double>(bytes_seen());
  Piece piece;
  double before = gbps();
  auto start = Clock::now();
  const auto end_piece = [&] {
    piece.attend_s = seconds_since(start);
    const double behind = gbps();
    piece.read_s = piece.calls * call_bytes * (1 / before + 1 / behind) / 2 / 1e9;
    before = behind;
    pieces.push_back(std::exchange(piece, {}));
    start = Clock::now();
  };
  for (Step& step : steps_) {
    for (int layer = 0; layer < layers_; ++layer) {
      step.attend(layer, q, out).value();
      if (++piece.calls == piece_calls) end_piece();
    }
  }
  if (piece.calls > 0) end_piece();
  return pieces;
}

Workload::Piece sum_of(const std::vector<Workload::Piece>& pieces) {
  Workload::Piece sum;
  for (const Workload::Piece& piece : pieces) {
    sum.attend_s += piece.attend_s;
    sum.read_s += piece.read_s;
    sum.calls += piece.calls;
  }
  return sum;
}

std::size_t Workload::bytes_seen() const {
  const LayerInfo layer = cache_.layer_info(0).value();
  const std::int64_t sealed_pages = (task_.context - 1) / kPageTokens;
  const std::int64_t rows = task_.context - sealed_pages * kPageTokens;
  return static_cast<std::size_t>(sealed_pages) * layer.sealed_bytes_per_page +
         static_cast<std::size_t>(rows) * layer.row_bytes_per_token;
}

// --- measuring one case

struct Size {
  int layers = 1;
  int sequences = 1;
  int piece_calls = 1;
};

// As much as memory and time allow, but no more sequences than a pass out of memory needs.
Size size_of(const Case& task) {
  Workload trial(task, 1, 1);
  const auto call = [&] { return sum_of(trial.pass(1, [] { return 1.0; })).attend_s; };
  double call_s = call();
  for (double total = call_s; total < 0.05;) {
    const double again = call();
    total += again;
    call_s = std::min(call_s, again);
  }
  const double by_time = kMostSeconds / kPasses / call_s;
  const double by_bytes =
      static_cast<double>(kCacheBytes) / static_cast<double>(trial.bytes_held());
  const double calls = std::min({by_time, by_bytes, 1e6});
  Size size;
  size.layers = std::max(1, std::min(task.shape.layers(), static_cast<int>(calls)));
  const double layer_bytes = static_cast<double>(trial.bytes_seen()) * size.layers;
  const double wanted = static_cast<double>(uncached_bytes()) / layer_bytes + 1;
  size.sequences = std::max(1, static_cast<int>(std::min(wanted, calls / size.layers)));
  size.piece_calls = static_cast<int>(std::ceil(kRoundSeconds / 2 / call_s));
  return size;
}

// --- the machine

// The best rates seen so far, by the number of threads.
class Machine {
 public:
  Machine(const std::vector<Case>& cases, bool quick)
      : isa_(build_info().isa_chosen), quick_(quick) {
    for (const Case& task : cases) best_[task.threads].threads = task.threads;
  }

  void measure() {
    fmt::print(stderr, "bench attention: bandwidth and peak rates of this machine\n");
    for (auto& [threads, best] : best_) {
      best.keep_larger(measure_multiplying(isa_, threads, quick_));
      read_again(threads);
    }
    measured_ = Clock::now();
  }
  // GB/s of reading memory once more.
  double read_again(int threads) {
    if (meter_ == nullptr || meter_->threads() != threads) {
      meter_.reset();
      meter_ = std::make_unique<ReadMeter>(isa_, threads, quick_);
    }
    const double now = meter_->read_again();
    Rates& best = best_.at(threads);
    best.read_gbps = std::max(best.read_gbps, meter_->best());
    return now;
  }
  void measure_again_if_due() {
    if (!quick_ && seconds_since(measured_) > kRateSeconds) measure();
  }

  const Rates& rates(int threads) const { return best_.at(threads); }

  // machine() with the rates of the most threads, and those of each number of threads.
  Json facts() const {
    Json facts = machine();
    facts.update(to_json(best_.rbegin()->second));
    facts["measured"] = Json::array();
    for (const auto& [threads, best] : best_) {
      facts["measured"].push_back({{"threads", threads}});
      facts["measured"].back().update(to_json(best));
    }
    return facts;
  }

 private:
  std::string isa_;
  bool quick_;
  std::map<int, Rates> best_;
  std::unique_ptr<ReadMeter> meter_;  // of the threads that were asked for last
  Clock::time_point measured_;
};

struct Measured {
  Case task;
  int layers = 0;
  double us = 0;         // of one call
  double pass_us = 0;    // of one call, in the best pass
  double read_gbps = 0;  // of memory, between the pieces
  std::size_t bytes = 0;
};

// 10^9 multiply-adds per second on what a codec stores.
double gmacs_for(const std::string& codec, const Rates& rates) {
  if (codec == "bf16") return rates.dot_bf16_gmacs.value_or(rates.fma_f32_gmacs);
  if (codec == "int8") return rates.dot16_gmacs.value_or(rates.fma_f32_gmacs);
  if (codec.starts_with("tq") || codec.starts_with("dual") || codec == "q4_0") {
    return rates.dot8_gmacs.value_or(rates.fma_f32_gmacs);
  }
  return rates.fma_f32_gmacs;
}

// Microseconds that the multiply-adds of a call take at least.
double multiply_us(const Case& task, const Rates& rates) {
  const double macs = task.multiply_adds();
  return macs / gmacs_for(task.codec.key, rates) / 1e3 +
         macs / gmacs_for(task.codec.value, rates) / 1e3;
}

// Memory of a shared machine is now this fast and now that, so that only what was measured at one
// moment can be compared: of each place in a pass that piece counts which took the least together
// with its floor, of multiply-adds (`call_s` for each call) or of the reads around it.
void keep_best(std::vector<Workload::Piece>& best, const std::vector<Workload::Piece>& now,
               double call_s) {
  const auto with_floor = [&](const Workload::Piece& piece) {
    return piece.attend_s + std::max(piece.read_s, piece.calls * call_s);
  };
  if (best.empty()) best = now;
  for (std::size_t i = 0; i < best.size(); ++i) {
    if (with_floor(now[i]) < with_floor(best[i])) best[i] = now[i];
  }
}

Measured measure(const Case& task, Machine& machine, int seconds, bool quick) {
  fmt::print(stderr, "bench attention: {}\n", task.text());
  const Size size = quick ? Size{2, 1, 1} : size_of(task);
  Workload workload(task, size.layers, size.sequences);
  const auto pass = [&] {
    return workload.pass(size.piece_calls, [&] {
      const double gbps = machine.read_again(task.threads);
      workload.wake();
      return gbps;
    });
  };
  pass();
  std::vector<Workload::Piece> best;
  double best_pass = 0;
  double total = 0;
  for (int passes = 0; passes < kPasses || (total < seconds && !quick); ++passes) {
    if (passes >= 2 && total > std::max<double>(seconds, kPatience)) break;
    const std::vector<Workload::Piece> pieces = pass();
    keep_best(best, pieces, multiply_us(task, machine.rates(task.threads)) / 1e6);
    const double pass_s = sum_of(pieces).attend_s;
    best_pass = passes == 0 ? pass_s : std::min(best_pass, pass_s);
    total += pass_s;
  }
  const Workload::Piece all = sum_of(best);
  const double us = all.attend_s / workload.calls() * 1e6;
  // A mean, by its rounding, may be above all that it is of.
  const double gbps =
      std::min(static_cast<double>(workload.bytes_seen()) * all.calls / all.read_s / 1e9,
               machine.rates(task.threads).read_gbps);
  fmt::print(stderr, "bench attention: {:.1f} us per layer, memory at {:.1f} GB/s\n", us, gbps);
  return {task, size.layers, us, best_pass / workload.calls() * 1e6, gbps, workload.bytes_seen()};
}

Json row_of(const Measured& measured, const Rates& rates) {
  const Case& task = measured.task;
  const double macs = task.multiply_adds();
  const auto bytes = static_cast<double>(measured.bytes);
  const double read_us = bytes / measured.read_gbps / 1e3;
  const double floor_us = std::max(read_us, multiply_us(task, rates));
  return {{"shape", task.shape.text()},
          {"context", task.context},
          {"threads", task.threads},
          {"codec", name_of(task.codec)},
          {"isa", build_info().isa_chosen},
          {"queries", task.queries},
          {"layers", measured.layers},
          {"us", measured.us},
          {"pass_us", measured.pass_us},
          {"bytes", measured.bytes},
          {"gbps", bytes / measured.us / 1e3},
          {"read_gbps", measured.read_gbps},
          {"gflops", 2 * 2 * macs / measured.us / 1e3},
          {"floor_us", floor_us},
          {"efficiency", floor_us / measured.us}};
}

// --- what to run

struct Options {
  bool json = false;
  bool full = false;
  bool quick = false;
  int seconds = kSeconds;
  // Empty: the default.
  std::vector<Shape> shapes;
  std::vector<std::int64_t> contexts;
  std::vector<std::int64_t> queries;
  std::vector<int> threads;
  std::vector<CodecPair> codecs;
};

Shape parse_shape(const std::string& text) {
  const std::vector<std::string> parts = split(text, '/');
  Shape shape;
  try {
    const auto part = [&](std::size_t i) {
      return static_cast<int>(parse_count(parts[i], 1, 4096));
    };
    if (parts.size() == 3) shape = {part(0), part(1), part(2)};
  } catch (const std::invalid_argument&) {
    // The text below names the whole item.
  }
  if (shape.kv_heads == 0 || shape.query_heads % shape.kv_heads != 0) {
    throw std::invalid_argument(fmt::format(
        "\"{}\" is not a shape: query heads, KV heads that divide them, and head size, as in "
        "32/8/128",
        text));
  }
  return shape;
}

int parse_threads(const std::string& text) {
  return text == "all" ? usable_cores() : static_cast<int>(parse_count(text, 1, 1024));
}

template <typename T>
std::vector<T> either(const std::vector<T>& asked, std::vector<T> usual) {
  return asked.empty() ? usual : asked;
}

std::vector<Case> cases_of(const Options& options) {
  using Counts = std::vector<std::int64_t>;
  const bool full = options.full;
  const bool quick = options.quick && !full;
  std::vector<Shape> shapes = {{32, 8, 128}, {9, 3, 64}};
  if (full) shapes.push_back({32, 32, 128});
  if (quick) shapes = {{9, 3, 64}};
  std::vector<int> threads = {usable_cores()};
  if (full && usable_cores() > 1) threads.insert(threads.begin(), 1);

  std::vector<Case> cases;
  for (const Shape& shape : either(options.shapes, shapes)) {
    for (const std::int64_t queries : either(options.queries, Counts{1, quick ? 64 : kPrefill})) {
      const bool decode = queries == 1;
      const Counts contexts = full     ? Counts{1024, 4096, 16384, 32768}
                              : quick  ? Counts{256}
                              : decode ? Counts{4096, 16384}
                                       : Counts{4096};
      const std::vector<CodecPair> codecs =
          full     ? all_codecs()
          : decode ? codecs_of({"f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "tq6", "tq5", "tq4",
                                "tq3", "tq2", "dual6/tq5", "dual5/tq4", "dual4/tq4", "dual3/tq3"})
                   : codecs_of({"f16", "bf16", "int8", "fp8_e4m3", "tq4", "dual4/tq4"});
      for (const std::int64_t context : either(options.contexts, contexts)) {
        if (queries > context) {
          fmt::print(stderr,
                     "bench attention: {} queries are more than a context of {}: left out\n",
                     grouped(queries), grouped(context));
          continue;
        }
        for (const CodecPair& codec : either(options.codecs, codecs)) {
          for (const int count : either(options.threads, threads)) {
            cases.push_back({shape, context, count, codec, queries});
          }
        }
      }
    }
  }
  // Before anything is measured: a codec may not take a head size.
  std::erase_if(cases, [](const Case& task) {
    const Result<Cache> cache = Cache::create(spec_of(task, 1));
    if (!cache) {
      fmt::print(stderr, "bench attention: {}: {}: left out\n", task.text(), cache.error().text);
    }
    return !cache;
  });
  if (cases.empty()) throw std::runtime_error("bench attention: nothing is left to measure");
  return cases;
}

void print(const Json& facts, const Json& rows) {
  print_table(Json::array({facts}),
              {{"cpu", "cpu"}, {"cores", "cores"}, {"isa", "isa"}, {"compiler", "compiler"}});
  fmt::print("\n");
  print_table(facts["measured"], {{"threads", "threads"},
                                  {"read_gbps", "read GB/s", 1},
                                  {"fma_f32_gmacs", "f32 FMA G/s", 1},
                                  {"dot_bf16_gmacs", "bf16 dot G/s", 1},
                                  {"dot16_gmacs", "16-bit dot G/s", 1},
                                  {"dot8_gmacs", "8-bit dot G/s", 1}});
  fmt::print("\n");
  print_table(rows, {{"shape", "shape"},
                     {"context", "context"},
                     {"queries", "queries"},
                     {"threads", "threads"},
                     {"codec", "codec"},
                     {"layers", "layers"},
                     {"us", "us per layer", 1},
                     {"gbps", "GB/s", 2},
                     {"read_gbps", "memory GB/s", 2},
                     {"gflops", "GFLOP/s", 1},
                     {"floor_us", "floor us", 1},
                     {"efficiency", "efficiency", 3}});
}

void run(const Options& options) {
  const std::vector<Case> cases = cases_of(options);
  Machine machine(cases, options.quick);
  machine.measure();
  std::vector<Measured> measured;
  for (const Case& task : cases) {
    machine.measure_again_if_due();
    measured.push_back(measure(task, machine, options.seconds, options.quick));
  }
  machine.measure();
  Json rows = Json::array();
  for (const Measured& one : measured) {
    rows.push_back(row_of(one, machine.rates(one.task.threads)));
    if (const double efficiency = rows.back()["efficiency"].get<double>(); efficiency > 1) {
      fmt::print(stderr,
                 "bench attention: {}: efficiency {:.3f} is above 1, so the floor is too high: a "
                 "fault of this benchmark\n",
                 one.task.text(), efficiency);
    }
  }
  if (options.json) {
    print_json({{"machine", machine.facts()}, {"rows", rows}});
  } else {
    print(machine.facts(), rows);
  }
}

}  // namespace

void add_bench_attention(CLI::App& bench) {
  CLI::App* attention = bench.add_subcommand(
      "attention", "Microseconds of attend per layer, and how near they are to what is possible");
  auto options = std::make_shared<Options>();
  attention->add_flag("--json", options->json, "Print {\"machine\": {...}, \"rows\": [...]}");
  attention->add_flag("--full", options->full, "All shapes, contexts, codecs and threads");
  attention->add_flag("--quick", options->quick,
                      "Small contexts and few passes, for a test: the numbers mean little");
  attention
      ->add_option("--seconds", options->seconds,
                   "Of passes, of each row: more find quiet moments of a busy machine; default: " +
                       std::to_string(kSeconds))
      ->check(CLI::Range(1, 3600));
  add_list(*attention, "--shape", options->shapes, parse_shape,
           "Query heads, KV heads, head size: 32/8/128,9/3/64");
  add_list(
      *attention, "--context", options->contexts,
      [](const std::string& text) { return parse_count(text, 1, 1 << 20); },
      "Tokens, the queries among them: 4096,16384");
  add_list(*attention, "--codec", options->codecs, codec_of,
           "Of keys and values, of each, or presets: f16,int8/f16,balanced");
  add_list(*attention, "--threads", options->threads, parse_threads, "Counts, or all: 1,all");
  add_list(
      *attention, "--queries", options->queries,
      [](const std::string& text) { return parse_count(text, 1, 1 << 16); },
      "The last tokens of the context: 1 for decode, 512 for prefill");
  attention->callback([options] { run(*options); });
}

}  // namespace quire::tool
