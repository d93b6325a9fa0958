// quire bench manage: what the bookkeeping of a cache costs, in a pool of 1,000 pages and in one of
// 100,000. The cost must follow the pages an operation touches, not those that lie beside them.
//
// The geometry is the smallest that pages allow (one layer, one head of 8 channels, 16 tokens per
// page), so that the time of an operation is that of its tables. Both pools hold the same 64
// measured sequences of 128 pages. They are forks of one sequence, with their first 120 pages
// shared and 8 of their own, since 64 times 128 pages do not fit into 1,000. The rest of a pool is
// filled with sequences of 128 pages; the large one also holds a sequence with 10,000 pages of its
// own.
//
//   begin_commit  begin and commit of a step that adds one token to each of 1, 16 or 64 sequences;
//                 its put, which is the engine's data, is not counted
//   fork          of a sequence of 128 pages
//   truncate      of such a sequence to half its length, inside a page
//   remove        of 100 tokens inside it; all later ones move
//   fork_long     fork of the sequence of 10,000 pages
//
// Forks are closed, and forks to be edited are made, outside the measured time. Forks and edits are
// timed 16 at a time: reading the clock takes as long as a fork. Samples of the two pools alternate
// in short rounds, so that both see the same machine. A row is the median of all samples.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "commands.h"
#include "machine.h"
#include "median.h"
#include "print.h"
#include "quire/cache.hpp"

namespace quire::tool {
namespace {

constexpr int kHeadDim = 8;
constexpr std::int64_t kPageTokens = 16;
constexpr std::int64_t kSequencePages = 128;
constexpr std::int64_t kSharedPages = 120;
constexpr std::int64_t kLongPages = 10000;
constexpr std::int64_t kStepTokens = 4096;
constexpr std::int64_t kSequenceTokens = kSequencePages * kPageTokens;
constexpr std::size_t kMeasured = 64;
constexpr int kCalls = 16;  // of one round, in one pool
constexpr std::int64_t kSmallPool = 1000;
constexpr std::int64_t kLargePool = 100000;

using Clock = std::chrono::steady_clock;
using Samples = std::vector<double>;  // microseconds

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

class Pool {
 public:
  explicit Pool(std::int64_t pages);

  // One round each: adds a sample per step, or one for all forks or edits.
  void begin_commit(std::size_t sequences, Samples& samples);
  void fork(const Sequence& sequence, Samples& samples);
  void edit(const std::function<void(const Sequence&)>& change, Samples& samples);

  const Sequence& first() const { return measured_.front(); }
  const Sequence& longest() const { return *long_; }

 private:
  void put(Step& step);
  void fill(const Sequence& sequence, std::int64_t pages);
  Sequence open_filled(std::int64_t pages);

  Cache cache_;
  std::vector<float> rows_;  // of the largest step, keys and values alike
  std::vector<Sequence> measured_;
  std::optional<Sequence> long_;
};

CacheSpec pool_spec() {
  CacheSpec spec = CacheSpec::uniform(
      {.layers = 1, .kv_heads = 1, .head_dim = kHeadDim, .rotation = Rotation::with_rope(Rope{})});
  spec.page_tokens = static_cast<int>(kPageTokens);
  return spec;
}

Pool::Pool(std::int64_t pages)
    : cache_(Cache::create(pool_spec()).value()),
      rows_(static_cast<std::size_t>(kStepTokens * kHeadDim), 0.5f) {
  fmt::print(stderr, "bench manage: filling a pool of {} pages\n", grouped(pages));
  const Sequence stem = open_filled(kSharedPages);
  while (measured_.size() < kMeasured) {
    measured_.push_back(stem.fork().value());
    fill(measured_.back(), kSequencePages - kSharedPages);
  }
  stem.close().value();
  if (pages >= kLargePool) long_ = open_filled(kLongPages);
  for (std::int64_t left = pages - cache_.stats().pages_used; left > 0; left -= kSequencePages) {
    open_filled(std::min(kSequencePages, left));
  }
  if (const std::int64_t used = cache_.stats().pages_used; used != pages) {
    throw std::runtime_error(
        fmt::format("bench manage: the pool has {} pages, {} were wanted", used, pages));
  }
}

void Pool::put(Step& step) {
  const auto view = TensorView::dense(rows_.data(), DType::f32, step.tokens(), 1, kHeadDim);
  step.put(0, view, view).value();
}

void Pool::fill(const Sequence& sequence, std::int64_t pages) {
  for (std::int64_t left = pages * kPageTokens; left > 0;) {
    const std::int64_t tokens = std::min(left, kStepTokens);
    Batch batch;
    batch.add(sequence.id(), sequence.next_position().value(), tokens);
    Step step = cache_.begin(batch).value();
    put(step);
    step.commit().value();
    left -= tokens;
  }
}

Sequence Pool::open_filled(std::int64_t pages) {
  const Sequence sequence = cache_.open().value();
  fill(sequence, pages);
  return sequence;
}

void Pool::begin_commit(std::size_t sequences, Samples& samples) {
  // The last page is cut off and filled again, so that the sequences stay at 128 pages.
  static_assert(kCalls == kPageTokens);
  constexpr std::int64_t kStart = kSequenceTokens - kPageTokens;
  for (std::size_t i = 0; i < sequences; ++i) measured_[i].truncate(kStart).value();
  for (std::int64_t position = kStart; position < kSequenceTokens; ++position) {
    Batch batch;
    for (std::size_t i = 0; i < sequences; ++i) batch.add(measured_[i].id(), position, 1);
    const auto begun = Clock::now();
    Step step = cache_.begin(batch).value();
    double us = us_since(begun);
    put(step);
    const auto put_done = Clock::now();
    step.commit().value();
    step = Step();
    us += us_since(put_done);
    samples.push_back(us);
  }
}

void Pool::fork(const Sequence& sequence, Samples& samples) {
  std::vector<Sequence> forks(kCalls);
  const auto start = Clock::now();
  for (Sequence& fork : forks) fork = sequence.fork().value();
  samples.push_back(us_since(start) / kCalls);
  for (const Sequence& fork : forks) fork.close().value();
}

void Pool::edit(const std::function<void(const Sequence&)>& change, Samples& samples) {
  std::vector<Sequence> forks(kCalls);
  for (Sequence& fork : forks) fork = first().fork().value();
  const auto start = Clock::now();
  for (const Sequence& fork : forks) change(fork);
  samples.push_back(us_since(start) / kCalls);
  for (const Sequence& fork : forks) fork.close().value();
}

struct Operation {
  std::string name;
  int sequences = 1;
  std::function<void(Pool&, Samples&)> round;
};

std::vector<Operation> operations() {
  std::vector<Operation> list;
  for (const int sequences : {1, 16, 64}) {
    list.push_back({"begin_commit", sequences, [sequences](Pool& pool, Samples& samples) {
                      pool.begin_commit(static_cast<std::size_t>(sequences), samples);
                    }});
  }
  const auto add_edit = [&](const char* name, void (*change)(const Sequence&)) {
    list.push_back({name, 1, [change](Pool& pool, Samples& s) { pool.edit(change, s); }});
  };
  list.push_back({"fork", 1, [](Pool& pool, Samples& s) { pool.fork(pool.first(), s); }});
  add_edit("truncate", [](const Sequence& s) { s.truncate(kSequenceTokens / 2 - 3).value(); });
  add_edit("remove", [](const Sequence& s) { s.remove(500, 600).value(); });
  return list;
}

Json measure(int rounds) {
  Pool small(kSmallPool);
  Pool large(kLargePool);
  fmt::print(stderr, "bench manage: measuring\n");
  const int warm_up = std::max(1, rounds / 10);
  const auto row = [](const std::string& op, int sequences, std::int64_t pages,
                      const Samples& samples) -> Json {
    return {{"op", op}, {"sequences", sequences}, {"pages", pages}, {"us", median(samples)}};
  };
  Json rows = Json::array();
  for (const Operation& operation : operations()) {
    Samples in_small, in_large;
    for (int round = -warm_up; round < rounds; ++round) {
      if (round == 0) in_small.clear(), in_large.clear();
      operation.round(small, in_small);
      operation.round(large, in_large);
    }
    rows.push_back(row(operation.name, operation.sequences, kSmallPool, in_small));
    rows.push_back(row(operation.name, operation.sequences, kLargePool, in_large));
  }
  Samples in_large;
  for (int round = -warm_up; round < rounds; ++round) {
    if (round == 0) in_large.clear();
    large.fork(large.longest(), in_large);
  }
  rows.push_back(row("fork_long", 1, kLargePool, in_large));
  return rows;
}

void print(const Json& rows) {
  // One line per operation, the two pools side by side.
  Json lines = Json::array();
  double fork_us = 0;
  for (const Json& row : rows) {
    const double us = row["us"].get<double>();
    const std::string op = row["op"].get<std::string>();
    if (op == "fork_long") {
      lines.push_back({{"op", op}, {"sequences", 1}, {"large", us}, {"growth", nullptr}});
      lines.back()["times_fork"] = us / fork_us;
    } else if (row["pages"] == kSmallPool) {
      lines.push_back({{"op", op}, {"sequences", row["sequences"]}, {"small", us}});
    } else {
      Json& line = lines.back();
      line["large"] = us;
      line["growth"] = us / line["small"].get<double>();
      if (op == "fork") fork_us = us;
    }
  }
  print_table(lines, {{"op", "operation"},
                      {"sequences", "sequences"},
                      {"small", "us at 1,000 pages", 2},
                      {"large", "us at 100,000 pages", 2},
                      {"growth", "growth", 2},
                      {"times_fork", "times fork", 2}});
}

void run(bool json, bool quick) {
  const Json rows = measure(quick ? 5 : 200);
  if (json) {
    print_json({{"machine", machine()}, {"rows", rows}});
  } else {
    print_machine();
    print(rows);
  }
}

}  // namespace

void add_bench_manage(CLI::App& bench) {
  CLI::App* manage = bench.add_subcommand(
      "manage", "Microseconds of begin and commit, fork, truncate and remove in two pools");
  auto json = std::make_shared<bool>(false);
  auto quick = std::make_shared<bool>(false);
  manage->add_flag("--json", *json, "Print {\"machine\": {...}, \"rows\": [...]}");
  manage->add_flag("--quick", *quick, "Few samples, for a test: the numbers mean little");
  manage->callback([json, quick] { run(*json, *quick); });
}

}  // namespace quire::tool
