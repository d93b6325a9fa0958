#include "attend/block_walk.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace quire {
namespace {

// What is read next is fetched a whole head ahead, by the product of the same side; where both
// sides are larger than this, by the product before it, which measured faster.
constexpr std::size_t kLargeSide = 12 * 1024;

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// The slices of the place that begins at slices[0].
std::span<const PageSlice> first_unit(std::span<const PageSlice> slices) noexcept {
  std::size_t count = 1;
  while (count < slices.size() && slices[count].page_end == slices[0].page_end) ++count;
  return slices.first(count);
}

// Asks for all of it at once. Inlined, since a call of a function that only asks is left out.
[[gnu::always_inline]] inline void fetch(const Ahead& ahead) noexcept {
  for (std::size_t at = 0; at < ahead.bytes; at += 64) __builtin_prefetch(ahead.data + at, 0, 2);
}

}  // namespace

// What one head of the walk reads and where its states begin.
struct alignas(kApart) BlockWalk::Head {
  Head(const AttendTask& task, int kv_head, QueryRoom& room, std::size_t row)
      : group(group_of(task, kv_head)),
        block(task, group, task.queries, room),
        keys(*task.store, Side::key, kv_head, task.isa),
        values(*task.store, Side::value, kv_head, task.isa),
        first_row(row) {}

  HeadGroup group;
  QueryBlock block;
  Readers keys;
  Readers values;
  std::size_t first_row;  // of the walk's rows
  bool begun[2] = {};     // whether the sums of all rows have begun in the item at hand
};

// A page of the unit at hand: its slices, and what of it each query sees.
struct alignas(kApart) BlockWalk::UnitPage {
  std::span<const PageSlice> slices;
  int end = 0;                    // of the slots that the slices show
  std::vector<Seen> seen;         // [query]: from the first to the last slot, in all slices
  std::vector<Seen> slices_seen;  // [slice][query], where there are several
  std::vector<std::vector<Stretch>> slices_stretches;  // [slice], likewise
  std::vector<Stretch> stretches;                      // of what is seen
  float* logits = nullptr;                             // [row of a head][slot]
  bool plain = false;  // the unit is this page, its dot products need nothing but to be scaled
  Whole whole = Whole::no;
};

BlockWalk::BlockWalk(const AttendTask& task, HeadRange heads, WalkRoom& room)
    : task_(task),
      softmax_(softmax_of(task.isa)),
      group_(static_cast<std::size_t>(task.q.heads / task.store->heads)),
      head_rows_(task.queries.size() * group_),
      slots_(tile_ceil(task.store->page_tokens)),
      o_stride_(tile_ceil(task.store->value_dim)),
      many_(head_rows_ >= task.many_rows),
      scale_(scale_left(task.math) * kLog2E),
      room_(room) {
  room.keys.forget();
  room.values.forget();
  for (const Query& query : task_.queries) {
    windows_ |= query.first_position != INT64_MIN;
    seen_below_ = std::min(seen_below_, query.end_ordinal);
    sealed_below_[0] = std::min(sealed_below_[0], query.sealed_below);
    sealed_below_[1] = std::max(sealed_below_[1], query.sealed_below);
  }
  const auto count = static_cast<std::size_t>(heads.end - heads.begin);
  heads_.reserve(count);  // operands know readers
  if (room.queries.size() < count) room.queries.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    heads_.emplace_back(task_, heads.begin + static_cast<int>(i), room.queries[i], rows_);
    rows_ += head_rows_;
  }
  const std::size_t sums = rows_ * static_cast<std::size_t>(o_stride_);
  turns_ = heads_.front().values.sealed.rotates;
  float* at = room_.numbers.take_floats((turns_ ? 2 : 1) * sums + 6 * rows_);
  o_[0] = at;
  o_[1] = turns_ ? at + sums : at;
  at = o_[1] + sums;
  for (float** array : {&m_, &base_[0], &base_[1], &l_, &top_, &keep_}) {
    *array = at;
    at += rows_;
  }
  clear_item();
}

BlockWalk::~BlockWalk() = default;

// Heads inside pages: those of a layer lie side by side in a page, and memory is read fastest in
// its order.
void BlockWalk::run(std::span<const PageSlice> slices, HeadRange range, const StateView& out,
                    std::int64_t first_head, const WalkStart& following) {
  const std::span<Head> heads = heads_in(range);
  const std::int64_t first = heads.front().group.first - first_head;
  for (const Query& query : task_.queries) {
    const std::int64_t at = query.out_row * out.heads + first;
    std::fill_n(out.m + at, heads.size() * group_, kNothing);
  }
  Sides sides[2];  // of the head at hand and the next, in turns
  Sides* own = &sides[0];
  Sides* next = &sides[1];
  if (!slices.empty()) find_sides(heads.front(), slices.front(), *own);
  if (fetched_ != WalkStart{slices.data(), range.begin}) {
    fetch(own->keys);
    fetch(own->values);
  }
  fetched_ = following;
  item_end_ = 0;
  while (!slices.empty()) {
    const std::span<const PageSlice> unit = first_unit(slices);
    slices = slices.subspan(unit.size());
    if (unit.front().page_end > item_end_) {
      end_item(heads, out, first_head);
      item_end_ = (item_of(unit.front(), *task_.store) + 1) * kItemPages * task_.store->page_tokens;
    }
    split_pages(unit);
    for (std::size_t i = 0; i < heads.size(); ++i) {
      if (i + 1 < heads.size()) {
        find_sides(heads[i + 1], unit.front(), *next);
      } else if (!slices.empty()) {
        find_sides(heads.front(), slices.front(), *next);
      } else if (following.slice != nullptr) {
        find_sides(heads_in({following.head, following.head + 1}).front(), *following.slice, *next);
      } else {
        *next = {};
      }
      const bool large = std::min(own->keys.bytes, own->values.bytes) > kLargeSide;
      keys_ahead_ = large ? &own->values : &next->keys;
      values_ahead_ = large ? &next->keys : &next->values;
      take(heads[i]);
      std::swap(own, next);
    }
  }
  keys_ahead_ = values_ahead_ = &kNothingAhead;
  end_item(heads, out, first_head);
  for (const Query& query : task_.queries) {
    std::int64_t at = query.out_row * out.heads + first;
    for (std::size_t row = 0; row < heads.size() * group_; ++row, ++at) {
      if (out.m[at] == kNothing)
        state_clear(out.o + at * out.dim, out.m + at, out.l + at, 1, out.dim);
    }
  }
}

std::span<BlockWalk::Head> BlockWalk::heads_in(const HeadRange& range) noexcept {
  const int first = heads_.front().group.kv_head;
  return std::span(heads_).subspan(static_cast<std::size_t>(range.begin - first),
                                   static_cast<std::size_t>(range.end - range.begin));
}

// What take() will read of a page, to be brought near before.
void BlockWalk::find_sides(const Head& head, const PageSlice& slice, Sides& sides) const noexcept {
  const bool sealed = slice.reads_sealed(task_.queries.front().sealed_below);
  const PageBytes page = bytes_of_page(slice);
  const int slots = slice.first + slice.count;
  sides.keys = head.keys.of(sealed).ahead(page, slots);
  sides.values = head.values.of(sealed).ahead(page, slots);
}

// Takes the unit at hand into the states of its work item.
void BlockWalk::take(Head& head) {
  if (!unit_.front().plain) std::fill_n(top_ + head.first_row, head_rows_, kNothing);
  for (std::size_t p = 0; p < pages_; ++p) make_logits(head, unit_[p]);
  if (pages_ > 1) {
    const std::size_t row = head.first_row;
    softmax_.rescale(top_ + row, static_cast<int>(head_rows_), m_ + row, l_ + row);
  }
  for (std::size_t p = 0; p < pages_; ++p) mix_page(head, unit_[p]);
}

// Merges the item's states into the output and begins the next item.
void BlockWalk::end_item(std::span<const Head> heads, const StateView& out,
                         std::int64_t first_head) {
  if (!touched_) return;
  touched_ = false;
  for (const Head& head : heads) {
    if (turns_) join_sums(head);
    std::size_t row = head.first_row;
    for (const Query& query : task_.queries) {
      std::int64_t at = query.out_row * out.heads + head.group.first - first_head;
      for (const std::size_t end = row + group_; row < end; ++row, ++at) {
        if (m_[row] == kNothing) continue;
        const float* sum = o_of(base_[0][row] == kNothing, row);
        state_merge(out.o + at * out.dim, out.m + at, out.l + at, sum, m_ + row, l_ + row, 1,
                    out.dim);
      }
    }
  }
  clear_item();
}

// Turns a head's sums of coded values back from the basis of the codes, and adds them to the sums
// of rows where there are such.
void BlockWalk::join_sums(const Head& head) {
  const std::size_t end = head.first_row + head_rows_;
  for (const bool turned : {false, true}) {
    for (std::size_t row = head.first_row; row < end; ++row) {
      const float base = base_[turned][row];
      if (base == kNothing || base == m_[row]) continue;
      const float keep = std::exp2(base - m_[row]);
      float* sum = o_of(turned, row);
      for (int c = 0; c < o_stride_; ++c) sum[c] *= keep;
    }
  }
  const Reader& reader = head.values.sealed;
  for (std::size_t row = head.first_row; row < end; ++row) {
    const std::size_t first = row;
    while (row < end && base_[1][row] != kNothing) ++row;
    if (row == first) continue;
    reader.codec->rotate_back[static_cast<std::size_t>(reader.isa)](
        reader.shape, o_of(1, first), row - first, static_cast<std::size_t>(o_stride_));
  }
  for (std::size_t row = head.first_row; row < end; ++row) {
    if (base_[0][row] == kNothing || base_[1][row] == kNothing) continue;
    const float* codes = o_of(1, row);
    float* sum = o_of(0, row);
    for (int c = 0; c < o_stride_; ++c) sum[c] += codes[c];
  }
}

float* BlockWalk::o_of(bool turned, std::size_t row) noexcept {
  return o_[turned] + row * static_cast<std::size_t>(o_stride_);
}

// [row of a head][slot] of page p of the unit.
float* BlockWalk::logits_of(std::size_t p) {
  if (room_.logits.size() <= p) room_.logits.resize(p + 1);
  return room_.logits[p].take_floats(head_rows_ * static_cast<std::size_t>(slots_));
}

void BlockWalk::clear_item() noexcept {
  for (Head& head : heads_) head.begun[0] = head.begun[1] = false;
  for (float* array : {m_, base_[0], base_[1]}) std::fill_n(array, rows_, kNothing);
  std::fill_n(l_, rows_, 0.0f);
}

void BlockWalk::begin_sums(Head& head, bool turned, std::size_t row, std::size_t count) noexcept {
  if (head.begun[turned]) return;
  bool all = count == head_rows_;
  for (const std::size_t end = row + count; row < end; ++row) {
    if (base_[turned][row] != kNothing) continue;
    std::fill_n(o_of(turned, row), o_stride_, 0.0f);
    all = false;
  }
  head.begun[turned] = all;
}

// Slices of one page that follow each other are taken together.
void BlockWalk::split_pages(std::span<const PageSlice> unit) {
  // Most of a history looks as the place before did.
  const Whole whole = seen_whole(unit);
  if (whole != Whole::no && !unit_.empty() && unit_.front().whole == whole) {
    unit_.front().slices = unit;
    pages_ = 1;
    return;
  }
  pages_ = 0;
  while (!unit.empty()) {
    std::size_t count = 1;
    while (count < unit.size() && bytes_of_page(unit[count]) == bytes_of_page(unit[0])) ++count;
    if (unit_.size() == pages_) unit_.emplace_back();
    UnitPage& page = unit_[pages_];
    page.logits = logits_of(pages_++);
    page.slices = unit.first(count);
    look_at(page, count == unit.size() && pages_ == 1);
    unit = unit.subspan(count);
  }
  unit_.front().whole = whole;
}

BlockWalk::Whole BlockWalk::seen_whole(std::span<const PageSlice> unit) const noexcept {
  const PageSlice& slice = unit.front();
  const bool sealed = slice.reads_sealed(sealed_below_[0]);
  if (unit.size() > 1 || windows_ || slice.ordinal + slice.count > seen_below_ ||
      sealed != slice.reads_sealed(sealed_below_[1])) {
    return Whole::no;
  }
  constexpr int kSlots = 1 << 16;  // more than a page has
  return Whole{(std::int64_t{slice.first} * kSlots + slice.count) * 2 + (sealed ? 1 : 0)};
}

void BlockWalk::look_at(UnitPage& page, bool alone) const {
  const std::span<const Query> queries = task_.queries;
  const PageSlice& first = page.slices.front();
  page.end = first.first + first.count;
  page.seen.resize(queries.size());
  for (std::size_t i = 0; i < queries.size(); ++i) page.seen[i] = seen_by(first, queries[i]);
  page.plain =
      alone && page.slices.size() == 1 && whole_tiles(page.seen) && !shapes_logits(task_.math);
  page.stretches.clear();
  if (page.slices.size() == 1) return add_stretches(page.seen, page.stretches);
  page.slices_seen = page.seen;
  for (const PageSlice& slice : page.slices.subspan(1)) {
    page.end = std::max(page.end, slice.first + slice.count);
    for (std::size_t i = 0; i < queries.size(); ++i) {
      const Seen seen = seen_by(slice, queries[i]);
      page.slices_seen.push_back(seen);
      Seen& all = page.seen[i];
      if (all.empty()) all = seen;
      if (seen.empty()) continue;
      all.begin = std::min(all.begin, seen.begin);
      all.end = std::max(all.end, seen.end);
    }
  }
  add_stretches(page.seen, page.stretches);
  page.slices_stretches.resize(page.slices.size());
  for (std::size_t s = 0; s < page.slices.size(); ++s) {
    page.slices_stretches[s].clear();
    add_stretches(std::span(page.slices_seen).subspan(s * queries.size(), queries.size()),
                  page.slices_stretches[s]);
  }
}

// Dot products of all rows with a page, or what the layer makes of them; where it is not plain -inf
// where they do not see, and the maximum.
void BlockWalk::make_logits(Head& head, const UnitPage& page) {
  if (page.slices.size() == 1) {
    for (const Stretch& stretch : page.stretches) {
      slice_logits(head, page, page.slices.front(), page.seen, stretch, page.logits);
    }
    return;
  }
  // Each slice has slots of its own.
  const std::size_t queries = task_.queries.size();
  const std::size_t count = head_rows_ * static_cast<std::size_t>(slots_);
  std::fill_n(page.logits, count, kNothing);
  float* of_slice = room_.extra.take_floats(count);
  for (std::size_t s = 0; s < page.slices.size(); ++s) {
    const PageSlice& slice = page.slices[s];
    const auto seen = std::span(page.slices_seen).subspan(s * queries, queries);
    for (const Stretch& stretch : page.slices_stretches[s]) {
      slice_logits(head, page, slice, seen, stretch, of_slice);
      const int first = std::max(slice.first, stretch.first_slot);
      const int end = std::min(slice.first + slice.count, stretch.end_slot);
      for (std::size_t row = stretch.first * group_; row < (stretch.first + stretch.count) * group_;
           ++row) {
        const std::size_t at =
            row * static_cast<std::size_t>(slots_) + static_cast<std::size_t>(first);
        std::copy_n(of_slice + at, end - first, page.logits + at);
      }
    }
  }
}

void BlockWalk::slice_logits(Head& head, const UnitPage& page, const PageSlice& slice,
                             std::span<const Seen> seen, const Stretch& stretch, float* logits) {
  const std::size_t row = stretch.first * group_;
  room_.keys.make(head.keys.of(stretch.sealed), bytes_of_page(slice), page.end, many_);
  const Operands queries =
      head.block.prepared(room_.keys, slice.turn, static_cast<std::int64_t>(row),
                          static_cast<std::int64_t>(stretch.count * group_));
  room_.keys.products().scores(room_.keys.side(), stretch.first_slot, stretch.end_slot, queries,
                               logits + row * static_cast<std::size_t>(slots_), slots_,
                               *std::exchange(keys_ahead_, &kNothingAhead));
  if (!page.plain) mask_logits(head, slice, seen, stretch, logits);
}

void BlockWalk::mask_logits(const Head& head, const PageSlice& slice, std::span<const Seen> seen,
                            const Stretch& stretch, float* logits) {
  const int first = stretch.first_slot;
  for (std::size_t i = stretch.first; i < stretch.first + stretch.count; ++i) {
    const std::size_t row = i * group_;
    float* to = logits + row * static_cast<std::size_t>(slots_);
    shape_logits(task_.math, head.group, slice, task_.queries[i], seen[i].begin, seen[i].end, to,
                 slots_);
    softmax_.raise(to + first, slots_, static_cast<int>(group_), stretch.end_slot - first,
                   seen[i].begin - first, seen[i].end - first, scale_, top_ + head.first_row + row);
  }
}

void BlockWalk::mix_page(Head& head, const UnitPage& page) {
  for (const Stretch& stretch : page.stretches) {
    const Reader& reader = head.values.of(stretch.sealed);
    room_.values.make(reader, bytes_of_page(page.slices.front()), page.end, many_);
    const std::size_t count = stretch.count * group_;
    const std::size_t row = head.first_row + stretch.first * group_;
    float* from = page.logits + stretch.first * group_ * static_cast<std::size_t>(slots_);
    Operands weights{reinterpret_cast<const std::byte*>(from),
                     static_cast<std::ptrdiff_t>(sizeof(float)) * slots_, static_cast<int>(count)};
    std::byte* prepared = nullptr;
    if (reader.weight_bytes != 0) {
      weights.stride = static_cast<std::ptrdiff_t>(reader.weight_bytes);
      prepared = room_.weights.take(count * reader.weight_bytes);
      weights.rows = prepared;
    }
    const bool turned = reader.rotates;
    begin_sums(head, turned, row, count);
    reader.kernel->weigh(
        room_.values.side(),
        {from, slots_, weights.count, stretch.first_slot, stretch.end_slot, scale_, m_ + row,
         l_ + row, base_[turned] + row, keep_ + row, prepared, weights.stride});
    // Rows that are multiplied where they lie end with the last one.
    const int end_slot = std::min(stretch.end_slot, room_.values.side().slots);
    room_.values.products().mix(room_.values.side(), stretch.first_slot, end_slot, weights,
                                keep_ + row, o_of(turned, row), o_stride_,
                                *std::exchange(values_ahead_, &kNothingAhead));
    touched_ = true;
  }
}

}  // namespace quire
