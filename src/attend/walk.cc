// The walk: pages outside, queries inside.
//
// The slices of one place in the history (equal page_end) are one unit of softmax, however the
// place is cut into slices. For each unit the walk expands the keys and values of one kv head to
// f32, once for all queries that read them in the same form, then goes query by query:
//
//     logits of every slot the query sees -> one maximum -> one rescale -> add p and p v in order
//
// Nothing in this arithmetic depends on the other queries. Sums run in 16 lanes: keys are expanded
// as [tile of 16 slots][channel][16], values as [tile of 16 channels][slot][16], so one loop,
// lanes += weight * row of 16, makes 16 dot products in the order of channels and 16 channels of
// the mix in the order of slots. A lane's sum does not depend on its neighbours, so tiles may hold
// slots that a query does not see.
#include "attend/walk.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/numbers.h"

namespace quire {
namespace {

constexpr int kLanes = 16;
constexpr float kNothing = -std::numeric_limits<float>::infinity();
// Floats of scratch that a block of queries may take (1 MiB), so that the states of a block stay
// near the core. A block has at least one query.
constexpr std::size_t kBlockFloats = std::size_t{1} << 18;

std::size_t tiles_of(int count) noexcept {
  return static_cast<std::size_t>((count + kLanes - 1) / kLanes);
}

// Four lanes, as every vector unit has them. Said in the type, since g++ 12 keeps 16 sums of a
// plain loop in memory.
using Quad [[gnu::vector_size(16)]] = float;

Quad load_quad(const float* from) noexcept {
  Quad quad;
  std::memcpy(&quad, from, sizeof(quad));
  return quad;
}

// lanes[i] += weights[j] * rows[j][i], in the order of j.
void add_rows(float* lanes, const float* weights, const float* rows, int count) noexcept {
  Quad a = load_quad(lanes);
  Quad b = load_quad(lanes + 4);
  Quad c = load_quad(lanes + 8);
  Quad d = load_quad(lanes + 12);
  for (int j = 0; j < count; ++j, rows += kLanes) {
    const float weight = weights[j];
    a += weight * load_quad(rows);
    b += weight * load_quad(rows + 4);
    c += weight * load_quad(rows + 8);
    d += weight * load_quad(rows + 12);
  }
  std::memcpy(lanes, &a, sizeof(a));
  std::memcpy(lanes + 4, &b, sizeof(b));
  std::memcpy(lanes + 8, &c, sizeof(c));
  std::memcpy(lanes + 12, &d, sizeof(d));
}

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

// Slots of a slice that a query sees, counted from the slice's first.
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
  const std::int64_t* const begin = std::partition_point(
      first, first + below,
      [&](std::int64_t position) { return position + slice.turn < query.first_position; });
  return {static_cast<int>(begin - first), below, slice.reads_sealed(query.sealed_below)};
}

// Keys and values of one slice and one kv head in f32.
struct Expanded {
  bool ready = false;
  int count = 0;
  std::vector<float> keys;    // [tile of 16 slots][key_dim][16]
  std::vector<float> values;  // [tile of 16 channels][slot][16]
};

// Which sides of a slice a walk needs.
enum class Expand { keys, both };

void read_form(const LayerStore& store, Side side, int head, const PageSlice& slice, bool sealed,
               int first, int count, float* out) {
  if (sealed) {
    read_sealed(store, side, head, slice.sealed, first, count, out);
  } else {
    read_rows(store, side, head, slice.rows, first, count, out);
  }
}

// [count][dim] -> [tile of 16 rows][dim][16], zeros behind the last row.
void tile_rows(const float* rows, int count, int dim, std::vector<float>& tiles) {
  tiles.assign(tiles_of(count) * static_cast<std::size_t>(dim) * kLanes, 0.0f);
  for (int t = 0; t < count; ++t, rows += dim) {
    float* lane =
        tiles.data() + static_cast<std::ptrdiff_t>(t / kLanes) * dim * kLanes + t % kLanes;
    for (int c = 0; c < dim; ++c) lane[static_cast<std::ptrdiff_t>(c) * kLanes] = rows[c];
  }
}

// [count][stride] -> [tile of 16 channels][count][16], zeros behind the last channel.
void tile_channels(const float* rows, int count, int stride, int dim, std::vector<float>& tiles) {
  tiles.assign(tiles_of(dim) * static_cast<std::size_t>(count) * kLanes, 0.0f);
  for (int t = 0; t < count; ++t, rows += stride) {
    for (int c = 0; c < dim; c += kLanes) {
      float* to = tiles.data() + (static_cast<std::ptrdiff_t>(c / kLanes) * count + t) * kLanes;
      std::copy_n(rows + c, std::min(kLanes, dim - c), to);
    }
  }
}

void expand(const LayerStore& store, int head, const PageSlice& slice, bool sealed, Expand what,
            std::vector<float>& scratch, Expanded& into) {
  if (into.ready) return;
  into.ready = true;
  into.count = slice.count;
  const auto slots = static_cast<std::size_t>(slice.count);
  scratch.resize(slots * static_cast<std::size_t>(std::max(store.key_dim, store.value_dim)));
  read_form(store, Side::key, head, slice, sealed, slice.first, slice.count, scratch.data());
  tile_rows(scratch.data(), slice.count, store.key_dim, into.keys);
  if (what == Expand::keys) return;
  if (store.mla) {
    tile_channels(scratch.data(), slice.count, store.key_dim, store.value_dim, into.values);
    return;
  }
  read_form(store, Side::value, head, slice, sealed, slice.first, slice.count, scratch.data());
  tile_channels(scratch.data(), slice.count, store.value_dim, store.value_dim, into.values);
}

// The queries of one block, [query][head of the group][key_dim] in f32, as they came and turned
// against the slice at hand. Turns follow each other along a history, so the last one is enough
// to make each once.
class QueryBlock {
 public:
  QueryBlock(const AttendTask& task, const HeadGroup& group, std::span<const Query> queries)
      : task_(task), queries_(queries), heads_(group.count), dim_(task.store->key_dim) {
    plain_.resize(queries.size() * static_cast<std::size_t>(heads_ * dim_));
    const auto* data = static_cast<const std::byte*>(task.q.data);
    float* to = plain_.data();
    for (const Query& query : queries) {
      for (std::int64_t h = 0; h < heads_; ++h, to += dim_) {
        const std::byte* from =
            data + (query.row * task.q.token_stride + (group.first + h) * task.q.head_stride) *
                       static_cast<std::int64_t>(bytes_of(task.q.dtype));
        for (std::int64_t c = 0; c < dim_; ++c) {
          to[c] = load_element(task.q.dtype, from, static_cast<std::size_t>(c));
        }
      }
    }
  }

  std::span<const Query> queries() const noexcept { return queries_; }

  // Makes at() answer the queries as a slice with `turn` must meet them: turned back by it.
  void face(std::int64_t turn) {
    facing_plain_ = turn == 0 || task_.math.rope == nullptr;
    if (facing_plain_ || (!turned_.empty() && turn == turn_)) return;
    turn_ = turn;
    turned_ = plain_;
    const std::vector<float> angles = task_.math.rope->angles(-turn);
    for (std::size_t at = 0; at < turned_.size(); at += static_cast<std::size_t>(dim_)) {
      task_.math.rope->apply(angles, turned_.data() + at);
    }
  }

  const float* at(std::size_t query, std::int64_t head) const noexcept {
    const std::vector<float>& from = facing_plain_ ? plain_ : turned_;
    return from.data() + (static_cast<std::int64_t>(query) * heads_ + head) * dim_;
  }

 private:
  const AttendTask& task_;
  std::span<const Query> queries_;
  std::int64_t heads_;
  std::int64_t dim_;
  std::vector<float> plain_;
  std::vector<float> turned_;
  std::int64_t turn_ = 0;
  bool facing_plain_ = true;
};

// Natural logits of one query head over the slots it sees of a slice: out [seen.end - seen.begin].
void logits_of(const AttendTask& task, const PageSlice& slice, const Expanded& expanded,
               const Seen& seen, const Query& query, std::int64_t query_head, const float* q,
               float* out) noexcept {
  const int dim = task.store->key_dim;
  for (int tile = seen.begin / kLanes * kLanes; tile < seen.end; tile += kLanes) {
    float sums[kLanes] = {};
    add_rows(sums, q, expanded.keys.data() + static_cast<std::ptrdiff_t>(tile) * dim, dim);
    const int begin = std::max(tile, seen.begin);
    const int end = std::min(tile + kLanes, seen.end);
    for (int t = begin; t < end; ++t) out[t - seen.begin] = sums[t - tile];
  }
  const LayerMath& math = task.math;
  const int count = seen.end - seen.begin;
  for (int t = 0; t < count; ++t) out[t] *= math.scale;
  if (math.soft_cap > 0.0f) {
    for (int t = 0; t < count; ++t) out[t] = math.soft_cap * std::tanh(out[t] / math.soft_cap);
  }
  if (!math.slopes.empty()) {
    const float slope = math.slopes[static_cast<std::size_t>(query_head)];
    for (int t = 0; t < count; ++t) {
      const std::int64_t distance = slice.position(slice.first + seen.begin + t) - query.position;
      out[t] += slope * static_cast<float>(distance);
    }
  }
}

// A slice of the unit at hand, in the forms its readers have asked for.
struct Part {
  Expanded forms[2];       // rows, sealed
  std::vector<Seen> seen;  // [query of the block]

  void begin() {
    forms[0].ready = forms[1].ready = false;
    seen.clear();
  }
};

// One block of queries on its way through the history.
class BlockWalk {
 public:
  BlockWalk(const AttendTask& task, const HeadGroup& group, std::span<const Query> queries,
            std::size_t unit_slots, const StateView& out)
      : task_(task),
        group_(group),
        out_(out),
        block_(task, group, queries),
        padded_dim_(tiles_of(task.store->value_dim) * kLanes),
        unit_slots_(unit_slots) {
    const std::size_t states = queries.size() * static_cast<std::size_t>(group.count);
    logits_.resize(states * unit_slots);
    o_.resize(states * padded_dim_);
    m_.resize(states);
    l_.resize(states);
    clear_item();
    for (const Query& query : queries) {
      const std::int64_t at = query.row * out.heads + group.first;
      state_clear(out.o + at * out.dim, out.m + at, out.l + at, group.count, out.dim);
    }
  }

  // Takes one unit into the states of its work item.
  void take(std::span<const PageSlice> unit) {
    const std::int64_t item = (unit.front().page_end - 1) / task_.store->page_tokens / kItemPages;
    if (item != item_) end_item();
    item_ = item;
    if (parts_.size() < unit.size()) parts_.resize(unit.size());
    make_logits(unit);
    for (std::size_t i = 0; i < block_.queries().size(); ++i) {
      for (std::int64_t h = 0; h < group_.count; ++h) absorb(unit.size(), i, h);
    }
  }

  // Merges the item's states into the output and begins the next item.
  void end_item() {
    if (!touched_) return;
    touched_ = false;
    const std::span<const Query> queries = block_.queries();
    for (std::size_t i = 0; i < queries.size(); ++i) {
      for (std::int64_t h = 0; h < group_.count; ++h) {
        const std::int64_t at = queries[i].row * out_.heads + group_.first + h;
        const std::size_t state = state_of(i, h);
        state_merge(out_.o + at * out_.dim, out_.m + at, out_.l + at,
                    o_.data() + state * padded_dim_, m_.data() + state, l_.data() + state, 1,
                    out_.dim);
      }
    }
    clear_item();
  }

 private:
  std::size_t state_of(std::size_t query, std::int64_t head) const noexcept {
    return query * static_cast<std::size_t>(group_.count) + static_cast<std::size_t>(head);
  }

  void clear_item() noexcept {
    state_clear(o_.data(), m_.data(), l_.data(), static_cast<std::int64_t>(m_.size()),
                static_cast<std::int64_t>(padded_dim_));
  }

  // The logits of all queries over the unit, times log2 e; those of one query head lie side by
  // side, slots that it does not see left out.
  void make_logits(std::span<const PageSlice> unit) {
    const std::span<const Query> queries = block_.queries();
    filled_.assign(queries.size(), 0);
    for (std::size_t p = 0; p < unit.size(); ++p) {
      const PageSlice& slice = unit[p];
      Part& part = parts_[p];
      part.begin();
      block_.face(slice.turn);
      for (std::size_t i = 0; i < queries.size(); ++i) {
        const Seen seen = seen_by(slice, queries[i]);
        part.seen.push_back(seen);
        if (seen.empty()) continue;
        Expanded& form = part.forms[seen.sealed];
        expand(*task_.store, group_.kv_head, slice, seen.sealed, Expand::both, scratch_, form);
        const int count = seen.end - seen.begin;
        for (std::int64_t h = 0; h < group_.count; ++h) {
          float* to = logits_.data() + state_of(i, h) * unit_slots_ + filled_[i];
          logits_of(task_, slice, form, seen, queries[i], group_.first + h, block_.at(i, h), to);
          for (int t = 0; t < count; ++t) to[t] *= kLog2E;
        }
        filled_[i] += static_cast<std::size_t>(count);
      }
    }
  }

  // One unit into one state: one maximum, one rescale, then slot after slot.
  void absorb(std::size_t parts, std::size_t query, std::int64_t head) noexcept {
    const std::size_t count = filled_[query];
    if (count == 0) return;
    const std::size_t state = state_of(query, head);
    float* s = logits_.data() + state * unit_slots_;
    float& m = m_[state];
    float& l = l_[state];
    float* o = o_.data() + state * padded_dim_;

    float top = kNothing;
    // Written so that a maximum of nothing but NaN is NaN: a broken query must not look empty.
    for (std::size_t t = 0; t < count; ++t) top = s[t] <= top ? top : s[t];
    if (top == kNothing) return;
    touched_ = true;
    if (!(top <= m)) {
      const float keep = std::exp2(m - top);
      l *= keep;
      for (std::size_t c = 0; c < padded_dim_; ++c) o[c] *= keep;
      m = top;
    }
    for (std::size_t t = 0; t < count; ++t) {
      s[t] = std::exp2(s[t] - m);
      l += s[t];
    }
    for (std::size_t p = 0; p < parts; ++p) {
      const Seen& seen = parts_[p].seen[query];
      if (seen.empty()) continue;
      const Expanded& form = parts_[p].forms[seen.sealed];
      const auto slots = static_cast<std::size_t>(form.count);
      const float* values = form.values.data() + static_cast<std::size_t>(seen.begin) * kLanes;
      for (std::size_t c = 0; c < padded_dim_; c += kLanes, values += slots * kLanes) {
        add_rows(o + c, s, values, seen.end - seen.begin);
      }
      s += seen.end - seen.begin;
    }
  }

  const AttendTask& task_;
  const HeadGroup group_;
  const StateView out_;
  QueryBlock block_;
  const std::size_t padded_dim_;  // value_dim in whole lanes
  const std::size_t unit_slots_;  // of the largest unit

  std::vector<Part> parts_;          // of the unit at hand; kept for their memory
  std::vector<float> scratch_;       // [slot][dim]
  std::vector<std::size_t> filled_;  // [query]: logits made for the unit at hand
  std::vector<float> logits_;        // [query][head][unit slot]
  std::vector<float> o_, m_, l_;     // [query][head]: states of the item at hand, o padded
  std::int64_t item_ = -1;
  bool touched_ = false;  // some state of the item is not empty
};

// The slices of the place that begins at slices[0].
std::span<const PageSlice> first_unit(std::span<const PageSlice> slices) noexcept {
  std::size_t count = 1;
  while (count < slices.size() && slices[count].page_end == slices[0].page_end) ++count;
  return slices.first(count);
}

std::size_t largest_unit(std::span<const PageSlice> slices) noexcept {
  std::size_t largest = 0;
  while (!slices.empty()) {
    const std::span<const PageSlice> unit = first_unit(slices);
    std::size_t slots = 0;
    for (const PageSlice& slice : unit) slots += static_cast<std::size_t>(slice.count);
    largest = std::max(largest, slots);
    slices = slices.subspan(unit.size());
  }
  return largest;
}

}  // namespace

void attend_states(const AttendTask& task, int kv_head, const StateView& out) {
  const HeadGroup group = group_of(task, kv_head);
  const std::size_t unit_slots = largest_unit(task.slices);
  const std::size_t floats_per_query =
      static_cast<std::size_t>(group.count) *
      (static_cast<std::size_t>(2 * task.store->key_dim + task.store->value_dim) + unit_slots);
  const std::size_t block = std::max<std::size_t>(1, kBlockFloats / floats_per_query);
  for (std::size_t at = 0; at < task.queries.size(); at += block) {
    const std::size_t count = std::min(block, task.queries.size() - at);
    BlockWalk walk(task, group, task.queries.subspan(at, count), unit_slots, out);
    for (std::span<const PageSlice> rest = task.slices; !rest.empty();) {
      const std::span<const PageSlice> unit = first_unit(rest);
      walk.take(unit);
      rest = rest.subspan(unit.size());
    }
    walk.end_item();
  }
}

void attend_logits(const AttendTask& task, int kv_head, float* out, std::int64_t columns) {
  const HeadGroup group = group_of(task, kv_head);
  QueryBlock block(task, group, task.queries);
  const auto line = [&](const Query& query, std::int64_t head) {
    return out + (query.row * task.q.heads + group.first + head) * columns;
  };
  for (const Query& query : task.queries) {
    for (std::int64_t h = 0; h < group.count; ++h) std::fill_n(line(query, h), columns, kNothing);
  }
  std::vector<float> scratch;
  Expanded forms[2];
  std::int64_t column = 0;
  for (const PageSlice& slice : task.slices) {
    forms[0].ready = forms[1].ready = false;
    block.face(slice.turn);
    for (std::size_t i = 0; i < task.queries.size(); ++i) {
      const Query& query = task.queries[i];
      const Seen seen = seen_by(slice, query);
      if (seen.empty()) continue;
      Expanded& form = forms[seen.sealed];
      expand(*task.store, kv_head, slice, seen.sealed, Expand::keys, scratch, form);
      for (std::int64_t h = 0; h < group.count; ++h) {
        logits_of(task, slice, form, seen, query, group.first + h, block.at(i, h),
                  line(query, h) + column + seen.begin);
      }
    }
    column += slice.count;
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
  read_form(store, side, head, slice, slice.reads_sealed(sealed_below), first, count, out);
  if (side != Side::key || rope == nullptr || slice.turn == 0) return;
  const std::vector<float> angles = rope->angles(slice.turn);
  for (int t = 0; t < count; ++t)
    rope->apply(angles, out + static_cast<std::ptrdiff_t>(t) * store.key_dim);
}

}  // namespace quire
