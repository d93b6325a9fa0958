// What each operation of a run table does, one at a time.
#include "page/table.h"

#include <gtest/gtest.h>

#include "page/table_fixture.h"

namespace quire::test {
namespace {

std::vector<std::int64_t> positions(const RunTable& table) {
  std::vector<std::int64_t> all;
  for (const Tok& token : shown(table)) all.push_back(token.position);
  return all;
}

using Positions = std::vector<std::int64_t>;

class RunTableTest : public TableTest {};

TEST_F(RunTableTest, AnEmptyTableShowsNothing) {
  const RunTable table(pool);
  EXPECT_EQ(table.tokens(), 0);
  EXPECT_FALSE(table.has_runs());
  EXPECT_FALSE(table.spot_at(0).has_value());
  EXPECT_FALSE(table.find(0).has_value());
}

TEST_F(RunTableTest, AppendShowsTokensInOrder) {
  RunTable table = make(10);
  EXPECT_EQ(table.tokens(), 10);
  EXPECT_EQ(positions(table), (Positions{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(table.first_position(), 0);
  EXPECT_EQ(table.last_position(), 9);
  EXPECT_EQ(table.last().ordinal, 8);
  EXPECT_EQ(count_runs(table), 3u);
}

TEST_F(RunTableTest, AppendGrowsTheLastRunOfAnOpenPage) {
  RunTable table(pool);
  FreshPage page(pool, kPage, 0);
  pool.add_rows(*page);
  for (int i = 0; i < kPage; ++i) {
    page->positions[i] = 10 + i;
    table.append(*page, i, 1, i);
  }
  EXPECT_EQ(count_runs(table), 1u);
  EXPECT_EQ(positions(table), (Positions{10, 11, 12, 13}));
  EXPECT_EQ(page->refs, 1u);
}

TEST_F(RunTableTest, AppendAfterAShiftBeginsANewRun) {
  RunTable table(pool);
  FreshPage page(pool, kPage, 0);
  pool.add_rows(*page);
  for (int i = 0; i < 3; ++i) page->positions[i] = i;
  table.append(*page, 0, 3, 0);
  table.remove(0, 1, 1);  // 1 and 2 are now at 0 and 1
  page->positions[3] = 2;
  table.append(*page, 3, 1, 3);
  EXPECT_EQ(positions(table), (Positions{0, 1, 2}));
  EXPECT_EQ(count_runs(table), 2u);
}

TEST_F(RunTableTest, SpotsAreFoundByPosition) {
  RunTable table(pool);
  std::int64_t end = 0;
  extend(table, end, 0, 3);
  extend(table, end, 10, 6);  // a gap between 2 and 10
  const auto spot = [&](std::int64_t position) { return table.spot_at(position).value(); };
  EXPECT_EQ(spot(-5).position, 0);
  EXPECT_EQ(spot(2).ordinal, 2);
  EXPECT_EQ(spot(3).position, 10) << "the next one that is there";
  EXPECT_EQ(spot(3).ordinal, 3);
  EXPECT_EQ(spot(15).ordinal, 8);
  EXPECT_FALSE(table.spot_at(16).has_value());
  EXPECT_EQ(table.from_end(0).position, 15);
  EXPECT_EQ(table.from_end(5).position, 10);
  EXPECT_EQ(table.from_end(6).position, 2);
  EXPECT_EQ(table.from_end(8).ordinal, 0);
}

TEST_F(RunTableTest, OfEqualPositionsTheFirstIsFound) {
  RunTable table(pool);
  std::int64_t end = 0;
  for (int i = 0; i < 7; ++i) extend(table, end, 5, 1);
  EXPECT_EQ(table.spot_at(5)->ordinal, 0);
  EXPECT_FALSE(table.spot_at(6).has_value());
}

TEST_F(RunTableTest, CutTailDropsFromAnOrdinalOn) {
  for (int ordinal = 0; ordinal <= 11; ++ordinal) {
    RunTable table = make(10);
    table.cut_tail(ordinal);
    const Tokens tokens = shown(table);
    ASSERT_EQ(static_cast<int>(tokens.size()), ordinal < 10 ? ordinal : 10);
    if (!tokens.empty()) {
      EXPECT_EQ(tokens.back().ordinal, static_cast<int>(tokens.size()) - 1);
    }
    check_counts({&table});
  }
}

TEST_F(RunTableTest, CutFrontHidesBelowAnOrdinal) {
  for (int ordinal = 0; ordinal <= 10; ++ordinal) {
    RunTable table = make(10);
    table.cut_front(ordinal, 8);
    const Tokens tokens = shown(table);
    ASSERT_EQ(static_cast<int>(tokens.size()), 10 - ordinal);
    if (!tokens.empty()) {
      EXPECT_EQ(tokens.front().ordinal, ordinal);
    }
    check_counts({&table});
  }
}

TEST_F(RunTableTest, AHiddenPageStaysWhileItIsNeeded) {
  RunTable table = make(10);  // pages end at 4, 8 and 12
  table.cut_front(10, 4);
  EXPECT_EQ(table.tokens(), 0);
  EXPECT_EQ(count_runs(table, true), 2u) << "pages that end after 4";
  EXPECT_EQ(memory.blocks_used(pool.header_class()), 2u);
  table.let_go(8, 0);
  EXPECT_EQ(count_runs(table, true), 1u) << "the page that ends at 12";
  table.let_go(12, 0);
  EXPECT_FALSE(table.has_runs());
}

TEST_F(RunTableTest, AHiddenOpenPageGoesOnFilling) {
  RunTable table = make(6);
  Page& page = *table.last().page;
  table.cut_front(6, 4);
  ASSERT_EQ(count_runs(table, true), 1u);
  page.positions[2] = 100;
  table.append(page, 2, 1, 6);
  EXPECT_EQ(positions(table), Positions{100});
  EXPECT_EQ(table.last().ordinal, 6);
  EXPECT_EQ(table.spot_at(0)->ordinal, 6);
}

TEST_F(RunTableTest, CutTailShortensAHiddenPage) {
  RunTable table = make(7);
  table.cut_front(7, 4);
  table.cut_tail(5);  // one slot of the hidden page is left
  ASSERT_EQ(count_runs(table, true), 1u);
  EXPECT_EQ(table.last().ordinal, 5);
  EXPECT_EQ(table.last().first, 1);
  table.cut_tail(4);
  EXPECT_FALSE(table.has_runs()) << "nothing of the page is left";
  check_counts({&table});
}

TEST_F(RunTableTest, RemoveMovesLaterTokensDown) {
  RunTable table = make(10);
  table.remove(3, 6, 3);
  EXPECT_EQ(positions(table), (Positions{0, 1, 2, 3, 4, 5, 6}));
  const Tokens tokens = shown(table);
  EXPECT_EQ(tokens[2].key, 3u);
  EXPECT_EQ(tokens[3].key, 7u) << "the token that stood at 6";
  EXPECT_EQ(tokens[3].ordinal, 6) << "ordinals never change";
}

TEST_F(RunTableTest, RemoveCanLeaveAGap) {
  RunTable table = make(10);
  table.remove(3, 6, 0);
  EXPECT_EQ(positions(table), (Positions{0, 1, 2, 6, 7, 8, 9}));
}

TEST_F(RunTableTest, RemoveAcrossPagesGivesWholePagesBack) {
  RunTable table = make(16);
  table.remove(2, 14, 12);
  EXPECT_EQ(positions(table), (Positions{0, 1, 2, 3}));
  EXPECT_EQ(memory.blocks_used(pool.header_class()), 2u);
}

TEST_F(RunTableTest, ShiftsAddUp) {
  RunTable table = make(200);
  table.remove(10, 20, 10);
  table.remove(5, 8, 3);
  table.remove(100, 101, 0);
  Positions expected;
  for (std::int64_t p = 0; p < 187; ++p) {
    if (p != 100) expected.push_back(p);
  }
  EXPECT_EQ(positions(table), expected);
  EXPECT_EQ(shown(table).back().key, 200u);
}

// --- sharing -------------------------------------------------------------------------------------

TEST_F(RunTableTest, ACopySharesEveryChunk) {
  RunTable table = make((kChunkRuns + 8) * kPage);
  ASSERT_EQ(table.entries().size(), 2u);
  const RunTable copy(table);
  EXPECT_EQ(shown(copy), shown(table));
  for (std::size_t e = 0; e < 2; ++e) {
    EXPECT_EQ(copy.entries()[e].chunk, table.entries()[e].chunk);
    EXPECT_EQ(copy.entries()[e].chunk->refs, 2u);
  }
  EXPECT_EQ(table.last().page->refs, 1u) << "a shared chunk counts its pages once";
  check_counts({&table, &copy});
}

TEST_F(RunTableTest, AnEditCopiesOnlyTheChunksItTouches) {
  RunTable table = make((3 * kChunkRuns + 4) * kPage);  // four chunks, the last of 4 runs
  const Tokens before = shown(table);
  RunTable copy(table);
  copy.cut_tail((3 * kChunkRuns + 2) * kPage);
  EXPECT_EQ(copy.entries()[0].chunk, table.entries()[0].chunk);
  EXPECT_EQ(copy.entries()[2].chunk, table.entries()[2].chunk);
  EXPECT_NE(copy.entries()[3].chunk, table.entries()[3].chunk);
  copy.cut_front(1, 0);
  EXPECT_NE(copy.entries()[0].chunk, table.entries()[0].chunk);
  EXPECT_EQ(copy.entries()[1].chunk, table.entries()[1].chunk);
  EXPECT_EQ(shown(table), before);
  check_counts({&table, &copy});
}

TEST_F(RunTableTest, MovingLaterTokensSharesTheirChunks) {
  RunTable table = make((3 * kChunkRuns + 4) * kPage);
  RunTable copy(table);
  copy.remove(1, 2, 1);
  EXPECT_EQ(copy.entries().back().chunk, table.entries().back().chunk);
  EXPECT_EQ(copy.entries().back().shift, -1);
  EXPECT_EQ(table.entries().back().shift, 0);
  EXPECT_EQ(copy.last_position(), table.last_position() - 1);
  check_counts({&table, &copy});
}

TEST_F(RunTableTest, ADestroyedCopyLeavesTheOther) {
  RunTable table = make(50);
  const Tokens before = shown(table);
  {
    RunTable copy(table);
    copy.cut_tail(3);
  }
  EXPECT_EQ(shown(table), before);
  check_counts({&table});
}

TEST_F(RunTableTest, ClearGivesEverythingBack) {
  RunTable table = make(50);
  table.clear();
  EXPECT_EQ(table.tokens(), 0);
  EXPECT_FALSE(table.has_runs());
  EXPECT_EQ(memory.blocks_used(pool.header_class()), 0u);
  EXPECT_EQ(memory.blocks_used(pool.rows_class()), 0u);
}

TEST_F(RunTableTest, MovedAndSwappedTablesKeepWhatTheyShow) {
  RunTable a = make(5);
  RunTable b = make(9);
  const Tokens in_a = shown(a);
  const Tokens in_b = shown(b);
  a.swap(b);
  EXPECT_EQ(shown(a), in_b);
  EXPECT_EQ(shown(b), in_a);
  const RunTable c(std::move(a));
  EXPECT_EQ(shown(c), in_b);
  EXPECT_EQ(a.tokens(), 0);
  check_counts({&a, &b, &c});
}

TEST_F(RunTableTest, APinKeepsWhatATableShowed) {
  RunTable table = make(50);
  Page& last = *table.last().page;
  {
    const RunTable::Pin pin(table);
    table.clear();
    EXPECT_NE(last.rows, nullptr);
    EXPECT_GT(memory.blocks_used(pool.header_class()), 0u);
  }
  EXPECT_EQ(memory.blocks_used(pool.header_class()), 0u);
}

// --- rows and pages ------------------------------------------------------------------------------

TEST_F(RunTableTest, LetGoDropsRowsOfPagesThatEndInARange) {
  RunTable table = make(20);  // pages end at 4, 8, 12, 16, 20
  table.let_go(12, 4);
  Positions with_rows;
  table.for_each([&](const quire::Run& run, std::int64_t) {
    EXPECT_EQ(run.page->rows != nullptr, run.rows);
    if (run.rows) with_rows.push_back(table.page_end(run));
  });
  EXPECT_EQ(with_rows, (Positions{4, 16, 20})) << "the exact head keeps its rows";
}

TEST_F(RunTableTest, RowsThatAnotherTableNeedsStay) {
  RunTable table = make(8);
  RunTable copy(table);
  copy.own_tail(0);
  copy.let_go(8, 0);
  EXPECT_FALSE(copy.last().rows);
  EXPECT_TRUE(table.last().rows);
  EXPECT_NE(table.last().page->rows, nullptr);
  table.let_go(8, 0);
  EXPECT_EQ(table.last().page->rows, nullptr);
  check_counts({&table, &copy});
}

TEST_F(RunTableTest, OwnTailMakesTheEndWritable) {
  std::int64_t end = (3 * kChunkRuns + 4) * kPage;
  RunTable table = make(static_cast<int>(end), false);
  extend(table, end, end, 2 * kPage);  // rows in the last two pages only
  RunTable copy(table);
  copy.own_tail(0);
  EXPECT_EQ(copy.entries().back().chunk->refs, 1u);
  EXPECT_EQ(copy.entries()[0].chunk->refs, 2u);
  EXPECT_EQ(copy.entries()[1].chunk->refs, 2u);
  check_counts({&table, &copy});
}

TEST_F(RunTableTest, RemapTailShowsACopyOfTheOpenPage) {
  RunTable table = make(6);
  RunTable copy(table);
  copy.own_tail(0);
  Page& from = *table.last().page;
  FreshPage to(pool, kPage, from.first_ordinal);
  pool.add_rows(*to);
  std::copy_n(from.positions, kPage, to->positions);
  std::copy_n(from.keys, kPage, to->keys);
  copy.remap_tail(from, *to);
  EXPECT_EQ(copy.last().page, &*to);
  EXPECT_EQ(table.last().page, &from);
  EXPECT_EQ(shown(copy), shown(table));
  check_counts({&table, &copy});
}

TEST_F(RunTableTest, ReplacePageChangesAllRunsOfThatPageAndNoOther) {
  RunTable table = make(12);
  table.remove(5, 6, 0);  // the second page in two runs
  RunTable copy(table);
  const Tokens before = shown(table);
  const RunTable::Place place = copy.find(6).value();
  const Page& from = *copy.entries()[place.entry].chunk->runs[place.run].page;
  FreshPage to(pool, kPage, from.first_ordinal);
  pool.add_rows(*to);
  for (int i = 0; i < kPage; ++i) {
    to->positions[i] = from.positions[i];
    to->keys[i] = 100 + from.keys[i];
  }
  copy.replace_page(place, from, *to);
  EXPECT_EQ(shown(table), before);
  for (const Tok& token : shown(copy)) {
    const bool in_page = token.ordinal / kPage == 1;
    EXPECT_EQ(token.key, static_cast<std::uint64_t>(token.ordinal) + (in_page ? 101 : 1));
  }
  check_counts({&table, &copy});
}

TEST_F(RunTableTest, OwnFrontShowsTheSameAndMakesCutFrontTakeNoMemory) {
  RunTable table = make(2 * kChunkRuns * kPage);
  RunTable copy(table);
  for (const std::int64_t ordinal : {3, 130, 200, 279}) {
    const Tokens before = shown(copy);
    copy.own_front(ordinal, 0);
    EXPECT_EQ(shown(copy), before);
    memory.shrink();
    source.allowed = 0;
    EXPECT_NO_THROW(copy.cut_front(ordinal, 0)) << ordinal;
    source.allowed = INT64_MAX;
    EXPECT_EQ(copy.tokens(), 2 * kChunkRuns * kPage - ordinal);
    check_counts({&table, &copy});
  }
}

}  // namespace
}  // namespace quire::test
