// The attention of one sequence's queries in a step, cut into work for threads.
//
// Many queries are cut into blocks, a head each: tasks that write different states. Few are cut
// into the work items of the history, and those into ranges of heads. Items are taken by whoever
// comes, until there are no more, and those of a range are merged in order, each as soon as all
// before it are: by the thread that made it, most often, while its states are near.
//
// A thread keeps to a range of its own while there is one, and takes its items in order: what it
// has prepared and the states that it merges then stay in one core's cache, it asks for the first
// page of the next item while it is at the last of this one, and from item to item it needs nothing
// that other threads write.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "attend/block_walk.h"
#include "cache/layout.h"
#include "cache/shelf.h"

namespace quire {

// The logit of the sink that a query head attends to as well; -inf: none.
float sink_of(const Layer& layer, int query_head) noexcept;

// States of [rows][heads][dim], in one piece.
StateView states_in(Scratch& scratch, std::int64_t rows, std::int64_t heads, std::int64_t dim);

struct AttendJob {
  const Layer& layer;
  std::span<const PageSlice> slices;
  std::span<const WorkItem> items;  // of the slices
  std::span<const Query> queries;
  TensorView q;
  StateView states;       // written; where there is an output, no more than memory to work in
  const OutputView* out;  // null: states are all that is wanted
};

class AttendWork {
 public:
  // `threads` are shared with other works, `works` in all; what comes out depends on neither.
  AttendWork(const AttendJob& job, std::size_t threads, std::size_t works, Shelf<WalkRoom>& rooms,
             Shelf<Scratch>& scratch);
  ~AttendWork();
  AttendWork(const AttendWork&) = delete;
  AttendWork& operator=(const AttendWork&) = delete;

  // Tasks that do not depend on each other. One, if there are items.
  std::size_t tasks() const noexcept {
    return items_.empty() ? ranges_.size() * blocks_.size() : 1;
  }
  // Each of 0 .. tasks() - 1 once, from any thread. Throws std::bad_alloc; then no output counts.
  void run(std::size_t index);

  // Further threads that can have items of their own.
  std::size_t helpers() const noexcept;
  // Takes part in the task, if there are items; it may not have begun, or be done. Throws
  // std::bad_alloc as run.
  void help();

 private:
  // A thread's walk, from one item to the next.
  struct Walker;

  // An item of a range of heads.
  struct Taken {
    std::size_t range;
    std::size_t item;
  };

  // Of the items of a range.
  struct alignas(kApart) Progress {
    std::atomic<std::size_t> taken = 0;
    std::mutex mutex;                              // of what follows, and held to merge
    std::vector<std::unique_ptr<Scratch>> states;  // [item]: those that wait to be merged
    std::unique_ptr<Scratch> sum;                  // those that were, the first `merged`
    std::size_t merged = 0;
  };

  void cut_heads(std::size_t threads, std::size_t works);
  void take_items();
  std::optional<Taken> take(const Walker* walker) noexcept;
  Taken least_taken() const noexcept;
  void drop_items() noexcept;
  void find_walker(std::size_t range, std::unique_ptr<Walker>& walker);
  StateView states_of(std::size_t range, Scratch& scratch) const;
  std::unique_ptr<Scratch> item_done(const Taken& taken, std::unique_ptr<Scratch> states);
  void finish_block(std::span<const Query> queries, const HeadRange& range);
  void finish_items(std::size_t range, const StateView& from);
  void finish(const Query& query, std::int64_t head, const float* o, float m, float l);

  const AttendJob job_;
  const AttendTask task_;
  const std::int64_t group_;  // query heads of a kv head
  Shelf<WalkRoom>& rooms_;
  Shelf<Scratch>& scratch_;
  std::vector<std::span<const Query>> blocks_;
  std::span<const WorkItem> items_;  // empty: not cut into them
  std::vector<Query> item_queries_;  // those of the job, with rows of an item's states
  std::vector<HeadRange> ranges_;
  std::vector<Progress> progress_;  // [range], if there are items
};

}  // namespace quire
