// A lookup draft guesses what comes next from what came before: prompt-lookup decoding.
//
// Text repeats itself: names, quotations, code, a document that is asked about. The draft looks for
// the last few tokens further back and proposes what followed them there. A longer match is better,
// of equal ones the latest. Guesses cost no model; a wrong one costs its share of the step that
// verified it, nothing else: only tokens that the model itself chooses are ever kept.
//
// A match may reach into the proposal itself, so that "a b a b a" is continued by as many tokens as
// are wanted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace quire::model {

struct LookupDraft {
  int tokens = 8;          // proposed at once, at most
  int longest_match = 3;   // of the history's end; more are not compared
  int shortest_match = 2;  // fewer are no reason to propose anything: one is right too seldom

  // What may come after `history`: at most `tokens` and at most `most` ids, or none.
  // Cost: linear in the history.
  std::vector<int> propose(std::span<const int> history, std::int64_t most) const;
};

}  // namespace quire::model
