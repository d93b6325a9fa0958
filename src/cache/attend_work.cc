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

struct AttendWork::Walker {
  Walker(const AttendTask& task, std::size_t in, const HeadRange& heads, Shelf<WalkRoom>& rooms)
      : range(in), room(rooms), walk(task, heads, *room) {}

  const std::size_t range;
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
  if (items_.empty()) return;
  progress_ = std::vector<Progress>(ranges_.size());
  for (Progress& progress : progress_) progress.states.resize(items_.size());
  helpers_ = std::min(threads, ranges_.size() * items_.size()) - 1;
}

AttendWork::~AttendWork() = default;

void AttendWork::cut_heads(std::size_t threads, std::size_t works) {
  const auto heads = static_cast<std::size_t>(task_.store->heads);
  std::size_t ranges = heads;
  if (blocks_.size() == 1) {
    const std::size_t wanted = (kPiecesPerThread * threads + works - 1) / works;
    ranges = std::max((wanted + pieces() - 1) / pieces(), std::min(threads, wanted));
    ranges = std::min(ranges, heads);
  }
  for (std::size_t i = 0; i < ranges; ++i) {
    ranges_.push_back(
        {static_cast<int>(heads * i / ranges), static_cast<int>(heads * (i + 1) / ranges)});
  }
  ranges_for_all_ = ranges * works >= threads;
}

void AttendWork::run(std::size_t index) {
  if (!items_.empty()) return run_items();
  // Blocks of queries inside heads, whose pages are then near.
  const HeadRange& range = ranges_[index / pieces()];
  AttendTask task = task_;
  task.queries = blocks_[index % pieces()];
  const Lent<WalkRoom> room(rooms_);
  attend_states(task, range, job_.states, *room);
  finish(task.queries, range);
}

// Items that nobody has taken, as long as there are some.
void AttendWork::run_items() {
  std::unique_ptr<Walker> walker;
  std::unique_ptr<Scratch> states;
  while (const std::optional<Taken> taken = take(walker.get())) {
    const auto [range, item] = *taken;
    find_walker(range, walker);
    if (states == nullptr) states = scratch_.take();
    const bool follows = ranges_for_all_ && item + 1 < items_.size();
    walker->walk.run(items_[item], item_states(ranges_[range], *states),
                     ranges_[range].begin * group_, follows ? &items_[item + 1].front() : nullptr);
    states = item_done(range, item, std::move(states));
  }
  if (states != nullptr) scratch_.leave(std::move(states));
}

// The next of the walker's range, or of the range with the fewest taken, so that threads have one
// each; none if there is none.
std::optional<AttendWork::Taken> AttendWork::take(const Walker* walker) noexcept {
  std::size_t range = walker != nullptr ? walker->range : least_taken();
  for (;;) {
    std::size_t item = progress_[range].taken;
    if (item < items_.size()) {
      if (progress_[range].taken.compare_exchange_strong(item, item + 1)) return {{range, item}};
      if (walker != nullptr) continue;
    }
    range = least_taken();
    if (progress_[range].taken >= items_.size()) return std::nullopt;
  }
}

std::size_t AttendWork::least_taken() const noexcept {
  std::size_t least = 0;
  for (std::size_t range = 1; range < ranges_.size(); ++range) {
    if (progress_[range].taken < progress_[least].taken) least = range;
  }
  return least;
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
StateView AttendWork::item_states(const HeadRange& range, Scratch& scratch) const {
  const auto rows = static_cast<std::int64_t>(item_queries_.size());
  return states_in(scratch, rows, (range.end - range.begin) * group_, job_.states.dim);
}

// Merges what can be merged; answers memory that this makes free, or null.
std::unique_ptr<Scratch> AttendWork::item_done(std::size_t range, std::size_t item,
                                               std::unique_ptr<Scratch> states) {
  Progress& progress = progress_[range];
  std::unique_ptr<Scratch> free;
  const std::lock_guard lock(progress.mutex);
  progress.states[item] = std::move(states);
  for (; progress.merged < items_.size(); ++progress.merged) {
    std::unique_ptr<Scratch>& next = progress.states[progress.merged];
    if (next == nullptr) return free;
    if (progress.merged == 0) clear(ranges_[range]);
    merge(ranges_[range], item_states(ranges_[range], *next));
    if (free != nullptr) scratch_.leave(std::move(free));
    free = std::move(next);
  }
  finish(job_.queries, ranges_[range]);
  return free;
}

// Into the states of the job, for the query heads of a range.
void AttendWork::merge(const HeadRange& range, const StateView& from) {
  const StateView& to = job_.states;
  std::int64_t of = 0;
  for (const Query& query : job_.queries) {
    const std::int64_t at = query.out_row * to.heads + range.begin * group_;
    state_merge(to.o + at * to.dim, to.m + at, to.l + at, from.o + of * to.dim, from.m + of,
                from.l + of, from.heads, to.dim);
    of += from.heads;
  }
}

// So that what is merged first is as it was.
void AttendWork::clear(const HeadRange& range) {
  const StateView& states = job_.states;
  for (const Query& query : job_.queries) {
    const std::int64_t at = query.out_row * states.heads + range.begin * group_;
    state_clear(states.o + at * states.dim, states.m + at, states.l + at,
                (range.end - range.begin) * group_, states.dim);
  }
}

// From the states of the job to its output.
void AttendWork::finish(std::span<const Query> queries, const HeadRange& range) {
  if (job_.out == nullptr) return;
  const OutputView& out = *job_.out;
  const StateView& states = job_.states;
  for (const Query& query : queries) {
    for (std::int64_t head = range.begin * group_; head < range.end * group_; ++head) {
      const std::int64_t at = query.out_row * states.heads + head;
      state_finish(out.data + query.out_row * out.token_stride + head * out.head_stride,
                   states.o + at * states.dim, states.m[at], states.l[at],
                   sink_of(job_.layer, static_cast<int>(head)), states.dim);
    }
  }
}

}  // namespace quire
