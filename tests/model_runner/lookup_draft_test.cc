#include "model/lookup_draft.h"

#include <gtest/gtest.h>

namespace quire::model::test {
namespace {

using Ids = std::vector<int>;

Ids proposed(const Ids& history, const LookupDraft& draft = {.tokens = 3, .shortest_match = 1},
             std::int64_t most = 99) {
  return draft.propose(history, most);
}

TEST(LookupDraft, ProposesWhatFollowedTheSameTokens) {
  EXPECT_EQ(proposed({1, 2, 3, 4, 5, 6, 9, 1, 2, 3}), (Ids{4, 5, 6}));
  EXPECT_EQ(proposed({1, 2, 3, 4, 5}), Ids());
  EXPECT_EQ(proposed({7}), Ids());
  EXPECT_EQ(proposed({}), Ids());
}

TEST(LookupDraft, PrefersTheLongestMatchThenTheLatest) {
  // 2 3 was followed by 4 after 1, and by 5 after 8; 3 alone was followed by 6 last.
  const Ids text = {1, 2, 3, 4, 0, 8, 2, 3, 5, 0, 9, 3, 6, 0};
  const auto after = [&](const Ids& end) {
    Ids history = text;
    history.insert(history.end(), end.begin(), end.end());
    return proposed(history, {.tokens = 1, .shortest_match = 1});
  };
  EXPECT_EQ(after({1, 2, 3}), Ids{4});
  EXPECT_EQ(after({8, 2, 3}), Ids{5});
  EXPECT_EQ(after({7, 2, 3}), Ids{5});
  EXPECT_EQ(after({7, 7, 3}), Ids{6});
}

TEST(LookupDraft, ComparesNoMoreThanItsLongestMatch) {
  // Three tokens match at the front, two further on; later is better once two are enough.
  const Ids history = {1, 2, 3, 4, 2, 3, 5, 1, 2, 3};
  EXPECT_EQ(proposed(history, {.tokens = 1, .longest_match = 3}), Ids{4});
  EXPECT_EQ(proposed(history, {.tokens = 1, .longest_match = 2}), Ids{5});
}

TEST(LookupDraft, AShortMatchMayBeNone) {
  const Ids history = {1, 2, 3, 1};
  EXPECT_EQ(proposed(history, {.tokens = 1, .shortest_match = 1}), Ids{2});
  EXPECT_EQ(proposed(history, {.tokens = 1, .shortest_match = 2}), Ids());
  EXPECT_EQ(proposed({1, 2, 3, 1, 2}, {.tokens = 1, .shortest_match = 2}), Ids{3});
}

TEST(LookupDraft, AMatchGoesOnIntoTheProposal) {
  EXPECT_EQ(proposed({5, 6, 5}, {.tokens = 5, .shortest_match = 1}), (Ids{6, 5, 6, 5, 6}));
  EXPECT_EQ(proposed({4, 4}, {.tokens = 3, .shortest_match = 1}), (Ids{4, 4, 4}));
}

TEST(LookupDraft, ProposesNoMoreThanIsWanted) {
  const Ids history = {1, 2, 3, 4, 5, 9, 1, 2};
  EXPECT_EQ(proposed(history, {.tokens = 3}, 2), (Ids{3, 4}));
  EXPECT_EQ(proposed(history, {.tokens = 2}, 3), (Ids{3, 4}));
  EXPECT_EQ(proposed(history, {.tokens = 3}, 0), Ids());
  EXPECT_EQ(proposed(history, {.tokens = 3}, -1), Ids());
}

}  // namespace
}  // namespace quire::model::test
