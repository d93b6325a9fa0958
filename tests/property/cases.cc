#include "property/cases.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "property/random_spec.h"

namespace quire::test {
namespace {

struct Weight {
  OpKind kind;
  int weight;
};

// Steps are most of a cache's life; what empties it is rare.
constexpr Weight kWeights[] = {
    {OpKind::open, 10},      {OpKind::close, 3},        {OpKind::fork, 5},
    {OpKind::fork_at, 6},    {OpKind::copy_prefix, 6},  {OpKind::step, 50},
    {OpKind::begin_step, 6}, {OpKind::advance_step, 6}, {OpKind::finish_step, 7},
    {OpKind::truncate, 12},  {OpKind::keep_last, 5},    {OpKind::shift_left, 4},
    {OpKind::remove, 14},    {OpKind::overwrite, 7},    {OpKind::read, 6},
    {OpKind::clear, 1},      {OpKind::clone, 2},        {OpKind::assign, 1},
    {OpKind::compact, 4},    {OpKind::enforce, 2},      {OpKind::resize, 1},
    {OpKind::reserve, 3},    {OpKind::shrink, 1},       {OpKind::invalid, 6},
};

OpKind random_kind(Random& random, bool faults) {
  if (faults && random.one_in(8)) return OpKind::faults;
  int total = 0;
  for (const Weight& weight : kWeights) total += weight.weight;
  int at_weight = random.number(0, total - 1);
  for (const Weight& weight : kWeights) {
    at_weight -= weight.weight;
    if (at_weight < 0) return weight.kind;
  }
  return OpKind::open;
}

// With QUIRE_TEST_ISOLATE every case runs in a process of its own, so that crashes and endless
// loops shrink too.
bool is_isolated() {
  static const bool isolated = std::getenv("QUIRE_TEST_ISOLATE") != nullptr;
  return isolated;
}

bool still_fails(const Case& c, std::int64_t* refused = nullptr) {
  if (!is_isolated()) return run_case(c, nullptr, refused).has_value();
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    _exit(run_case(c).has_value() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status != 0;
}

// Tries to take out `length` operations at a time, from the end, where things went wrong.
bool drop_ops(Case& c, std::size_t length) {
  bool dropped = false;
  for (std::size_t end = c.ops.size(); end >= length && end > 0;) {
    Case smaller = c;
    const auto first = smaller.ops.begin() + static_cast<std::ptrdiff_t>(end - length);
    smaller.ops.erase(first, first + static_cast<std::ptrdiff_t>(length));
    if (still_fails(smaller)) {
      c = std::move(smaller);
      dropped = true;
      end = std::min(end - length, c.ops.size());
    } else {
      --end;
    }
  }
  return dropped;
}

bool shrink_sizes(Case& c) {
  bool shrunk = false;
  for (std::size_t i = 0; i < c.ops.size(); ++i) {
    for (int size = 1; size < c.ops[i].size; ++size) {
      Case smaller = c;
      smaller.ops[i].size = size;
      if (!still_fails(smaller)) continue;
      c = std::move(smaller);
      shrunk = true;
      break;
    }
  }
  return shrunk;
}

bool simplify_spec(Case& c) {
  for (const CacheSpec& spec : simpler_specs(c.spec)) {
    Case simpler = c;
    simpler.spec = spec;
    if (!still_fails(simpler)) continue;
    c = std::move(simpler);
    return true;
  }
  return false;
}

}  // namespace

Case random_case(Random& random, const DriverOptions& options) {
  Case c;
  c.spec = random_spec(random);
  c.options = options;
  if (options.random_limit) {
    // From little more than an empty cache to more than most cases take.
    const std::size_t empty = Cache::create(c.spec)->stats().bytes;
    c.options.limit_bytes = empty + random.index(random.one_in(2) ? 20000 : 80000);
  }
  c.ops.push_back({OpKind::open, random.bits(), 1});
  const std::int64_t count = random.one_in(10) ? random.integer(40, 120) : random.integer(2, 30);
  // Now and then steps so long that tables of small pages take several chunks.
  const bool long_steps = random.one_in(40);
  const int size = long_steps ? 60 : random.one_in(4) ? 24 : 6;
  if (long_steps) c.spec.page_tokens = random.number(1, 3);
  for (std::int64_t i = 0; i < count; ++i) {
    c.ops.push_back({random_kind(random, options.faults), random.bits(), size});
  }
  return c;
}

std::optional<std::string> run_case(const Case& c, std::vector<std::string>* trace,
                                    std::int64_t* refused) {
  try {
    Driver driver(c.spec, c.options, trace);
    for (const Op& op : c.ops) driver.apply(op);
    driver.finish();
    if (refused != nullptr) *refused += driver.refused_for_memory();
  } catch (const Disagreement& problem) {
    return problem.what();
  }
  return std::nullopt;
}

Case shrink(Case failing) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (std::size_t length = failing.ops.size() / 2; length > 0; length /= 2) {
      smaller = drop_ops(failing, length) || smaller;
    }
    while (simplify_spec(failing)) smaller = true;
    smaller = shrink_sizes(failing) || smaller;
  }
  return failing;
}

std::string run_cases(std::uint64_t seed, std::int64_t count, const DriverOptions& options,
                      std::int64_t* refused) {
  Random seeds(seed);
  for (std::int64_t i = 0; i < count; ++i) {
    Random random(seeds.bits());
    const Case c = random_case(random, options);
    if (!still_fails(c, refused)) continue;
    const Case small = shrink(c);
    if (is_isolated()) std::fprintf(stderr, "case %ld: %s\n", i, describe(small.spec).c_str());
    std::vector<std::string> trace;
    const std::optional<std::string> problem = run_case(small, &trace);
    std::string text = fmt::format("case {}: {}\nspec: {}\ncalls:\n", i,
                                   problem.value_or("fails no more"), describe(small.spec));
    for (const std::string& line : trace) text += "  " + line + "\n";
    return text;
  }
  return "";
}

}  // namespace quire::test
