#include "model/lookup_draft.h"

#include <algorithm>

namespace quire::model {

std::vector<int> LookupDraft::propose(std::span<const int> history, std::int64_t most) const {
  const std::int64_t end = std::ssize(history);
  const auto id = [&](std::int64_t i) { return history[static_cast<std::size_t>(i)]; };
  std::int64_t best = 0;      // tokens that match
  std::int64_t best_end = 0;  // and where they end
  for (std::int64_t at = end - 1; at > 0 && best < longest_match; --at) {
    const std::int64_t limit = std::min<std::int64_t>(longest_match, at);
    std::int64_t match = 0;
    while (match < limit && id(at - 1 - match) == id(end - 1 - match)) ++match;
    if (match <= best) continue;
    best = match;
    best_end = at;
  }
  std::vector<int> proposed;
  if (best == 0 || best < shortest_match) return proposed;
  const std::int64_t count = std::min<std::int64_t>(tokens, most);
  for (std::int64_t at = best_end; std::ssize(proposed) < count; ++at) {
    proposed.push_back(at < end ? id(at) : proposed[static_cast<std::size_t>(at - end)]);
  }
  return proposed;
}

}  // namespace quire::model
