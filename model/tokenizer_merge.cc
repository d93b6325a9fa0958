#include "model/tokenizer_merge.h"

#include <algorithm>

namespace quire::model {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);
constexpr int kGone = -1;  // the id of a place that was joined to the one before it

// Neighbours that could be joined when they were seen. Whether they still are the same two ids is
// looked at when their turn comes.
struct Candidate {
  int rank;
  std::size_t left, right;
  int left_id, right_id, joined;
};

// A heap has its largest in front: the candidate whose turn it is must be the largest.
bool waits_for(const Candidate& a, const Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
}

}  // namespace

bool Merger::add(int left, int right, int joined) {
  return joins_.emplace(key_of(left, right), Join{static_cast<int>(joins_.size()), joined}).second;
}

void Merger::merge(std::vector<int>& ids, std::vector<int>& out) const {
  const std::size_t size = ids.size();
  std::vector<std::size_t> before(size), after(size);
  std::vector<Candidate> heap;
  const auto consider = [&](std::size_t left, std::size_t right) {
    const auto found = joins_.find(key_of(ids[left], ids[right]));
    if (found == joins_.end()) return;
    heap.push_back({found->second.rank, left, right, ids[left], ids[right], found->second.joined});
    std::push_heap(heap.begin(), heap.end(), waits_for);
  };
  for (std::size_t i = 0; i < size; ++i) {
    before[i] = i == 0 ? kNone : i - 1;
    after[i] = i + 1 == size ? kNone : i + 1;
    if (i > 0) consider(i - 1, i);
  }
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), waits_for);
    const Candidate next = heap.back();
    heap.pop_back();
    const std::size_t left = next.left, right = next.right;
    if (ids[left] != next.left_id || ids[right] != next.right_id || after[left] != right) continue;
    ids[left] = next.joined;
    ids[right] = kGone;
    after[left] = after[right];
    if (after[left] != kNone) before[after[left]] = left;
    if (before[left] != kNone) consider(before[left], left);
    if (after[left] != kNone) consider(left, after[left]);
  }
  for (const int id : ids) {
    if (id != kGone) out.push_back(id);
  }
}

}  // namespace quire::model
