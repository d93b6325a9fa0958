// Random edits of several tables that share chunks, beside plain lists of tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>

#include "base/seed.h"
#include "page/table_fixture.h"

namespace quire::test {
namespace {

// A table and the tokens it must show.
struct Both {
  std::unique_ptr<RunTable> table;
  Tokens tokens;
  std::int64_t end = 0;   // ordinal of the next token
  std::int64_t next = 0;  // its position, at least
};

class RandomTableTest : public TableTest {
 protected:
  std::mt19937_64 random{announce_seed()};
  std::vector<Both> all;

  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
  }

  void append(Both& both) {
    const int count = 1 + static_cast<int>(below(3 * kPage));
    const std::int64_t first = both.next + (below(4) == 0 ? below(20) : 0);
    const std::uint64_t key = next_key;
    std::int64_t end = both.end;
    extend(*both.table, end, first, count, below(2) == 0);
    for (int i = 0; i < count; ++i) {
      both.tokens.push_back({both.end + i, first + i, key + static_cast<std::uint64_t>(i)});
    }
    both.end = end;
    both.next = first + count;
  }

  void cut_tail(Both& both) {
    const std::int64_t cut = both.end - below(std::min<std::int64_t>(both.end, 40) + 1);
    both.table->cut_tail(cut);
    std::erase_if(both.tokens, [&](const Tok& token) { return token.ordinal >= cut; });
    both.end = cut;
    both.next = both.tokens.empty() ? both.next : both.tokens.back().position + 1;
  }

  void cut_front(Both& both) {
    const std::int64_t cut = both.end - below(both.end + 1);
    both.table->cut_front(cut, both.end / kPage * kPage - below(3) * kPage);
    std::erase_if(both.tokens, [&](const Tok& token) { return token.ordinal < cut; });
  }

  void remove(Both& both) {
    const std::int64_t begin = below(both.next + 3);
    const std::int64_t end = begin + below(30);
    const std::int64_t move = below(3) == 0 ? 0 : end - begin;
    both.table->remove(begin, end, move);
    std::erase_if(both.tokens, [&](const Tok& token) {
      return token.position >= begin && token.position < end;
    });
    for (Tok& token : both.tokens) {
      if (token.position >= end) token.position -= move;
    }
    both.next = both.tokens.empty() ? both.next : both.tokens.back().position + 1;
  }

  // Edits work on a copy that is swapped in, as in a cache.
  void edit() {
    Both& both = all[random() % all.size()];
    RunTable before(*both.table);
    switch (below(7)) {
      case 0:
      case 1:
      case 2:
        append(both);
        break;
      case 3:
        cut_tail(both);
        break;
      case 4:
        if (below(4) == 0) cut_front(both);
        break;
      case 5:
        remove(both);
        break;
      default:
        both.table->own_tail(0);
        both.table->let_go(both.end / kPage * kPage, 0);
        break;
    }
  }

  void fork_or_close() {
    if (all.size() > 4 || (all.size() > 1 && below(2) == 0)) {
      all.erase(all.begin() + below(static_cast<std::int64_t>(all.size())));
      return;
    }
    const Both& from = all[random() % all.size()];
    all.push_back({std::make_unique<RunTable>(*from.table), from.tokens, from.end, from.next});
  }

  void check(const Both& both) {
    const RunTable& table = *both.table;
    const Tokens& tokens = both.tokens;
    ASSERT_EQ(shown(table), tokens);
    ASSERT_EQ(table.tokens(), static_cast<std::int64_t>(tokens.size()));
    if (tokens.empty()) return;
    ASSERT_EQ(table.first_position(), tokens.front().position);
    ASSERT_EQ(table.last_position(), tokens.back().position);
    const auto n = below(table.tokens());
    ASSERT_EQ(table.from_end(n).ordinal,
              tokens[tokens.size() - 1 - static_cast<std::size_t>(n)].ordinal);
    const std::int64_t wanted = below(tokens.back().position + 3);
    const auto spot = table.spot_at(wanted);
    const auto found = std::find_if(tokens.begin(), tokens.end(),
                                    [&](const Tok& token) { return token.position >= wanted; });
    ASSERT_EQ(spot.has_value(), found != tokens.end());
    ASSERT_EQ(table.find(wanted).has_value(), spot.has_value());
    if (!spot) return;
    ASSERT_EQ(spot->ordinal, found->ordinal);
    ASSERT_EQ(spot->position, found->position);
    const RunTable::Place place = table.find(wanted).value();
    const quire::Run& run = table.entries()[place.entry].chunk->runs[place.run];
    ASSERT_TRUE(run.ordinal <= spot->ordinal && spot->ordinal < run.end_ordinal());
  }
};

TEST_F(RandomTableTest, EveryOperationShowsWhatAListWouldShow) {
  for (int round = 0; round < 40; ++round) {
    all.clear();
    all.push_back({std::make_unique<RunTable>(pool), {}, 0, 0});
    for (int i = 0; i < 150; ++i) {
      if (below(12) == 0) {
        fork_or_close();
      } else {
        edit();
      }
      std::vector<const RunTable*> tables;
      for (const Both& both : all) {
        check(both);
        tables.push_back(both.table.get());
      }
      check_counts(tables);
      if (HasFatalFailure()) return;
    }
  }
  all.clear();
  EXPECT_EQ(memory.blocks_used(pool.header_class()), 0u);
  EXPECT_EQ(memory.bytes_used_tables(), 0u);
}

// An edit is made on a copy; wherever memory ends, the table itself is untouched and nothing leaks.
TEST_F(RandomTableTest, AnEditThatFailsLeavesTheTableItWasCopiedFrom) {
  Both both{std::make_unique<RunTable>(pool), {}, 0, 0};
  for (int i = 0; i < 30; ++i) append(both);
  both.table->remove(7, 9, 2);
  const Tokens before = shown(*both.table);
  const std::vector<std::function<void(RunTable&)>> edits = {
      [&](RunTable& t) { t.cut_tail(both.end - 5); },
      [&](RunTable& t) { t.cut_front(both.end / 2, 0); },
      [&](RunTable& t) { t.remove(10, 30, 20); },
      [&](RunTable& t) { t.own_tail(0); },
      [&](RunTable& t) { t.own_front(both.end / 2, 0); },
      [&](RunTable& t) {
        std::int64_t end = both.end;
        extend(t, end, both.next, 50);
      },
  };
  for (const auto& edit : edits) {
    bool done = false;
    for (std::int64_t allowed = 0; !done; ++allowed) {
      memory.shrink();
      source.allowed = allowed;
      try {
        RunTable copy(*both.table);
        edit(copy);
        done = true;
      } catch (const MemoryError&) {
      }
      source.allowed = INT64_MAX;
      ASSERT_EQ(shown(*both.table), before);
      check_counts({both.table.get()});
    }
  }
}

}  // namespace
}  // namespace quire::test
