#include "cache/attend_work.h"

#include <algorithm>
#include <limits>

namespace quire {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Pieces of work for each thread that keep all of them busy to the end.
constexpr std::size_t kPiecesPerThread = 4;

// Bytes of a page that each of three or four threads should have for itself: with fewer it waits
// for those that another fetched past its own. Twice as many where some would have a head more than
// others. Two threads read whole pages, however large: on Zen 5, where each has a die's way to
// memory for itself, int8 is a sixth faster so, and nowhere was it slower.
constexpr std::size_t kOwnBytes = 16 * 1024;

// Threads that may share a history: all states of a range are merged one after the other.
constexpr std::size_t kMostInHistory = 4;

// States of most items wait to be merged there: they may be this part of the items' bytes, at most.
constexpr std::size_t kMostStates = 16;

AttendTask task_of(const AttendJob& job) noexcept {
  return {&job.layer->store, job.layer->math, job.slices, job.queries, job.q};
}

}  // namespace

float sink_of(const Layer& layer, int query_head) noexcept {
  return layer.sinks.empty() ? kMinusInfinity : layer.sinks[static_cast<std::size_t>(query_head)];
}

StateView states_in(Scratch& scratch, std::int64_t rows, std::int64_t heads, std::int64_t dim) {
  float* floats = scratch.take_floats(static_cast<std::size_t>(rows * heads * (dim + 2)));
  return {floats, floats + rows * heads * dim, floats + rows * heads * (dim + 1), rows, heads, dim};
}

struct alignas(kApart) AttendWork::Walker {
  Walker(const AttendTask& task, std::size_t in, const HeadRange& heads, Shelf<WalkRoom>& rooms)
      : range(in), room(rooms), walk(task, heads, *room) {}

  const std::size_t range;
  std::optional<std::size_t> last;  // portion it took
  Lent<WalkRoom> room;
  BlockWalk walk;
};

AttendWork::AttendWork(const AttendJob& job, std::size_t threads, std::size_t works,
                       Shelf<WalkRoom>& rooms, Shelf<Scratch>& scratch)
    : job_(job),
      task_(task_of(job)),
      group_(job.states.heads / job.layer->store.heads),
      rooms_(rooms),
      scratch_(scratch) {
  const std::size_t block = block_queries(task_);
  for (std::size_t at = 0; at < job.queries.size(); at += block) {
    blocks_.push_back(job.queries.subspan(at, std::min(block, job.queries.size() - at)));
  }
  if (blocks_.size() == 1 && job.items.size() > 1) {
    items_ = job.items;
    item_queries_.assign(job.queries.begin(), job.queries.end());
    for (std::size_t i = 0; i < item_queries_.size(); ++i) {
      item_queries_[i].out_row = static_cast<std::int64_t>(i);
    }
  }
  cut(threads, works);
}

AttendWork::~AttendWork() = default;

bool AttendWork::begin_again(const AttendJob& job) noexcept {
  const LayerStore& store = job.layer->store;
  const LayerStore& before = *task_.store;
  if (store.heads != before.heads || store.value_dim != before.value_dim ||
      store.rows_bytes != before.rows_bytes || store.sealed_bytes != before.sealed_bytes ||
      job.states.heads != job_.states.heads) {
    return false;
  }
  job_ = job;
  task_ = task_of(job);
  came_ = 0;
  for (Share& share : shares_) share.next = share.begin;
  for (Range& range : ranges_) {
    range.merged = 0;
    for (std::unique_ptr<Scratch>& states : range.states) states.reset();  // if that was given up
  }
  return true;
}

void AttendWork::cut(std::size_t threads, std::size_t works) {
  const auto heads = static_cast<std::size_t>(task_.store->heads);
  std::size_t ranges = heads;
  if (blocks_.size() == 1) {
    const std::size_t items = std::max<std::size_t>(items_.size(), 1);
    const std::size_t wanted = (kPiecesPerThread * threads + works - 1) / works;
    const std::size_t shares = std::min(threads, wanted);
    if (cuts_history(shares)) return cut_history(shares, works == 1);
    ranges = std::min(std::max((wanted + items - 1) / items, shares), heads);
  }
  cut_heads(ranges);
}

bool AttendWork::cuts_history(std::size_t shares) const noexcept {
  if (shares < 2 || shares > kMostInHistory || shares > items_.size()) return false;
  const LayerStore& store = *task_.store;
  const auto rows = item_queries_.size() * static_cast<std::size_t>(job_.states.heads);
  const std::size_t state_bytes =
      rows * static_cast<std::size_t>(job_.states.dim + 2) * sizeof(float);
  if (state_bytes > kItemPages * store.sealed_bytes / kMostStates) return false;
  const auto heads = static_cast<std::size_t>(store.heads);
  if (heads < shares || shares == 2) return true;
  const bool even = heads % shares == 0;
  return store.sealed_bytes / shares < (even ? kOwnBytes : 2 * kOwnBytes);
}

// Shares that follow each other along the history, one range of all heads. To the nearest head of
// an item they read as many bytes: the last item may be one page, or many. The open page takes
// longer than its bytes: `last_first` leaves the last share, which has it, to who comes first, and
// begins first, where a thread is likely to come for each. Some may be empty. Requires: no more
// shares than items.
void AttendWork::cut_history(std::size_t shares, bool last_first) {
  const auto heads = static_cast<std::size_t>(task_.store->heads);
  Range& range = ranges_.emplace_back();
  range.heads = {0, task_.store->heads};
  std::size_t all = 0;
  for (const WorkItem& item : items_) all += heads * head_bytes(item);
  std::size_t at = 0;    // heads of all items, in order
  std::size_t read = 0;  // bytes of those before
  for (std::size_t i = 0; i < shares; ++i) {
    const std::size_t first = portions_.size();
    const std::size_t wanted = all * (i + 1) / shares;
    while (at < heads * items_.size()) {
      const WorkItem& item = items_[at / heads];
      const std::size_t bytes = head_bytes(item);
      const std::size_t head = at % heads;
      const std::size_t fit = wanted > read ? (wanted - read + bytes / 2) / bytes : 0;
      const std::size_t count = std::min(heads - head, fit);
      if (count == 0) break;
      portions_.push_back({0, item, {static_cast<int>(head), static_cast<int>(head + count)}});
      at += count;
      read += count * bytes;
    }
    if (last_first) {
      shares_.emplace_front(first, portions_.size());
    } else {
      shares_.emplace_back(first, portions_.size());
    }
  }
  range.states.resize(portions_.size());
}

// What is read of an item for one head, about; above 0.
std::size_t AttendWork::head_bytes(const WorkItem& item) const {
  const LayerStore& store = *task_.store;
  const std::int64_t sealed_below = item_queries_.front().sealed_below;
  std::size_t bytes = 0;  // of all heads, times the tokens of a page
  for (const PageSlice& slice : item) {
    const bool sealed = slice.reads_sealed(sealed_below);
    bytes +=
        static_cast<std::size_t>(slice.count) * (sealed ? store.sealed_bytes : store.rows_bytes);
  }
  return bytes / static_cast<std::size_t>(store.page_tokens * store.heads) + 1;
}

// Ranges of heads, a share each.
void AttendWork::cut_heads(std::size_t ranges) {
  const auto heads = static_cast<std::size_t>(task_.store->heads);
  for (std::size_t i = 0; i < ranges; ++i) {
    Range& range = ranges_.emplace_back();
    range.heads = {static_cast<int>(heads * i / ranges),
                   static_cast<int>(heads * (i + 1) / ranges)};
    range.first = portions_.size();
    range.states.resize(items_.size());
    for (const WorkItem& item : items_) portions_.push_back({i, item, range.heads});
    if (!items_.empty()) shares_.emplace_back(range.first, portions_.size());
  }
}

void AttendWork::run(std::size_t index) {
  if (!items_.empty()) return take_portions();
  // Blocks of queries inside heads, whose pages are then near.
  const HeadRange& range = ranges_[index / blocks_.size()].heads;
  AttendTask task = task_;
  task.queries = blocks_[index % blocks_.size()];
  const Lent<WalkRoom> room(rooms_);
  attend_states(task, range, job_.states, *room);
  finish_block(task.queries, range);
}

std::size_t AttendWork::helpers() const noexcept {
  return portions_.empty() ? 0 : portions_.size() - 1;
}

void AttendWork::help() {
  if (!items_.empty()) take_portions();
}

// Portions that nobody has taken, as long as there are some.
void AttendWork::take_portions() try {
  const std::size_t place = came_++;
  Share* share = place < shares_.size() ? &shares_[place] : fullest();
  std::unique_ptr<Walker> walker;
  std::unique_ptr<Scratch> states;
  while (const std::optional<std::size_t> taken = take(share)) {
    const Portion& portion = portions_[*taken];
    find_walker(portion.range, walker);
    if (states == nullptr) states = scratch_.take();
    WalkStart following;
    // Who took the one before will most likely take the next.
    const bool goes_on = !walker->last.has_value() || *walker->last + 1 == *taken;
    if (goes_on && *taken + 1 < share->end) {
      const Portion& next = portions_[*taken + 1];
      following = {&next.item.front(), next.heads.begin};
    }
    walker->walk.run(portion.item, portion.heads, states_of(portion.heads, *states),
                     portion.heads.begin * group_, following);
    walker->last = *taken;
    states = portion_done(*taken, std::move(states));
  }
  if (states != nullptr) scratch_.leave(std::move(states));
} catch (...) {
  drop_portions();
  throw;
}

// The next portion of the share, or of another, which then is the share; none if there is none.
std::optional<std::size_t> AttendWork::take(Share*& share) noexcept {
  for (; share != nullptr; share = fullest()) {
    const std::size_t portion = share->next++;
    if (portion < share->end) return portion;
  }
  return std::nullopt;
}

// The share with the most left, or null.
AttendWork::Share* AttendWork::fullest() noexcept {
  Share* found = nullptr;
  std::size_t most = 0;
  for (Share& share : shares_) {
    if (const std::size_t left = share.left(); left > most) {
      most = left;
      found = &share;
    }
  }
  return found;
}

// So that nobody works for an answer that will not be given.
void AttendWork::drop_portions() noexcept {
  for (Share& share : shares_) share.next = share.end;
}

// Has `walker` walk in a range.
void AttendWork::find_walker(std::size_t range, std::unique_ptr<Walker>& walker) {
  if (walker != nullptr && walker->range == range) return;
  walker.reset();  // the next gets its room
  AttendTask task = task_;
  task.queries = item_queries_;
  walker = std::make_unique<Walker>(task, range, ranges_[range].heads, rooms_);
}

// [query][query heads that read `heads`]
StateView AttendWork::states_of(const HeadRange& heads, Scratch& scratch) const {
  const auto rows = static_cast<std::int64_t>(item_queries_.size());
  return states_in(scratch, rows, (heads.end - heads.begin) * group_, job_.states.dim);
}

// Merges what can be merged; answers memory that this makes free, or null.
std::unique_ptr<Scratch> AttendWork::portion_done(std::size_t portion,
                                                  std::unique_ptr<Scratch> states) {
  Range& range = ranges_[portions_[portion].range];
  std::unique_ptr<Scratch> free;
  const std::lock_guard lock(range.mutex);
  range.states[portion - range.first] = std::move(states);
  for (; range.merged < range.states.size(); ++range.merged) {
    std::unique_ptr<Scratch>& next = range.states[range.merged];
    if (next == nullptr) return free;
    merge(portions_[range.first + range.merged], *next, range);
    // The first is the thread's own, most often.
    if (free == nullptr) {
      free = std::move(next);
    } else {
      scratch_.leave(std::move(next));
    }
  }
  finish_range(range);
  return free;
}

// Merges the states of a portion into those of its range, which begin with the first item's.
void AttendWork::merge(const Portion& portion, Scratch& of_portion, Range& range) const {
  const StateView from = states_of(portion.heads, of_portion);
  const StateView to = states_of(range.heads, range.sum);
  const bool begins = portion.item.data() == items_.front().data();
  for (std::int64_t row = 0; row < from.tokens; ++row) {
    const std::int64_t at = row * from.heads;
    const std::int64_t to_at = row * to.heads + (portion.heads.begin - range.heads.begin) * group_;
    if (begins) {
      std::copy_n(from.o + at * from.dim, from.heads * from.dim, to.o + to_at * to.dim);
      std::copy_n(from.m + at, from.heads, to.m + to_at);
      std::copy_n(from.l + at, from.heads, to.l + to_at);
      continue;
    }
    state_merge(to.o + to_at * to.dim, to.m + to_at, to.l + to_at, from.o + at * from.dim,
                from.m + at, from.l + at, from.heads, from.dim);
  }
}

// From the states of the job to its output, if there is one.
void AttendWork::finish_block(std::span<const Query> queries, const HeadRange& range) {
  if (job_.out == nullptr) return;
  const StateView& states = job_.states;
  for (const Query& query : queries) {
    for (std::int64_t head = range.begin * group_; head < range.end * group_; ++head) {
      const std::int64_t at = query.out_row * states.heads + head;
      finish(query, head, states.o + at * states.dim, states.m[at], states.l[at]);
    }
  }
}

// From the states of a range to the output, or to the states of the job.
void AttendWork::finish_range(Range& range) {
  const StateView from = states_of(range.heads, range.sum);
  const StateView& to = job_.states;
  std::int64_t of = 0;
  for (const Query& query : job_.queries) {
    const std::int64_t first = range.heads.begin * group_;
    for (std::int64_t head = first; head < first + from.heads; ++head, ++of) {
      const float* o = from.o + of * from.dim;
      if (job_.out != nullptr) {
        finish(query, head, o, from.m[of], from.l[of]);
        continue;
      }
      const std::int64_t at = query.out_row * to.heads + head;
      std::copy_n(o, to.dim, to.o + at * to.dim);
      to.m[at] = from.m[of];
      to.l[at] = from.l[of];
    }
  }
}

void AttendWork::finish(const Query& query, std::int64_t head, const float* o, float m, float l) {
  const OutputView& out = *job_.out;
  state_finish(out.data + query.out_row * out.token_stride + head * out.head_stride, o, m, l,
               sink_of(*job_.layer, static_cast<int>(head)), job_.states.dim);
}

}  // namespace quire
