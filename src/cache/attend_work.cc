#include "cache/attend_work.h"

#include <algorithm>
#include <limits>

namespace quire {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Pieces of work for each thread that keep all of them busy to the end.
constexpr std::size_t kPiecesPerThread = 4;

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
  std::optional<std::size_t> last;  // item it took
  Lent<WalkRoom> room;
  BlockWalk walk;
};

AttendWork::AttendWork(const AttendJob& job, std::size_t threads, std::size_t works,
                       Shelf<WalkRoom>& rooms, Shelf<Scratch>& scratch)
    : job_(job),
      task_{&job.layer.store, job.layer.math, job.slices, job.queries, job.q},
      group_(job.states.heads / job.layer.store.heads),
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
  cut_heads(threads, works);
  progress_ = std::vector<Progress>(items_.empty() ? 0 : ranges_.size());
  for (Progress& progress : progress_) progress.states.resize(items_.size());
}

AttendWork::~AttendWork() = default;

void AttendWork::cut_heads(std::size_t threads, std::size_t works) {
  const auto heads = static_cast<std::size_t>(task_.store->heads);
  std::size_t ranges = heads;
  if (blocks_.size() == 1) {
    const std::size_t items = std::max<std::size_t>(items_.size(), 1);
    const std::size_t wanted = (kPiecesPerThread * threads + works - 1) / works;
    ranges = std::max((wanted + items - 1) / items, std::min(threads, wanted));
    ranges = std::min(ranges, heads);
  }
  for (std::size_t i = 0; i < ranges; ++i) {
    ranges_.push_back(
        {static_cast<int>(heads * i / ranges), static_cast<int>(heads * (i + 1) / ranges)});
  }
}

void AttendWork::run(std::size_t index) {
  if (!items_.empty()) return take_items();
  // Blocks of queries inside heads, whose pages are then near.
  const HeadRange& range = ranges_[index / blocks_.size()];
  AttendTask task = task_;
  task.queries = blocks_[index % blocks_.size()];
  const Lent<WalkRoom> room(rooms_);
  attend_states(task, range, job_.states, *room);
  finish_block(task.queries, range);
}

std::size_t AttendWork::helpers() const noexcept {
  return items_.empty() ? 0 : ranges_.size() * items_.size() - 1;
}

void AttendWork::help() {
  if (!items_.empty()) take_items();
}

// Items that nobody has taken, as long as there are some.
void AttendWork::take_items() try {
  std::unique_ptr<Walker> walker;
  std::unique_ptr<Scratch> states;
  while (const std::optional<Taken> taken = take(walker.get())) {
    const auto [range, item] = *taken;
    find_walker(range, walker);
    if (states == nullptr) states = scratch_.take();
    // Who took the one before will most likely take the next.
    const bool goes_on = !walker->last.has_value() || *walker->last + 1 == item;
    walker->walk.run(items_[item], states_of(range, *states), ranges_[range].begin * group_,
                     goes_on && item + 1 < items_.size() ? &items_[item + 1].front() : nullptr);
    walker->last = item;
    states = item_done(*taken, std::move(states));
  }
  if (states != nullptr) scratch_.leave(std::move(states));
} catch (...) {
  drop_items();
  throw;
}

// The next of the walker's range, or of the range with the fewest taken, so that threads have one
// each; none if there is none.
std::optional<AttendWork::Taken> AttendWork::take(const Walker* walker) noexcept {
  for (;;) {
    const Taken next =
        walker != nullptr ? Taken{walker->range, progress_[walker->range].taken} : least_taken();
    if (next.item >= items_.size()) {
      if (walker == nullptr) return std::nullopt;
      walker = nullptr;
      continue;
    }
    // Not from what is there by now: someone else may have begun with the range.
    std::size_t seen = next.item;
    if (progress_[next.range].taken.compare_exchange_strong(seen, seen + 1)) return next;
  }
}

AttendWork::Taken AttendWork::least_taken() const noexcept {
  Taken least{0, progress_[0].taken};
  for (std::size_t range = 1; range < ranges_.size(); ++range) {
    const std::size_t taken = progress_[range].taken;
    if (taken < least.item) least = {range, taken};
  }
  return least;
}

// So that nobody works for an answer that will not be given.
void AttendWork::drop_items() noexcept {
  for (Progress& progress : progress_) progress.taken = items_.size();
}

// Has `walker` walk in a range.
void AttendWork::find_walker(std::size_t range, std::unique_ptr<Walker>& walker) {
  if (walker != nullptr && walker->range == range) return;
  walker.reset();  // the next gets its room
  AttendTask task = task_;
  task.queries = item_queries_;
  walker = std::make_unique<Walker>(task, range, ranges_[range], rooms_);
}

// [query][query heads of the range]
StateView AttendWork::states_of(std::size_t range, Scratch& scratch) const {
  const auto rows = static_cast<std::int64_t>(item_queries_.size());
  const HeadRange& heads = ranges_[range];
  return states_in(scratch, rows, (heads.end - heads.begin) * group_, job_.states.dim);
}

// Merges what can be merged; answers memory that this makes free, or null.
std::unique_ptr<Scratch> AttendWork::item_done(const Taken& taken,
                                               std::unique_ptr<Scratch> states) {
  Progress& progress = progress_[taken.range];
  std::unique_ptr<Scratch> free;
  const std::lock_guard lock(progress.mutex);
  progress.states[taken.item] = std::move(states);
  for (; progress.merged < items_.size(); ++progress.merged) {
    std::unique_ptr<Scratch>& next = progress.states[progress.merged];
    if (next == nullptr) return free;
    if (progress.sum == nullptr) {
      progress.sum = std::move(next);
      continue;
    }
    const StateView to = states_of(taken.range, *progress.sum);
    const StateView from = states_of(taken.range, *next);
    state_merge(to.o, to.m, to.l, from.o, from.m, from.l, to.tokens * to.heads, to.dim);
    // The first is the thread's own.
    if (free == nullptr) {
      free = std::move(next);
    } else {
      scratch_.leave(std::move(next));
    }
  }
  finish_items(taken.range, states_of(taken.range, *progress.sum));
  scratch_.leave(std::move(progress.sum));
  return free;
}

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
void AttendWork::finish_items(std::size_t range, const StateView& from) {
  const StateView& to = job_.states;
  std::int64_t of = 0;
  for (const Query& query : job_.queries) {
    const std::int64_t first = ranges_[range].begin * group_;
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
               sink_of(job_.layer, static_cast<int>(head)), job_.states.dim);
}

}  // namespace quire
