// Sequences: opening and closing, what they say of themselves, forks and cuts.
#include <gtest/gtest.h>

#include "cache/fixture.h"

namespace quire::test {
namespace {

Cache make_cache(const CacheSpec& spec = small_spec(2)) { return Cache::create(spec).value(); }

// --- open and close ------------------------------------------------------------------------------

TEST(Sequence, ANewOneIsEmpty) {
  Cache cache = make_cache();
  const Sequence sequence = cache.open().value();
  EXPECT_EQ(sequence.length().value(), 0);
  EXPECT_EQ(sequence.length(1).value(), 0);
  EXPECT_TRUE(sequence.is_empty().value());
  EXPECT_EQ(sequence.next_position().value(), 0);
  EXPECT_TRUE(sequence.is_exact().value());
  EXPECT_FALSE(sequence.has_cross().value());
  EXPECT_TRUE(sequence.tokens().value().empty());
  EXPECT_EQ(sequence.can_resume(0).value(), Resume::no) << "nothing is held";
  EXPECT_TRUE(fails(sequence.first_position(), ErrorCode::out_of_range, {"empty"}));
  EXPECT_TRUE(fails(sequence.first_position(1), ErrorCode::out_of_range, {"layer 1"}));
}

TEST(Sequence, IdsAreNeverReused) {
  Cache cache = make_cache();
  const Sequence first = cache.open().value();
  first.close().value();
  const Sequence second = cache.open().value();
  EXPECT_NE(first.id(), second.id());
  EXPECT_EQ(cache.sequences(), std::vector<SequenceId>{second.id()});
}

TEST(Sequence, SequencesAreListedInTheOrderTheyWereOpened) {
  Cache cache = make_cache();
  std::vector<SequenceId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(cache.open().value().id());
  EXPECT_EQ(cache.sequences(), ids);
  EXPECT_EQ(cache.find(ids[3]).value().id(), ids[3]);
}

TEST(Sequence, CloseGivesItsPagesBack) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 10);
  EXPECT_EQ(cache.stats().pages_used, 3);
  sequence.close().value();
  EXPECT_EQ(cache.stats().pages_used, 0);
  EXPECT_EQ(cache.stats().tokens, 0);
}

TEST(Sequence, AClosedOneIsUnknownToEveryCall) {
  Cache cache = make_cache();
  const Sequence s = filled(cache, 3);
  const Rows row = known_rows(cache.spec().layers[0], 0, Side::key, {0});
  s.close().value();
  const std::string id = std::to_string(static_cast<std::uint64_t>(s.id()));
  const auto unknown = [&](const auto& result) {
    return fails(result, ErrorCode::unknown_sequence, {id});
  };
  EXPECT_TRUE(unknown(s.length()));
  EXPECT_TRUE(unknown(s.length(0)));
  EXPECT_TRUE(unknown(s.is_empty()));
  EXPECT_TRUE(unknown(s.first_position()));
  EXPECT_TRUE(unknown(s.next_position()));
  EXPECT_TRUE(unknown(s.remaining()));
  EXPECT_TRUE(unknown(s.is_full()));
  EXPECT_TRUE(unknown(s.has_cross()));
  EXPECT_TRUE(unknown(s.is_exact()));
  EXPECT_TRUE(unknown(s.can_resume(0)));
  EXPECT_TRUE(unknown(s.tokens()));
  EXPECT_TRUE(unknown(s.fork()));
  EXPECT_TRUE(unknown(s.fork(1)));
  EXPECT_TRUE(unknown(s.truncate(0)));
  EXPECT_TRUE(unknown(s.keep_last(1)));
  EXPECT_TRUE(unknown(s.shift_left(1)));
  EXPECT_TRUE(unknown(s.remove(0, 1)));
  EXPECT_TRUE(unknown(s.overwrite(0, 0, row.view(), row.view())));
  EXPECT_TRUE(unknown(s.close()));
  EXPECT_TRUE(unknown(s.read(0, Side::key, {}, nullptr, 0)));
  EXPECT_TRUE(unknown(s.for_each(0, Side::key, [](std::int64_t, const float*) {})));
  EXPECT_TRUE(unknown(s.gather_size(0, {})));
  EXPECT_TRUE(unknown(s.runs(0)));
  EXPECT_TRUE(unknown(cache.find(s.id())));
  EXPECT_TRUE(unknown(cache.begin(batch_of(s, 3, 1))));
}

TEST(Sequence, AnEmptyHandleIsAnError) {
  const Sequence none;
  EXPECT_TRUE(fails(none.length(), ErrorCode::unknown_sequence));
  EXPECT_TRUE(fails(none.fork(), ErrorCode::unknown_sequence));
  EXPECT_TRUE(fails(none.truncate(0), ErrorCode::unknown_sequence));
  EXPECT_TRUE(fails(none.close(), ErrorCode::unknown_sequence));
  EXPECT_TRUE(fails(none.runs(0), ErrorCode::unknown_sequence));
  EXPECT_TRUE(fails(none.remaining(), ErrorCode::unknown_sequence));
  EXPECT_TRUE(fails(none.is_full(), ErrorCode::unknown_sequence));
}

// --- what it says --------------------------------------------------------------------------------

TEST(Sequence, KnowsItsLengthAndPositions) {
  Cache cache = make_cache();
  const Sequence sequence = cache.open().value();
  append(cache, sequence, 10, 6);
  append(cache, sequence, 100, 2);  // a gap is allowed
  EXPECT_EQ(sequence.length().value(), 8);
  EXPECT_FALSE(sequence.is_empty().value());
  EXPECT_EQ(sequence.first_position().value(), 10);
  EXPECT_EQ(sequence.first_position(1).value(), 10);
  EXPECT_EQ(sequence.next_position().value(), 102);
  EXPECT_EQ(positions_of(sequence), (std::vector<std::int64_t>{10, 11, 12, 13, 14, 15, 100, 101}));
  EXPECT_TRUE(holds(cache, sequence, 0, positions_of(sequence)));
  EXPECT_TRUE(holds(cache, sequence, 1, positions_of(sequence)));
}

TEST(Sequence, TokensCarryTheirKeys) {
  Cache cache = make_cache();
  const Sequence sequence = cache.open().value();
  stepped(cache, Batch().add(sequence.id(), 5, {11, 22, 0, 44, 55})).commit().value();
  const std::vector<Token> tokens = sequence.tokens().value();
  ASSERT_EQ(tokens.size(), 5u);
  EXPECT_EQ(tokens[1].key, 22u);
  EXPECT_EQ(tokens[2].key, 0u);
  EXPECT_EQ(tokens[4].position, 9);
  EXPECT_EQ(tokens[4].sequence, sequence.id());
}

TEST(Sequence, RemainingCountsAgainstMaxTokens) {
  CacheSpec spec = small_spec();
  spec.max_tokens = 6;
  Cache cache = make_cache(spec);
  const Sequence sequence = filled(cache, 4);
  EXPECT_EQ(sequence.remaining().value(), 2);
  EXPECT_FALSE(sequence.is_full().value());
  append(cache, sequence, 4, 2);
  EXPECT_EQ(sequence.remaining().value(), 0);
  EXPECT_TRUE(sequence.is_full().value());
  EXPECT_TRUE(sequence.keep_last(3).value().removed);
  EXPECT_EQ(sequence.remaining().value(), 3);
}

TEST(Sequence, WithoutMaxTokensThereIsNoEnd) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 4);
  EXPECT_EQ(sequence.remaining().value(), INT64_MAX);
  EXPECT_FALSE(sequence.is_full().value());
}

TEST(Sequence, LayersThatAreNotThereAreOutOfRange) {
  Cache cache = make_cache();
  const Sequence s = filled(cache, 3);
  for (const int layer : {-1, 2}) {
    const std::string name = "layer " + std::to_string(layer);
    EXPECT_TRUE(fails(s.length(layer), ErrorCode::out_of_range, {name, "2"}));
    EXPECT_TRUE(fails(s.first_position(layer), ErrorCode::out_of_range, {name}));
    EXPECT_TRUE(fails(s.read(layer, Side::key, {}, nullptr, 0), ErrorCode::out_of_range, {name}));
    EXPECT_TRUE(fails(s.runs(layer), ErrorCode::out_of_range, {name}));
    EXPECT_TRUE(fails(s.gather_size(layer, {}), ErrorCode::out_of_range, {name}));
    EXPECT_TRUE(fails(s.for_each(layer, Side::key, [](std::int64_t, const float*) {}),
                      ErrorCode::out_of_range, {name}));
  }
}

// --- fork ----------------------------------------------------------------------------------------

TEST(Sequence, ForkSharesEveryPage) {
  Cache cache = make_cache();
  const Sequence parent = filled(cache, 10);
  const Stats before = cache.stats();
  const Sequence child = parent.fork().value();
  const Stats after = cache.stats();
  EXPECT_NE(child.id(), parent.id());
  EXPECT_EQ(after.pages_used, before.pages_used);
  EXPECT_EQ(after.pages_shared, before.pages_used);
  EXPECT_EQ(after.bytes_rows, before.bytes_rows);
  EXPECT_EQ(after.bytes_sealed, before.bytes_sealed);
  EXPECT_TRUE(holds(cache, child, 1, range(0, 10)));
}

TEST(Sequence, AForkGoesItsOwnWay) {
  Cache cache = make_cache();
  const Sequence parent = filled(cache, 6);
  const Sequence child = parent.fork().value();
  append(cache, parent, 6, 3, 1);
  append(cache, child, 6, 5, 2);
  std::vector<float> keys = known_rows(cache.spec().layers[0], 0, Side::key, range(0, 6)).data;
  const auto with = [&](std::int64_t end, int tag) {
    std::vector<float> all = keys;
    const Rows more = known_rows(cache.spec().layers[0], 0, Side::key, range(6, end), tag);
    all.insert(all.end(), more.data.begin(), more.data.end());
    return all;
  };
  EXPECT_EQ(read_all(parent, 0, Side::key), with(9, 1));
  EXPECT_EQ(read_all(child, 0, Side::key), with(11, 2));
}

TEST(Sequence, ForkAtAPositionTakesTheTokensBelowIt) {
  Cache cache = make_cache();
  const Sequence parent = filled(cache, 10);
  for (const std::int64_t at : {0, 1, 4, 7, 10, 50}) {
    const Forked forked = parent.fork(at).value();
    EXPECT_EQ(forked.at, std::min<std::int64_t>(at, 10));
    EXPECT_EQ(positions_of(forked.sequence), range(0, std::min<std::int64_t>(at, 10)));
    forked.sequence.close().value();
  }
  EXPECT_TRUE(holds(cache, parent, 0, range(0, 10)));
  EXPECT_TRUE(fails(parent.fork(-1), ErrorCode::out_of_range, {"-1"}));
}

TEST(Sequence, AForkOutlivesItsParent) {
  Cache cache = make_cache();
  const Sequence parent = filled(cache, 10);
  const Sequence child = parent.fork().value();
  parent.close().value();
  EXPECT_TRUE(holds(cache, child, 0, range(0, 10)));
  EXPECT_EQ(cache.stats().pages_shared, 0);
  append(cache, child, 10, 4);
  EXPECT_TRUE(holds(cache, child, 0, range(0, 14)));
}

// --- truncate ------------------------------------------------------------------------------------

TEST(Sequence, TruncateKeepsTheTokensBelowAPosition) {
  for (std::int64_t at = 0; at <= 10; ++at) {
    Cache cache = make_cache();
    const Sequence sequence = filled(cache, 10);
    const Cut cut = sequence.truncate(at).value();
    EXPECT_EQ(cut.removed, at < 10);
    EXPECT_EQ(cut.at, at);
    EXPECT_TRUE(holds(cache, sequence, 0, range(0, at)));
    EXPECT_EQ(sequence.next_position().value(), at);
    append(cache, sequence, at, 3);
    EXPECT_TRUE(holds(cache, sequence, 0, range(0, at + 3)));
  }
}

TEST(Sequence, TruncateBeyondTheLengthChangesNothing) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 5);
  const Snapshot before = snapshot(cache);
  EXPECT_FALSE(sequence.truncate(5).value().removed);
  EXPECT_FALSE(sequence.truncate(1000).value().removed);
  EXPECT_FALSE(sequence.truncate(INT64_MAX).value().removed);
  EXPECT_TRUE(fails(sequence.truncate(-1), ErrorCode::out_of_range, {"-1"}));
  EXPECT_EQ(snapshot(cache), before);
}

TEST(Sequence, TruncateBelowTheFirstPositionMakesItAsNew) {
  Cache cache = make_cache();
  const Sequence sequence = cache.open().value();
  append(cache, sequence, 10, 6);
  EXPECT_TRUE(sequence.truncate(10).value().removed);
  EXPECT_TRUE(sequence.is_empty().value());
  EXPECT_EQ(sequence.next_position().value(), 0);
  append(cache, sequence, 3, 2);
  EXPECT_EQ(positions_of(sequence), (std::vector<std::int64_t>{3, 4}));
}

TEST(Sequence, TruncateInAGapKeepsWhatLiesBelow) {
  Cache cache = make_cache();
  const Sequence sequence = cache.open().value();
  append(cache, sequence, 0, 3);
  append(cache, sequence, 20, 3);
  EXPECT_TRUE(sequence.truncate(15).value().removed);
  EXPECT_EQ(positions_of(sequence), range(0, 3));
  EXPECT_EQ(sequence.next_position().value(), 3);
}

TEST(Sequence, TruncateOfASharedPageLeavesTheOther) {
  Cache cache = make_cache();
  const Sequence parent = filled(cache, 10);
  const Sequence child = parent.fork().value();
  child.truncate(5).value();
  append(cache, child, 5, 3, 7);
  EXPECT_TRUE(holds(cache, parent, 0, range(0, 10)));
  EXPECT_EQ(positions_of(child), range(0, 8));
}

// --- keep_last -----------------------------------------------------------------------------------

TEST(Sequence, KeepLastKeepsPositions) {
  for (std::int64_t count = 1; count < 10; ++count) {
    Cache cache = make_cache();
    const Sequence sequence = filled(cache, 10);
    const Cut cut = sequence.keep_last(count).value();
    EXPECT_TRUE(cut.removed);
    EXPECT_EQ(cut.at, 10 - count);
    EXPECT_TRUE(holds(cache, sequence, 0, range(10 - count, 10)));
    EXPECT_EQ(sequence.next_position().value(), 10) << "positions that are used stay used";
    append(cache, sequence, 10, 3);
    EXPECT_TRUE(holds(cache, sequence, 1, range(10 - count, 13)));
  }
}

TEST(Sequence, KeepLastGivesWholePagesBack) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 40);
  EXPECT_EQ(cache.stats().pages_used, 10);
  sequence.keep_last(6).value();
  EXPECT_EQ(cache.stats().pages_used, 2);
}

TEST(Sequence, KeepLastOfAllOrMoreChangesNothing) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 5);
  const Snapshot before = snapshot(cache);
  EXPECT_FALSE(sequence.keep_last(5).value().removed);
  EXPECT_FALSE(sequence.keep_last(50).value().removed);
  EXPECT_TRUE(fails(sequence.keep_last(-1), ErrorCode::out_of_range, {"-1"}));
  EXPECT_EQ(snapshot(cache), before);
}

TEST(Sequence, KeepLastZeroMakesItAsNew) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 5);
  EXPECT_TRUE(sequence.keep_last(0).value().removed);
  EXPECT_TRUE(sequence.is_empty().value());
  EXPECT_EQ(sequence.next_position().value(), 0);
  EXPECT_EQ(cache.stats().pages_used, 0);
  EXPECT_FALSE(sequence.keep_last(0).value().removed);
}

// --- can_resume ----------------------------------------------------------------------------------

TEST(Sequence, CanResumeUpToTheNextPosition) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 10);
  for (std::int64_t at = 0; at <= 10; ++at) {
    EXPECT_EQ(sequence.can_resume(at).value(), Resume::exact) << at << ": f32 is lossless";
  }
  EXPECT_EQ(sequence.can_resume(11).value(), Resume::no);
  EXPECT_EQ(sequence.can_resume(-1).value(), Resume::no);
}

TEST(Sequence, CutsOfLossyPagesAreExactAtPageEndsAndWithinRollback) {
  CacheSpec spec = small_spec(1, "int8");
  spec.rollback = 5;
  Cache cache = make_cache(spec);
  const Sequence sequence = filled(cache, 22);  // rows are held from floor_page(22 - 5) = 16 on
  for (std::int64_t at = 0; at <= 22; ++at) {
    const bool exact = at % 4 == 0 || at >= 16;
    EXPECT_EQ(sequence.can_resume(at).value(), exact ? Resume::exact : Resume::coded) << at;
  }
}

TEST(Sequence, ACodedCutIsToldAndAnExactCutMendsIt) {
  CacheSpec spec = small_spec(1, "int8");
  spec.rollback = 0;
  Cache cache = make_cache(spec);
  const Sequence sequence = filled(cache, 10);
  EXPECT_TRUE(sequence.is_exact().value());
  sequence.truncate(6).value();
  EXPECT_FALSE(sequence.is_exact().value());
  append(cache, sequence, 6, 4);
  EXPECT_FALSE(sequence.is_exact().value());
  sequence.truncate(4).value();
  EXPECT_TRUE(sequence.is_exact().value()) << "nothing of the coded cut is left";
}

// What truncate says before is what a later read finds: the page stays coded, or comes as rows.
TEST(Sequence, AfterACodedCutTheOldTokensStayCoded) {
  CacheSpec spec = small_spec(1, "int8");
  spec.rollback = 0;
  Cache cache = make_cache(spec);
  const Sequence sequence = filled(cache, 8);
  const std::vector<float> coded = read_all(sequence, 0, Side::key);
  sequence.truncate(6).value();
  append(cache, sequence, 6, 1, 3);
  std::vector<float> now = read_all(sequence, 0, Side::key);
  const std::size_t old = 6 * 2 * 4;
  EXPECT_TRUE(std::equal(coded.begin(), coded.begin() + old, now.begin()));
  const Rows added = known_rows(spec.layers[0], 0, Side::key, {6}, 3);
  EXPECT_TRUE(std::equal(added.data.begin(), added.data.end(), now.begin() + old))
      << "the new page is open: exact rows";
}

}  // namespace
}  // namespace quire::test
