// Carries out operations on a cache and its model, and compares the two after each.
//
// An operation is a kind and a seed. What it does exactly (which sequence, which positions) is
// drawn from its own generator against the state it meets, so any operation may be taken out of a
// list and the rest still means something: that is how failing lists shrink.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "property/world.h"

namespace quire::test {

enum class OpKind : int {
  open,
  close,
  fork,
  fork_at,
  copy_prefix,
  step,        // begin, put, attend, commit or drop
  begin_step,  // left open
  advance_step,
  finish_step,
  truncate,
  keep_last,
  shift_left,
  remove,
  overwrite,
  read,
  clear,
  clone,
  assign,
  compact,
  enforce,
  resize,
  reserve,
  shrink,
  invalid,
  faults,  // changes how the memory source fails
  count
};

struct Op {
  OpKind kind = OpKind::open;
  std::uint64_t seed = 0;
  int size = 8;  // most tokens of a sequence in a step
};

struct DriverOptions {
  bool faults = false;          // the memory source may fail
  bool random_limit = false;    // random_case sets a limit
  std::size_t limit_bytes = 0;  // 0: none
};

class Driver {
 public:
  // Throws Disagreement when the cache cannot be made.
  Driver(const CacheSpec& spec, const DriverOptions& options, std::vector<std::string>* trace);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Carries out one operation, then compares everything. Throws Disagreement.
  void apply(const Op& op);
  // Closes all sequences and caches; nothing may be left.
  void finish();

  std::int64_t refused_for_memory() const { return refused_for_memory_; }

 private:
  // Writes a line of the trace: what is about to be called.
  template <typename... Args>
  void note(fmt::format_string<Args...> text, Args&&... args) {
    note_line(fmt::format(text, std::forward<Args>(args)...));
  }
  void note_line(std::string line);

  bool memory_may_fail() const;
  // Whether a call succeeded. Refused is right where the model says so, or where memory may fail.
  bool agreed(ErrorCode found, ErrorCode expected, const char* call);
  template <typename T>
  bool agreed(const Result<T>& result, ErrorCode expected, const char* call) {
    return agreed(result.code(), expected, call);
  }

  World& any_world(Random& random);
  // A sequence that is open, or now and then one that is not.
  SequenceId any_sequence(Random& random, World& world);
  // Below, at, inside or behind what the sequence holds.
  std::int64_t any_position(Random& random, const NaiveSequence* sequence);

  // driver_edit.cc
  void open(Random& random, World& world);
  void close(Random& random, World& world);
  void fork(Random& random, World& world, bool at_position);
  void copy_prefix(Random& random, World& world);
  void truncate(Random& random, World& world);
  void keep_last(Random& random, World& world);
  void shift_left(Random& random, World& world);
  void remove(Random& random, World& world);
  void overwrite(Random& random, World& world);
  void compare_cut(const Result<Cut>& found, const Result<Cut>& expected, const char* call);

  // driver_cache.cc
  void clear(Random& random, World& world);
  void clone(Random& random, World& world);
  void assign(Random& random, World& world);
  void compact(World& world);
  void enforce(Random& random, World& world, bool resize);
  void reserve(Random& random, World& world);
  void invalid(Random& random, World& world);
  void change_faults(Random& random);
  void close_world(std::size_t index);

  // driver_step.cc
  Batch random_batch(Random& random, World& world, int size);
  bool begin(Random& random, World& world, int size);
  bool put(Random& random, OpenStep& open, std::size_t layer);
  void attend(Random& random, OpenStep& open, std::size_t layer);
  void inspect(Random& random, OpenStep& open, std::size_t layer);
  void set_exceptions(Random& random, OpenStep& open);
  void run_step(Random& random, World& world, int size);
  void advance(Random& random, World& world);
  void end_step(Random& random, World& world, std::size_t index);
  void commit(Random& random, World& world, std::size_t index);
  void trim_idle(World& world, const NaiveStep& step);

  TestMemory memory_;
  DriverOptions options_;
  std::vector<std::string>* trace_;
  std::vector<World> worlds_;  // a cache, and perhaps a clone of it
  std::size_t empty_bytes_ = 0;
  std::size_t limit_bytes_ = 0;  // 0: none
  std::int64_t refused_for_memory_ = 0;
};

}  // namespace quire::test
