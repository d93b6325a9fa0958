#include "property/driver.h"

#include <cstdio>
#include <cstdlib>

namespace quire::test {

Driver::Driver(const CacheSpec& spec, const DriverOptions& options, std::vector<std::string>* trace)
    : options_(options), trace_(trace), limit_bytes_(options.limit_bytes) {
  CacheSpec own = spec;
  own.memory = &memory_;
  if (limit_bytes_ > 0) own.memory_limit_bytes = limit_bytes_;
  worlds_.reserve(2);
  worlds_.emplace_back(must(Cache::create(own), "create"), NaiveCache(own));
  empty_bytes_ = worlds_.front().cache.stats().bytes;
}

Driver::~Driver() {
  // Whatever went wrong, a later cache must not meet failing memory of this one.
  memory_.fail_all = false;
  memory_.fail_every = 0;
}

void Driver::note_line(std::string line) {
  static const bool live = std::getenv("QUIRE_TEST_TRACE") != nullptr;
  if (live) std::fprintf(stderr, "  %s\n", line.c_str());
  if (trace_ != nullptr) trace_->push_back(std::move(line));
}

bool Driver::memory_may_fail() const { return options_.faults || limit_bytes_ > 0; }

bool Driver::agreed(ErrorCode found, ErrorCode expected, const char* call) {
  const bool for_memory = found == ErrorCode::out_of_memory || found == ErrorCode::over_limit;
  if (for_memory && memory_may_fail()) {
    ++refused_for_memory_;
    return false;
  }
  require(found == expected, "{}: {} found, {} expected", call, error_name(found),
          error_name(expected));
  return found == ErrorCode::ok;
}

World& Driver::any_world(Random& random) { return worlds_[random.index(worlds_.size())]; }

SequenceId Driver::any_sequence(Random& random, World& world) {
  if (world.model.sequences.empty() || random.one_in(40)) {
    return static_cast<SequenceId>(random.integer(1000, 1010));
  }
  auto found = world.model.sequences.begin();
  std::advance(found, static_cast<std::ptrdiff_t>(random.index(world.model.sequences.size())));
  return found->first;
}

std::int64_t Driver::any_position(Random& random, const NaiveSequence* sequence) {
  if (sequence == nullptr || random.one_in(30)) return random.integer(-2, 60);
  if (random.one_in(3) && !sequence->tokens.empty()) {
    return random.pick(sequence->tokens).position + random.integer(0, 1);
  }
  const auto held = sequence->longest();
  const std::int64_t first = held.empty() ? 0 : held.front()->position;
  return random.integer(first, sequence->next_position + 1);
}

void Driver::apply(const Op& op) {
  Random random(op.seed);
  World& world = any_world(random);
  switch (op.kind) {
    case OpKind::open:
      open(random, world);
      break;
    case OpKind::close:
      close(random, world);
      break;
    case OpKind::fork:
      fork(random, world, false);
      break;
    case OpKind::fork_at:
      fork(random, world, true);
      break;
    case OpKind::copy_prefix:
      copy_prefix(random, world);
      break;
    case OpKind::step:
      run_step(random, world, op.size);
      break;
    case OpKind::begin_step:
      if (world.steps.size() < 2) begin(random, world, op.size);
      break;
    case OpKind::advance_step:
      advance(random, world);
      break;
    case OpKind::finish_step:
      if (!world.steps.empty()) end_step(random, world, random.index(world.steps.size()));
      break;
    case OpKind::truncate:
      truncate(random, world);
      break;
    case OpKind::keep_last:
      keep_last(random, world);
      break;
    case OpKind::shift_left:
      shift_left(random, world);
      break;
    case OpKind::remove:
      remove(random, world);
      break;
    case OpKind::overwrite:
      overwrite(random, world);
      break;
    case OpKind::read: {
      const SequenceId id = any_sequence(random, world);
      const NaiveSequence* model = world.model.find(id);
      if (model == nullptr) break;
      note("read sequence {}", number_of(id));
      check_reading(random, world.cache, id, *model);
      break;
    }
    case OpKind::clear:
      clear(random, world);
      break;
    case OpKind::clone:
      clone(random, world);
      break;
    case OpKind::assign:
      assign(random, world);
      break;
    case OpKind::compact:
      compact(world);
      break;
    case OpKind::enforce:
      enforce(random, world, false);
      break;
    case OpKind::resize:
      enforce(random, world, true);
      break;
    case OpKind::reserve:
      reserve(random, world);
      break;
    case OpKind::shrink:
      note("shrink");
      world.cache.shrink();
      break;
    case OpKind::invalid:
      invalid(random, world);
      break;
    case OpKind::faults:
      change_faults(random);
      break;
    case OpKind::count:
      break;
  }
  for (const World& each : worlds_) check_world(each, memory_);
  require(limit_bytes_ == 0 || memory_.most_bytes <= limit_bytes_,
          "{} bytes were out at once, the limit is {}", memory_.most_bytes, limit_bytes_);
}

void Driver::finish() {
  memory_.fail_all = false;
  memory_.fail_every = 0;
  note("close everything");
  while (worlds_.size() > 1) close_world(worlds_.size() - 1);
  World& last = worlds_.front();
  for (OpenStep& open : last.steps) open.step.drop();
  last.steps.clear();
  for (const SequenceId id : last.cache.sequences()) {
    must(must(last.cache.find(id), "find").close(), "close");
  }
  Stats stats = last.cache.stats();
  require(stats.pages_used == 0 && stats.bytes_sealed == 0 && stats.bytes_rows == 0,
          "{} pages, {} sealed bytes and {} row bytes are used with all sequences closed",
          stats.pages_used, stats.bytes_sealed, stats.bytes_rows);
  // What reserve still keeps is given up only for a limit.
  const bool cut = must(last.cache.enforce_memory_limit(empty_bytes_), "enforce_memory_limit");
  stats = last.cache.stats();
  require(!cut && stats.bytes <= empty_bytes_,
          "{} bytes are held with all sequences closed, {} when new", stats.bytes, empty_bytes_);
  worlds_.clear();
  require(memory_.live_bytes == 0 && memory_.live_blocks == 0,
          "{} bytes in {} blocks outlive the cache", memory_.live_bytes, memory_.live_blocks);
}

}  // namespace quire::test
