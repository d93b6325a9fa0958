// A block of queries on its way through a history: pages outside, heads and queries inside.
//
// The slices of one place in the history (equal page_end) are one unit of softmax, however the
// place is cut into slices. For each unit, and for all rows (query heads of queries) of a block:
//
//     dot products with the whole page by the kernel -> -inf where a row does not see -> softmax by
//     the kernel, with one maximum and one rescale -> mix of the whole page by the kernel
//
// Nothing in this arithmetic depends on the other rows: weights of 0 add nothing, so a row gets the
// same bits whichever slots of the page the call covers, and whether codes were expanded or not.
//
// Codecs that multiply in a basis of their own have a second sum, which is turned back and added to
// that of rows when a work item ends.
//
// Thread-safety: a walk belongs to one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attend/operand.h"
#include "attend/query_block.h"
#include "attend/seen.h"
#include "attend/softmax.h"
#include "attend/walk.h"

namespace quire {

// Memory to work in, that one walk after the other may use.
struct alignas(kApart) WalkRoom {
  Operand keys;  // of the page and head at hand
  Operand values;
  // [page of the unit]: [row of a head][slot], dot products or logits, then weights.
  std::vector<Scratch> logits;
  Scratch extra;                   // the same, of a page's other slices
  Scratch weights;                 // [row of a head], prepared
  std::vector<QueryRoom> queries;  // [head of a walk]
  Scratch numbers;                 // states, and what else there is of each row
};

// What a run of a walk begins with; null: nothing.
struct WalkStart {
  const PageSlice* slice = nullptr;
  int head = 0;
  bool operator==(const WalkStart&) const = default;
};

// What a walk prepares is kept from run to run.
class BlockWalk {
 public:
  // Requires: task.queries are at most block_queries, and outlive the walk with task.q and `room`,
  // which nobody else uses meanwhile.
  BlockWalk(const AttendTask& task, HeadRange heads, WalkRoom& room);
  ~BlockWalk();
  BlockWalk(const BlockWalk&) = delete;
  BlockWalk& operator=(const BlockWalk&) = delete;

  // Writes the states of all queries over `slices`, for the query heads that read `heads`, some of
  // the walk's. out: [out_rows][query heads from `first_head` on][value_dim]. `following`: what the
  // next run most likely begins with, to be fetched on the way; a head of the walk's.
  void run(std::span<const PageSlice> slices, HeadRange heads, const StateView& out,
           std::int64_t first_head = 0, const WalkStart& following = {});

 private:
  struct Head;
  struct UnitPage;

  // A slice alone in its place that all queries see, all of it and in one form: its slots and the
  // form, as one number.
  enum class Whole : std::int64_t { no = -1 };

  // Never copied where it was just written: a copy reads in wider parts, and waits for all stores
  // before it.
  struct Sides {
    Ahead keys;
    Ahead values;
  };

  std::span<Head> heads_in(const HeadRange& range) noexcept;
  void find_sides(const Head& head, const PageSlice& slice, Sides& sides) const noexcept;
  void take(Head& head);
  void end_item(std::span<const Head> heads, const StateView& out, std::int64_t first_head);
  void join_sums(const Head& head);
  void clear_item() noexcept;
  void begin_sums(Head& head, bool turned, std::size_t row, std::size_t count) noexcept;
  void split_pages(std::span<const PageSlice> unit);
  void look_at(UnitPage& page, bool alone) const;
  Whole seen_whole(std::span<const PageSlice> unit) const noexcept;
  void make_logits(Head& head, const UnitPage& page);
  void slice_logits(Head& head, const UnitPage& page, const PageSlice& slice,
                    std::span<const Seen> seen, const Stretch& stretch, float* logits);
  void mask_logits(const Head& head, const PageSlice& slice, std::span<const Seen> seen,
                   const Stretch& stretch, float* logits);
  void mix_page(Head& head, const UnitPage& page);
  float* o_of(bool turned, std::size_t row) noexcept;
  float* logits_of(std::size_t p);

  const AttendTask task_;
  const Softmax& softmax_;
  const std::size_t group_;              // query heads of a kv head
  const std::size_t head_rows_;          // queries times group_
  const int slots_;                      // of a page, padded
  const int o_stride_;                   // value_dim, padded
  const bool many_;                      // rows: worth expanding pages
  const float scale_;                    // what kernels multiply logits by
  bool windows_ = false;                 // some query does not see all positions before its own
  std::int64_t seen_below_ = INT64_MAX;  // least ordinal of the queries' ends
  std::int64_t sealed_below_[2] = {INT64_MAX, INT64_MIN};  // least and largest of the queries'
  bool turns_ = false;  // coded values are summed in a basis of their own
  std::vector<Head> heads_;
  std::size_t rows_ = 0;  // of all heads

  std::vector<UnitPage> unit_;  // of the unit at hand; kept for their memory
  std::size_t pages_ = 0;
  static constexpr Ahead kNothingAhead = {};
  const Ahead* keys_ahead_ = &kNothingAhead;  // what the next product of either side fetches
  const Ahead* values_ahead_ = &kNothingAhead;
  WalkStart fetched_;  // what a run began to fetch for the next
  WalkRoom& room_;
  // In the room, each [row].
  float* m_ = nullptr;  // with o_ and l_ the states of the item at hand
  float* l_ = nullptr;
  float* top_ = nullptr;       // largest logit of the unit
  float* keep_ = nullptr;      // what sums are multiplied by before something is added
  float* base_[2] = {};        // the m_ that o_ was made with; -inf: nothing was
  float* o_[2] = {};           // [row][o_stride_]: of rows, of coded values; one if !turns_
  std::int64_t item_end_ = 0;  // ordinal at which the item at hand ends
  bool touched_ = false;       // some state of the item is not empty
};

}  // namespace quire
