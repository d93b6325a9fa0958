// The attention of one sequence's queries in a step, cut into work for threads.
//
// Many queries are cut into blocks, a head each: tasks that write different states. Few are cut
// into ranges of heads, and those into portions: work items of the history, of all heads of the
// range or of some. Portions of a range are merged in order, each as soon as all before it are.
//
// Each thread has a share of the portions and takes them in order: what it has prepared stays in
// one core's cache, and it asks for the first page of the next portion while it is at the last of
// this one. Who has done its share helps with another.
//
// Shares are ranges of heads: each thread then merges what it made, while that is near, and from
// portion to portion needs nothing that other threads write. But cores fetch a little more than
// they are asked for, and what one has fetched the other has to ask it for: where the heads of a
// share are few bytes of a page, and for two threads always, shares are parts of the history
// instead, and threads read whole pages.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
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
  const Layer* layer;
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

  // Begins again, cut as it is, for another layer with the same slices, items and queries; false
  // where that layer's form is another. Requires: what was begun before is done, or given up.
  bool begin_again(const AttendJob& job) noexcept;

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

  // Some heads of a range, one item.
  struct Portion {
    std::size_t range;
    WorkItem item;
    HeadRange heads;
  };

  // Portions that one thread takes, while others do not help.
  struct alignas(kApart) Share {
    Share(std::size_t the_begin, std::size_t the_end)
        : begin(the_begin), end(the_end), next(the_begin) {}
    std::size_t left() const noexcept { return end - std::min(next.load(), end); }

    const std::size_t begin;
    const std::size_t end;
    std::atomic<std::size_t> next;  // portion; not below `end`: none is left
  };

  // Of the portions of a range.
  struct alignas(kApart) Range {
    HeadRange heads;
    std::size_t first = 0;                         // of its portions
    std::mutex mutex;                              // of what follows, and held to merge
    std::vector<std::unique_ptr<Scratch>> states;  // [portion]: those that wait to be merged
    std::size_t merged = 0;                        // the first so many were
    Scratch sum;                                   // of those
  };

  void cut(std::size_t threads, std::size_t works);
  bool cuts_history(std::size_t shares) const noexcept;
  void cut_history(std::size_t shares, bool last_first);
  void cut_heads(std::size_t ranges);
  std::size_t head_bytes(const WorkItem& item) const;
  void take_portions();
  std::optional<std::size_t> take(Share*& share) noexcept;
  Share* fullest() noexcept;
  void drop_portions() noexcept;
  void find_walker(std::size_t range, std::unique_ptr<Walker>& walker);
  StateView states_of(const HeadRange& heads, Scratch& scratch) const;
  std::unique_ptr<Scratch> portion_done(std::size_t portion, std::unique_ptr<Scratch> states);
  void merge(const Portion& portion, Scratch& of_portion, Range& range) const;
  void finish_block(std::span<const Query> queries, const HeadRange& range);
  void finish_range(Range& range);
  void finish(const Query& query, std::int64_t head, const float* o, float m, float l);

  AttendJob job_;
  AttendTask task_;
  const std::int64_t group_;  // query heads of a kv head
  Shelf<WalkRoom>& rooms_;
  Shelf<Scratch>& scratch_;
  std::vector<std::span<const Query>> blocks_;
  std::span<const WorkItem> items_;  // empty: not cut into them
  std::vector<Query> item_queries_;  // those of the job, with rows of an item's states
  std::deque<Range> ranges_;
  // If there are items.
  std::vector<Portion> portions_;
  std::deque<Share> shares_;           // as they are taken
  std::atomic<std::size_t> came_ = 0;  // threads, which have shares as they come
};

}  // namespace quire
