// The walk: pages outside, queries inside.
//
// The slices of one place in the history (equal page_end) are one unit of softmax, however the
// place is cut into slices. For each unit, and for all rows (query heads of queries) of a block:
//
//     logits of the whole page by the kernel -> -inf where a row does not see -> one maximum, one
//     rescale -> weights, 0 where it does not see -> mix of the whole page by the kernel
//
// Nothing in this arithmetic depends on the other rows: weights of 0 add nothing, so a row gets the
// same bits whichever slots of the page the call covers, and whether codes were expanded or not.
#include "attend/walk.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>

#include "attend/operand.h"
#include "attend/softmax.h"
#include "base/convert.h"

namespace quire {
namespace {

constexpr int kTile = 16;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Rows of a block: as many as keep queries, logits and sums near the core while a page is used.
constexpr std::int64_t kBlockRows = 192;
// Rows for which it pays to expand a page.
constexpr int kManyRows = 12;

int tile_floor(int slot) noexcept { return slot / kTile * kTile; }
int tile_ceil(int slot) noexcept { return (slot + kTile - 1) / kTile * kTile; }

// The query heads that read one kv head.
struct HeadGroup {
  int kv_head;
  std::int64_t first;
  std::int64_t count;
};

HeadGroup group_of(const AttendTask& task, int kv_head) noexcept {
  const std::int64_t count = task.q.heads / task.store->heads;
  return {kv_head, kv_head * count, count};
}

// Slots of a slice's page that a query sees.
struct Seen {
  int begin = 0;
  int end = 0;
  bool sealed = false;
  bool empty() const noexcept { return begin >= end; }
};

Seen seen_by(const PageSlice& slice, const Query& query) noexcept {
  if (query.end_ordinal <= slice.ordinal) return {};
  const auto below =
      static_cast<int>(std::min<std::int64_t>(slice.count, query.end_ordinal - slice.ordinal));
  const std::int64_t* const first = slice.positions + slice.first;
  const std::int64_t* begin = first;
  // Positions are looked at only where they matter: they are memory far away.
  if (query.first_position != INT64_MIN && *begin + slice.turn < query.first_position) {
    begin = std::partition_point(first, first + below, [&](std::int64_t position) {
      return position + slice.turn < query.first_position;
    });
  }
  return {slice.first + static_cast<int>(begin - first), slice.first + below,
          slice.reads_sealed(query.sealed_below)};
}

PageBytes bytes_of_page(const PageSlice& slice) noexcept { return {slice.rows, slice.sealed}; }

// A page of the unit at hand: its slices, and what of it each query sees.
struct UnitPage {
  std::span<const PageSlice> slices;
  int end = 0;                    // of the slots that the slices show
  std::vector<Seen> seen;         // [query]: from the first to the last slot, in all slices
  std::vector<Seen> slices_seen;  // [slice][query], where there are several
};

// The queries of one block in f32, and prepared for a kernel as the slice at hand must meet them:
// turned back by its turn. Turns follow each other along a history, so the last one is enough to
// make each once.
class QueryBlock {
 public:
  QueryBlock(const AttendTask& task, const HeadGroup& group, std::span<const Query> queries)
      : task_(task),
        rows_(static_cast<std::int64_t>(queries.size()) * group.count),
        dim_(task.store->key_dim) {
    plain_.resize(static_cast<std::size_t>(rows_ * dim_));
    const ConvertRows convert = convert_rows(task.q.dtype, DType::f32, task.isa);
    const auto* data = static_cast<const std::byte*>(task.q.data);
    float* to = plain_.data();
    for (const Query& query : queries) {
      for (std::int64_t h = 0; h < group.count; ++h, to += dim_) {
        const std::byte* from =
            data + (query.row * task.q.token_stride + (group.first + h) * task.q.head_stride) *
                       static_cast<std::int64_t>(bytes_of(task.q.dtype));
        const float largest = convert(from, 0, reinterpret_cast<std::byte*>(to), 0, 1,
                                      static_cast<std::size_t>(dim_));
        // A broken query must not look like one that sees nothing, whatever codes make of it.
        if (!std::isfinite(largest)) {
          std::fill_n(to, dim_, std::numeric_limits<float>::quiet_NaN());
        }
      }
    }
  }

  // The prepared rows [first, first + count) for keys in one form with `turn`.
  Operands prepared(const Reader& reader, std::int64_t turn, std::int64_t first,
                    std::int64_t count) {
    if (task_.math.rope == nullptr) turn = 0;
    Prepared& form = forms_[reader.sealed];
    const auto stride = static_cast<std::ptrdiff_t>(reader.kernel->query_bytes(reader.dim));
    if (!form.ready || form.turn != turn) prepare(reader, turn, stride, form);
    return {form.bytes.data() + first * stride, stride, static_cast<int>(count)};
  }

 private:
  struct Prepared {
    Scratch bytes;
    std::int64_t turn = 0;
    bool ready = false;
  };

  void prepare(const Reader& reader, std::int64_t turn, std::ptrdiff_t stride, Prepared& form) {
    const float* from = turn == 0 ? plain_.data() : turned(turn);
    std::byte* to = form.bytes.take(static_cast<std::size_t>(rows_ * stride));
    for (std::int64_t row = 0; row < rows_; ++row) {
      reader.kernel->prepare(from + row * dim_, reader.dim, reader.split, to + row * stride);
    }
    form.turn = turn;
    form.ready = true;
  }

  const float* turned(std::int64_t turn) {
    if (turned_.empty() || turn != turn_) {
      turn_ = turn;
      turned_ = plain_;
      const std::vector<float> angles = task_.math.rope->angles(-turn);
      for (std::int64_t row = 0; row < rows_; ++row) {
        task_.math.rope->apply(angles, turned_.data() + row * dim_);
      }
    }
    return turned_.data();
  }

  const AttendTask& task_;
  std::int64_t rows_;
  std::int64_t dim_;
  std::vector<float> plain_;   // [row][key_dim]
  std::vector<float> turned_;  // the same, turned back by turn_
  std::int64_t turn_ = 0;
  Prepared forms_[2];  // for rows, for sealed pages
};

// Scales, caps and biases the dot products of a query's heads with slots [begin, end) of a slice's
// page: logits [head][stride]. What is left to be multiplied by is returned.
float shape_logits(const LayerMath& math, const HeadGroup& group, const PageSlice& slice,
                   const Query& query, int begin, int end, float* logits, int stride) noexcept {
  if (math.soft_cap <= 0.0f && math.slopes.empty()) return math.scale;
  for (std::int64_t h = 0; h < group.count; ++h, logits += stride) {
    for (int t = begin; t < end; ++t) logits[t] *= math.scale;
    if (math.soft_cap > 0.0f) {
      for (int t = begin; t < end; ++t) {
        logits[t] = math.soft_cap * std::tanh(logits[t] / math.soft_cap);
      }
    }
    if (math.slopes.empty()) continue;
    const float slope = math.slopes[static_cast<std::size_t>(group.first + h)];
    for (int t = begin; t < end; ++t) {
      logits[t] += slope * static_cast<float>(slice.position(t) - query.position);
    }
  }
  return 1.0f;
}

// Calls f(first, count) for each stretch of queries that read a page in one form.
template <typename F>
void for_each_stretch(std::span<const Seen> seen, const F& f) {
  for (std::size_t i = 0; i < seen.size();) {
    std::size_t end = i + 1;
    if (!seen[i].empty()) {
      while (end < seen.size() && !seen[end].empty() && seen[end].sealed == seen[i].sealed) ++end;
      f(i, end - i);
    }
    i = end;
  }
}

// The tiles that a stretch of queries sees.
struct TileRange {
  int first;
  int end;
};

TileRange tiles_of(std::span<const Seen> seen) noexcept {
  int first = seen.front().begin;
  int end = seen.front().end;
  for (const Seen& s : seen) {
    first = std::min(first, s.begin);
    end = std::max(end, s.end);
  }
  return {tile_floor(first), tile_ceil(end)};
}

// One block of queries on its way through the history.
class BlockWalk {
 public:
  BlockWalk(const AttendTask& task, const HeadGroup& group, std::span<const Query> queries,
            const StateView& out)
      : task_(task),
        group_(group),
        queries_(queries),
        out_(out),
        softmax_(softmax_of(task.isa)),
        block_(task, group, queries),
        keys_(*task.store, Side::key, task.isa, group.kv_head),
        values_(*task.store, Side::value, task.isa, group.kv_head),
        heads_(static_cast<std::size_t>(group.count)),
        rows_(queries.size() * heads_),
        slots_(tile_ceil(task.store->page_tokens)),
        o_stride_(tile_ceil(task.store->value_dim)),
        many_(rows_ >= kManyRows) {
    o_ = numbers_.take_floats(rows_ * static_cast<std::size_t>(o_stride_ + 4));
    m_ = o_ + rows_ * static_cast<std::size_t>(o_stride_);
    l_ = m_ + rows_;
    top_ = l_ + rows_;
    keep_ = top_ + rows_;
    clear_item();
    for (const Query& query : queries) {
      const std::int64_t at = query.out_row * out.heads + group.first;
      state_clear(out.o + at * out.dim, out.m + at, out.l + at, group.count, out.dim);
    }
  }

  // The keys of a page, to be brought near before take() asks for them.
  Ahead keys_of(const PageSlice& slice) {
    if (many_) return {};
    const bool sealed = slice.reads_sealed(queries_.front().sealed_below);
    return keys_.reader(sealed).ahead(bytes_of_page(slice));
  }

  // Takes one unit into the states of its work item. `after`: what is read next.
  void take(std::span<const PageSlice> unit, const Ahead& after) {
    if (unit.front().page_end > item_end_) {
      end_item();
      item_end_ = (item_of(unit.front(), *task_.store) + 1) * kItemPages * task_.store->page_tokens;
    }
    split_pages(unit);
    std::fill_n(top_, rows_, kNothing);
    for (std::size_t p = 0; p < pages_; ++p) make_logits(unit_[p], logits_of(p));
    rescale();
    for (std::size_t p = 0; p < pages_; ++p) {
      mix_page(unit_[p], logits_of(p), p + 1 < pages_ ? Ahead{} : after);
    }
  }

  // Merges the item's states into the output and begins the next item.
  void end_item() {
    if (!touched_) return;
    touched_ = false;
    for (std::size_t i = 0; i < queries_.size(); ++i) {
      for (std::size_t h = 0; h < heads_; ++h) {
        const std::int64_t at =
            queries_[i].out_row * out_.heads + group_.first + static_cast<std::int64_t>(h);
        const std::size_t row = i * heads_ + h;
        state_merge(out_.o + at * out_.dim, out_.m + at, out_.l + at, o_of(row), m_ + row, l_ + row,
                    1, out_.dim);
      }
    }
    clear_item();
  }

 private:
  float* o_of(std::size_t row) noexcept { return o_ + row * static_cast<std::size_t>(o_stride_); }

  // [row][slot] of page p of the unit.
  float* logits_of(std::size_t p) {
    if (logits_.size() <= p) logits_.resize(p + 1);
    return logits_[p].take_floats(rows_ * static_cast<std::size_t>(slots_));
  }

  void clear_item() noexcept {
    state_clear(o_, m_, l_, static_cast<std::int64_t>(rows_), o_stride_);
  }

  // Slices of one page that follow each other are taken together.
  void split_pages(std::span<const PageSlice> unit) {
    pages_ = 0;
    while (!unit.empty()) {
      std::size_t count = 1;
      while (count < unit.size() && bytes_of_page(unit[count]) == bytes_of_page(unit[0])) ++count;
      if (unit_.size() == pages_) unit_.emplace_back();
      UnitPage& page = unit_[pages_++];
      page.slices = unit.first(count);
      look_at(page);
      unit = unit.subspan(count);
    }
  }

  void look_at(UnitPage& page) const {
    const std::size_t queries = queries_.size();
    const PageSlice& first = page.slices.front();
    page.end = first.first + first.count;
    page.seen.resize(queries);
    for (std::size_t i = 0; i < queries; ++i) page.seen[i] = seen_by(first, queries_[i]);
    if (page.slices.size() == 1) return;
    page.slices_seen = page.seen;
    for (const PageSlice& slice : page.slices.subspan(1)) {
      page.end = std::max(page.end, slice.first + slice.count);
      for (std::size_t i = 0; i < queries; ++i) {
        const Seen seen = seen_by(slice, queries_[i]);
        page.slices_seen.push_back(seen);
        Seen& all = page.seen[i];
        if (all.empty()) all = seen;
        if (seen.empty()) continue;
        all.begin = std::min(all.begin, seen.begin);
        all.end = std::max(all.end, seen.end);
      }
    }
  }

  // Logits of all rows over a page, times log2 e and -inf where they do not see; their maximum.
  void make_logits(const UnitPage& page, float* logits) {
    const std::size_t queries = queries_.size();
    for (std::size_t s = 0; s < page.slices.size(); ++s) {
      const std::span<const Seen> seen =
          page.slices.size() == 1 ? std::span(page.seen)
                                  : std::span(page.slices_seen).subspan(s * queries, queries);
      // Another slice of the page has other slots: the larger of both is the one that is seen.
      float* to = s == 0 ? logits : extra_.take_floats(rows_ * static_cast<std::size_t>(slots_));
      if (page.slices.size() > 1) {
        std::fill_n(to, rows_ * static_cast<std::size_t>(slots_), kNothing);
      }
      for_each_stretch(seen, [&](std::size_t first, std::size_t count) {
        slice_logits(page, page.slices[s], seen, first, count, to);
      });
      if (s == 0) continue;
      for (std::size_t i = 0; i < rows_ * static_cast<std::size_t>(slots_); ++i) {
        logits[i] = logits[i] > to[i] ? logits[i] : to[i];
      }
    }
  }

  void slice_logits(const UnitPage& page, const PageSlice& slice, std::span<const Seen> seen,
                    std::size_t first, std::size_t count, float* logits) {
    const bool sealed = seen[first].sealed;
    const PageBytes bytes = bytes_of_page(slice);
    const TileRange tiles = tiles_of(seen.subspan(first, count));
    const Operand& keys = keys_.of(sealed, bytes, page.end, many_);
    if (!many_) values_.reader(sealed).fetch_scales(bytes);
    const Operands queries =
        block_.prepared(keys.reader(), slice.turn, static_cast<std::int64_t>(first * heads_),
                        static_cast<std::int64_t>(count * heads_));
    keys.products().scores(keys.side(), tiles.first, tiles.end, queries,
                           logits + first * heads_ * static_cast<std::size_t>(slots_), slots_,
                           many_ ? Ahead{} : values_.reader(sealed).ahead(bytes));
    const TileRange all = tiles_of(std::span(page.seen).subspan(first, count));
    for (std::size_t i = first; i < first + count; ++i) {
      const std::size_t row = i * heads_;
      float* to = logits + row * static_cast<std::size_t>(slots_);
      const float scale = shape_logits(task_.math, group_, slice, queries_[i], seen[i].begin,
                                       seen[i].end, to, slots_);
      softmax_.raise(to + all.first, slots_, static_cast<int>(heads_), all.end - all.first,
                     seen[i].begin - all.first, seen[i].end - all.first, scale * kLog2E,
                     top_ + row);
    }
  }

  // One maximum and one rescale per row; sums are rescaled when the page is added.
  void rescale() noexcept {
    for (std::size_t row = 0; row < rows_; ++row) {
      keep_[row] = 1.0f;
      if (top_[row] == kNothing || top_[row] <= m_[row]) continue;  // NaN goes on
      keep_[row] = m_[row] == kNothing ? 0.0f : std::exp2(m_[row] - top_[row]);
      l_[row] *= keep_[row];
      m_[row] = top_[row];
      touched_ = true;
    }
  }

  void mix_page(const UnitPage& page, float* logits, const Ahead& after) {
    for_each_stretch(page.seen, [&](std::size_t first, std::size_t count) {
      const std::span<const Seen> seen = std::span(page.seen).subspan(first, count);
      const TileRange tiles = tiles_of(seen);
      const bool sealed = seen.front().sealed;
      const PageBytes bytes = bytes_of_page(page.slices.front());
      const Operand& values = values_.of(sealed, bytes, page.end, many_);
      const Kernel& kernel = *values.reader().kernel;
      float* from = logits + first * heads_ * static_cast<std::size_t>(slots_);
      Operands weights{reinterpret_cast<const std::byte*>(from),
                       static_cast<std::ptrdiff_t>(sizeof(float)) * slots_,
                       static_cast<int>(count * heads_)};
      if (kernel.weigh != nullptr) {
        weights.stride = static_cast<std::ptrdiff_t>(kernel.weight_bytes(slots_));
        weights.rows = weights_.take(count * heads_ * static_cast<std::size_t>(weights.stride));
      }
      softmax_.weigh(from + tiles.first, slots_, weights.count, tiles.end - tiles.first,
                     m_ + first * heads_, kernel.rounds_weights, l_ + first * heads_);
      for (int i = 0; kernel.weigh != nullptr && i < weights.count; ++i) {
        kernel.weigh(values.side(), from + i * slots_, tiles.first, tiles.end,
                     weights_.data() + i * weights.stride);
      }
      values.products().mix(values.side(), tiles.first, tiles.end, weights, keep_ + first * heads_,
                            o_of(first * heads_), o_stride_, after);
      std::fill_n(keep_ + first * heads_, count * heads_, 1.0f);
    });
  }

  const AttendTask& task_;
  const HeadGroup group_;
  const std::span<const Query> queries_;
  const StateView out_;
  const Softmax& softmax_;
  QueryBlock block_;
  BothForms keys_;
  BothForms values_;
  const std::size_t heads_;  // of the group
  const std::size_t rows_;   // queries times heads_
  const int slots_;          // of a page, padded
  const int o_stride_;       // value_dim, padded
  const bool many_;          // rows: worth expanding pages

  std::vector<UnitPage> unit_;  // of the unit at hand; kept for their memory
  std::size_t pages_ = 0;
  std::vector<Scratch> logits_;  // [page of the unit]: [row][slot], logits, then weights
  Scratch extra_;                // the same, of a page's other slices
  Scratch weights_;              // [row], prepared
  Scratch numbers_;              // holds the five that follow
  float* o_ = nullptr;           // [row][o_stride_]: with m_ and l_ the states of the item at hand
  float* m_ = nullptr;           // [row]
  float* l_ = nullptr;
  float* top_ = nullptr;       // largest logit of the unit
  float* keep_ = nullptr;      // what sums are multiplied by before the unit is added
  std::int64_t item_end_ = 0;  // ordinal at which the item at hand ends
  bool touched_ = false;       // some state of the item is not empty
};

// The slices of the place that begins at slices[0].
std::span<const PageSlice> first_unit(std::span<const PageSlice> slices) noexcept {
  std::size_t count = 1;
  while (count < slices.size() && slices[count].page_end == slices[0].page_end) ++count;
  return slices.first(count);
}

}  // namespace

std::size_t block_queries(const AttendTask& task) noexcept {
  const std::int64_t heads = task.q.heads / task.store->heads;
  return static_cast<std::size_t>(std::max<std::int64_t>(1, kBlockRows / heads));
}

std::int64_t item_of(const PageSlice& slice, const LayerStore& store) noexcept {
  return (slice.page_end - 1) / store.page_tokens / kItemPages;
}

// Heads inside pages: those of a layer lie side by side in a page, and memory is read fastest in
// its order.
void attend_states(const AttendTask& task, HeadRange heads, const StateView& out) {
  const std::size_t block = block_queries(task);
  for (std::size_t at = 0; at < task.queries.size(); at += block) {
    const std::size_t count = std::min(block, task.queries.size() - at);
    std::deque<BlockWalk> walks;
    for (int head = heads.begin; head < heads.end; ++head) {
      walks.emplace_back(task, group_of(task, head), task.queries.subspan(at, count), out);
    }
    for (std::span<const PageSlice> rest = task.slices; !rest.empty();) {
      const std::span<const PageSlice> unit = first_unit(rest);
      rest = rest.subspan(unit.size());
      const Ahead next_page = rest.empty() ? Ahead{} : walks.front().keys_of(rest.front());
      for (std::size_t i = 0; i < walks.size(); ++i) {
        walks[i].take(unit, i + 1 < walks.size() ? walks[i + 1].keys_of(unit.front()) : next_page);
      }
    }
    for (BlockWalk& walk : walks) walk.end_item();
  }
}

void attend_logits(const AttendTask& task, int kv_head, float* out, std::int64_t columns) {
  const HeadGroup group = group_of(task, kv_head);
  const auto line = [&](const Query& query, std::int64_t head) {
    return out + (query.row * task.q.heads + group.first + head) * columns;
  };
  for (const Query& query : task.queries) {
    for (std::int64_t h = 0; h < group.count; ++h) std::fill_n(line(query, h), columns, kNothing);
  }
  const int slots = tile_ceil(task.store->page_tokens);
  const std::size_t block = block_queries(task);
  Scratch scratch;
  BothForms keys(*task.store, Side::key, task.isa, kv_head);
  for (std::size_t at = 0; at < task.queries.size(); at += block) {
    const std::span<const Query> queries =
        task.queries.subspan(at, std::min(block, task.queries.size() - at));
    const auto rows = static_cast<std::int64_t>(queries.size()) * group.count;
    QueryBlock rows_of_block(task, group, queries);
    float* logits = scratch.take_floats(static_cast<std::size_t>(rows * slots));
    std::int64_t column = 0;
    std::vector<Seen> seen(queries.size());
    for (const PageSlice& slice : task.slices) {
      for (std::size_t i = 0; i < queries.size(); ++i) seen[i] = seen_by(slice, queries[i]);
      for_each_stretch(seen, [&](std::size_t first, std::size_t count) {
        const TileRange tiles = tiles_of(std::span(seen).subspan(first, count));
        const Operand& operand = keys.of(seen[first].sealed, bytes_of_page(slice),
                                         slice.first + slice.count, rows >= kManyRows);
        const auto first_row = static_cast<std::int64_t>(first) * group.count;
        operand.products().scores(
            operand.side(), tiles.first, tiles.end,
            rows_of_block.prepared(operand.reader(), slice.turn, first_row,
                                   static_cast<std::int64_t>(count) * group.count),
            logits + first_row * slots, slots, {});
        for (std::size_t i = first; i < first + count; ++i) {
          float* from = logits + static_cast<std::int64_t>(i) * group.count * slots;
          const float scale = shape_logits(task.math, group, slice, queries[i], seen[i].begin,
                                           seen[i].end, from, slots);
          for (std::int64_t h = 0; h < group.count; ++h, from += slots) {
            float* to = line(queries[i], h) + column - slice.first;
            for (int t = seen[i].begin; t < seen[i].end; ++t) to[t] = from[t] * scale;
          }
        }
      });
      column += slice.count;
    }
  }
}

void logits_to_probabilities(float* logits, std::int64_t columns, float sink) noexcept {
  float top = sink;
  for (std::int64_t j = 0; j < columns; ++j) top = logits[j] <= top ? top : logits[j];
  if (top == kNothing) {
    std::fill_n(logits, columns, 0.0f);
    return;
  }
  // The sum is kept in double: columns may be many, and each must be divided by the same number
  // whatever columns of zeros stand between.
  double sum = std::exp2(static_cast<double>((sink - top) * kLog2E));
  for (std::int64_t j = 0; j < columns; ++j) {
    logits[j] = std::exp2((logits[j] - top) * kLog2E);
    sum += static_cast<double>(logits[j]);
  }
  for (std::int64_t j = 0; j < columns; ++j) {
    logits[j] = static_cast<float>(static_cast<double>(logits[j]) / sum);
  }
}

void read_slice(const LayerStore& store, const RopeTurner* rope, Side side, int head,
                const PageSlice& slice, std::int64_t sealed_below, int first, int count,
                float* out) {
  if (slice.reads_sealed(sealed_below)) {
    read_sealed(store, side, head, slice.sealed, first, count, out);
  } else {
    read_rows(store, side, head, slice.rows, first, count, out);
  }
  if (side != Side::key || rope == nullptr || slice.turn == 0) return;
  const std::vector<float> angles = rope->angles(slice.turn);
  for (int t = 0; t < count; ++t)
    rope->apply(angles, out + static_cast<std::ptrdiff_t>(t) * store.key_dim);
}

}  // namespace quire
