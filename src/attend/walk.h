// Attention: queries of one sequence over the slices of its pages.
//
// What a query gets depends on its place in its history alone: pages are taken in order, each is
// one unit of softmax (one maximum, one rescale) however many slices show it, kItemPages pages
// counted by ordinal make a work item, and the states of items merge in order. Which form of a page
// a query reads is decided by ordinals too: sealed when the page ended at or before the query's
// sealed_below, rows otherwise.
//
// Thread-safety: tasks of different kv heads or sequences write different outputs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attend/layer.h"
#include "attend/rope.h"
#include "quire/state.hpp"
#include "quire/view.hpp"

namespace quire {

inline constexpr std::int64_t kItemPages = 16;

// A run as attention sees it: slots [first, first + count) of a page.
struct PageSlice {
  const std::byte* rows = nullptr;          // null when the sequence holds none
  const std::byte* sealed = nullptr;        // null when the page is not sealed
  const std::int64_t* positions = nullptr;  // [slots of the page], those the keys were rotated for
  const std::uint64_t* keys = nullptr;      // [slots of the page], token keys
  int first = 0;
  int count = 0;
  std::int64_t ordinal = 0;   // of slot `first`; the others follow
  std::int64_t turn = 0;      // position of a slot = positions[slot] + turn
  std::int64_t page_end = 0;  // ordinal at which the page's place in the history ends; slices that
                              // share a place are one unit

  std::int64_t position(int slot) const noexcept { return positions[slot] + turn; }
  // Whether a reader that takes pages below `sealed_below` as sealed reads this one so.
  bool reads_sealed(std::int64_t sealed_below) const noexcept {
    return sealed != nullptr && (rows == nullptr || page_end <= sealed_below);
  }
};

// One query and what it sees: tokens at `first_position` and later, with ordinals below
// `end_ordinal`.
struct Query {
  std::int64_t row = 0;  // of q
  std::int64_t position = 0;
  std::int64_t first_position = 0;
  std::int64_t end_ordinal = 0;
  std::int64_t sealed_below = 0;  // ordinal
  std::int64_t out_row = 0;       // of the states
};

// What a layer does with logits.
struct LayerMath {
  float scale = 1.0f;
  float soft_cap = 0.0f;
  std::span<const float> slopes;     // empty, or one per query head
  const RopeTurner* rope = nullptr;  // turns queries where a slice has a turn; null: none needed
};

struct WalkRoom;  // attend/block_walk.h

// Rows for which it pays to expand a page: fewer unpack it anew, a few at a time, which AMD's Zen 5
// does well up to some 100 rows and Intel's Sapphire Rapids up to some 30.
inline constexpr std::size_t kManyRows = 40;

struct AttendTask {
  const LayerStore* store = nullptr;
  LayerMath math;
  std::span<const PageSlice> slices;  // oldest first; positions and ordinals never decrease
  std::span<const Query> queries;
  TensorView q;  // [rows][query heads][key_dim]; query heads are a multiple of store->heads
  Isa isa = chosen_isa();
  std::size_t many_rows = kManyRows;  // from so many on pages are expanded: the bits are the same
};

// Queries that are walked together; more of them are several tasks as well as one.
std::size_t block_queries(const AttendTask& task) noexcept;

// The work item that a slice belongs to. States of items, merged in order, are the state of all.
std::int64_t item_of(const PageSlice& slice, const LayerStore& store) noexcept;

// Slices of one work item.
using WorkItem = std::span<const PageSlice>;
std::vector<WorkItem> cut_items(std::span<const PageSlice> slices, const LayerStore& store);

// Writes the states of all queries for the query heads that read the kv heads of `heads`.
// out: [out_rows][query heads][value_dim].
void attend_states(const AttendTask& task, HeadRange heads, const StateView& out);
void attend_states(const AttendTask& task, HeadRange heads, const StateView& out, WalkRoom& room);

// Writes logits (natural, scaled, capped, biased) for the query heads that read `kv_head`:
// out[row][query head][column], where columns count the slots of the slices in order; -inf where
// a query does not see. Requires: columns >= the slots of all slices; the rest becomes -inf.
void attend_logits(const AttendTask& task, int kv_head, float* out, std::int64_t columns);

// Turns logits of one query head into probabilities in place: softmax over `columns` with an
// optional sink logit (-inf: none); all zeros when nothing is seen.
void logits_to_probabilities(float* logits, std::int64_t columns, float sink) noexcept;

// Decodes slots [first, first + count) of a slice (slot numbers of the page) as a reader with
// `sealed_below` sees them, keys turned to their present positions: out [count][dim].
void read_slice(const LayerStore& store, const RopeTurner* rope, Side side, int head,
                const PageSlice& slice, std::int64_t sealed_below, int first, int count,
                float* out);

}  // namespace quire
