// Taking tokens out of the middle or the front, and copying prefixes.
#include <gtest/gtest.h>

#include "cache/fixture.h"

namespace quire::test {
namespace {

// Layers whose keys hold no position, so that tokens may move.
CacheSpec movable_spec(int layers = 2) {
  CacheSpec spec = small_spec(layers);
  for (LayerSpec& layer : spec.layers) layer.rotation = Rotation::none();
  return spec;
}

Cache make_cache(const CacheSpec& spec = movable_spec()) { return Cache::create(spec).value(); }

std::vector<float> keys_at(const Cache& cache, const std::vector<std::int64_t>& positions) {
  return known_rows(cache.spec().layers[0], 0, Side::key, positions).data;
}

// --- remove --------------------------------------------------------------------------------------

TEST(Remove, LaterTokensMoveDown) {
  for (std::int64_t begin = 0; begin < 12; ++begin) {
    for (std::int64_t end = begin + 1; end <= 12; ++end) {
      Cache cache = make_cache();
      const Sequence sequence = filled(cache, 12);
      const Cut cut = sequence.remove(begin, end).value();
      EXPECT_TRUE(cut.removed);
      EXPECT_EQ(cut.at, begin);
      EXPECT_EQ(positions_of(sequence), range(0, 12 - (end - begin)));
      EXPECT_EQ(sequence.next_position().value(), 12 - (end - begin));
      std::vector<std::int64_t> left = range(0, begin);
      for (const std::int64_t p : range(end, 12)) left.push_back(p);
      EXPECT_EQ(read_all(sequence, 0, Side::key), keys_at(cache, left)) << begin << " " << end;
    }
  }
}

TEST(Remove, CanLeaveAGap) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 12);
  EXPECT_TRUE(sequence.remove(3, 7, true).value().removed);
  std::vector<std::int64_t> left = range(0, 3);
  for (const std::int64_t p : range(7, 12)) left.push_back(p);
  EXPECT_TRUE(holds(cache, sequence, 0, left));
  EXPECT_EQ(sequence.next_position().value(), 12);
  append(cache, sequence, 12, 2);
  EXPECT_EQ(sequence.length().value(), 10);
}

TEST(Remove, GoesOnAtTheNewEnd) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 10);
  sequence.remove(2, 5).value();
  append(cache, sequence, 7, 6, 1);
  EXPECT_EQ(positions_of(sequence), range(0, 13));
  sequence.remove(1, 8).value();  // over the seam
  std::vector<float> expected = keys_at(cache, {0});
  const Rows rest = known_rows(cache.spec().layers[0], 0, Side::key, range(8, 13), 1);
  expected.insert(expected.end(), rest.data.begin(), rest.data.end());
  EXPECT_EQ(read_all(sequence, 0, Side::key), expected);
}

TEST(Remove, MakesTheHistoryInexactFromThereOn) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 10);
  sequence.remove(6, 8).value();
  EXPECT_FALSE(sequence.is_exact().value());
  sequence.truncate(5).value();
  EXPECT_TRUE(sequence.is_exact().value());
}

TEST(Remove, AnEmptyRangeChangesNothing) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 10);
  const Snapshot before = snapshot(cache);
  EXPECT_FALSE(sequence.remove(4, 4).value().removed);
  EXPECT_FALSE(sequence.remove(10, 20).value().removed);
  EXPECT_FALSE(sequence.remove(100, INT64_MAX).value().removed);
  EXPECT_EQ(snapshot(cache), before);
}

TEST(Remove, BadRangesAreRefused) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 10);
  const Snapshot before = snapshot(cache);
  EXPECT_TRUE(fails(sequence.remove(5, 4), ErrorCode::invalid_argument, {"[5, 4)"}));
  EXPECT_TRUE(fails(sequence.remove(-2, 4), ErrorCode::out_of_range, {"-2"}));
  EXPECT_EQ(snapshot(cache), before);
}

TEST(Remove, WithoutRotaryDataTokensDoNotMove) {
  Cache cache = make_cache(small_spec(2));
  const Sequence sequence = filled(cache, 10);
  const Snapshot before = snapshot(cache);
  EXPECT_TRUE(fails(sequence.remove(2, 5), ErrorCode::not_supported, {"5", "3", "layer 0"}));
  EXPECT_TRUE(fails(sequence.shift_left(1), ErrorCode::not_supported));
  EXPECT_EQ(snapshot(cache), before);
  EXPECT_TRUE(sequence.remove(2, 5, true).value().removed) << "a gap moves nothing";
}

TEST(Remove, OneLayerWithoutRotaryDataIsEnoughToRefuse) {
  CacheSpec spec = pattern_spec({Pattern::window(100), Pattern::causal(), Pattern::causal()});
  spec.layers[0].rotation = Rotation::none();
  spec.layers[1].rotation = Rotation::none();
  Cache cache = make_cache(spec);
  const Sequence sequence = filled(cache, 10);
  const Snapshot before = snapshot(cache);
  EXPECT_TRUE(fails(sequence.remove(2, 5), ErrorCode::not_supported, {"layer 2"}));
  EXPECT_EQ(snapshot(cache), before);
}

TEST(Remove, AtTheEndNeedsNoRotaryData) {
  Cache cache = make_cache(small_spec(2));
  const Sequence sequence = filled(cache, 10);
  EXPECT_TRUE(sequence.remove(7, 10).value().removed);
  EXPECT_TRUE(sequence.remove(5, INT64_MAX).value().removed);
  EXPECT_TRUE(holds(cache, sequence, 0, range(0, 5)));
  EXPECT_TRUE(sequence.is_exact().value()) << "it is a truncate";
  EXPECT_EQ(sequence.next_position().value(), 5);
}

TEST(Remove, SharedPagesStayAsTheOthersSeeThem) {
  Cache cache = make_cache();
  const Sequence parent = filled(cache, 12);
  const Sequence child = parent.fork().value();
  const std::int64_t pages = cache.stats().pages_used;
  child.remove(1, 6).value();
  EXPECT_EQ(cache.stats().pages_used, pages) << "no page is copied";
  EXPECT_TRUE(holds(cache, parent, 0, range(0, 12)));
  EXPECT_EQ(positions_of(child), range(0, 7));
}

TEST(Remove, ManySmallOnesKeepTheRightTokens) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 200);
  std::vector<std::int64_t> left = range(0, 200);
  for (std::int64_t i = 0; i < 90; ++i) {
    const std::int64_t at = (i * 37) % (static_cast<std::int64_t>(left.size()) - 1);
    sequence.remove(at, at + 1).value();
    left.erase(left.begin() + at);
  }
  EXPECT_EQ(read_all(sequence, 0, Side::key), keys_at(cache, left));
  EXPECT_EQ(positions_of(sequence), range(0, 110));
}

// --- shift_left ----------------------------------------------------------------------------------

TEST(ShiftLeft, DropsTheFirstTokensAndMovesTheRest) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 10);
  EXPECT_TRUE(sequence.shift_left(3).value().removed);
  EXPECT_EQ(positions_of(sequence), range(0, 7));
  EXPECT_EQ(read_all(sequence, 0, Side::key), keys_at(cache, range(3, 10)));
}

TEST(ShiftLeft, ByNothingChangesNothing) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 10);
  const Snapshot before = snapshot(cache);
  EXPECT_FALSE(sequence.shift_left(0).value().removed);
  EXPECT_TRUE(fails(sequence.shift_left(-1), ErrorCode::out_of_range, {"-1"}));
  EXPECT_EQ(snapshot(cache), before);
  EXPECT_FALSE(cache.open().value().shift_left(3).value().removed);
}

TEST(ShiftLeft, ByAllTokensEmptiesTheSequence) {
  for (const std::int64_t count : {10, 11, 1000}) {
    Cache cache = make_cache();
    const Sequence sequence = filled(cache, 10);
    EXPECT_TRUE(sequence.shift_left(count).value().removed);
    EXPECT_TRUE(sequence.is_empty().value());
    EXPECT_EQ(cache.stats().pages_used, 0);
  }
}

TEST(ShiftLeft, CountsTokensHeld) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 10);
  sequence.keep_last(6).value();   // 4 .. 9
  sequence.shift_left(2).value();  // 6 .. 9 moved to 4 .. 7
  EXPECT_EQ(positions_of(sequence), range(4, 8));
  EXPECT_EQ(read_all(sequence, 0, Side::key), keys_at(cache, range(6, 10)));
}

// --- copy_prefix ---------------------------------------------------------------------------------

TEST(CopyPrefix, GivesTheTargetExactlyTheTokensBelowAPosition) {
  Cache cache = make_cache();
  const Sequence source = filled(cache, 10);
  for (const std::int64_t at : {0, 3, 4, 10, 99}) {
    const Sequence target = filled(cache, 6, 5);
    const Cut cut = cache.copy_prefix(source.id(), target.id(), at).value();
    EXPECT_TRUE(cut.removed) << "what the target held is gone";
    EXPECT_TRUE(holds(cache, target, 0, range(0, std::min<std::int64_t>(at, 10))));
    target.close().value();
  }
  EXPECT_TRUE(holds(cache, source, 0, range(0, 10)));
}

TEST(CopyPrefix, SharesPagesWithANewSequence) {
  Cache cache = make_cache();
  const Sequence source = filled(cache, 12);
  const Sequence target = cache.open().value();
  const std::int64_t pages = cache.stats().pages_used;
  EXPECT_FALSE(cache.copy_prefix(source.id(), target.id(), 8).value().removed);
  EXPECT_EQ(cache.stats().pages_used, pages);
  EXPECT_EQ(cache.stats().pages_shared, 2);
}

TEST(CopyPrefix, OntoItselfIsTruncate) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 10);
  EXPECT_FALSE(cache.copy_prefix(sequence.id(), sequence.id(), 10).value().removed);
  EXPECT_TRUE(holds(cache, sequence, 0, range(0, 10)));
  EXPECT_TRUE(cache.copy_prefix(sequence.id(), sequence.id(), 6).value().removed);
  EXPECT_TRUE(holds(cache, sequence, 0, range(0, 6)));
}

TEST(CopyPrefix, AnUnknownSourceLeavesTheTargetAlone) {
  Cache cache = make_cache();
  const Sequence target = filled(cache, 6);
  const Snapshot before = snapshot(cache);
  const auto nobody = static_cast<SequenceId>(777);
  EXPECT_TRUE(
      fails(cache.copy_prefix(nobody, target.id(), 3), ErrorCode::unknown_sequence, {"777"}));
  EXPECT_TRUE(
      fails(cache.copy_prefix(target.id(), nobody, 3), ErrorCode::unknown_sequence, {"777"}));
  EXPECT_TRUE(
      fails(cache.copy_prefix(target.id(), target.id(), -1), ErrorCode::out_of_range, {"-1"}));
  EXPECT_EQ(snapshot(cache), before);
}

TEST(CopyPrefix, ATargetWithAnOpenStepIsBusy) {
  Cache cache = make_cache();
  const Sequence source = filled(cache, 6);
  const Sequence target = filled(cache, 3);
  Step step = cache.begin(batch_of(target, 3, 1)).value();
  EXPECT_TRUE(fails(cache.copy_prefix(source.id(), target.id(), 3), ErrorCode::busy));
  EXPECT_TRUE(succeeds(cache.copy_prefix(target.id(), source.id(), 2)))
      << "a source gives what it has committed";
  EXPECT_EQ(positions_of(source), range(0, 2));
}

}  // namespace
}  // namespace quire::test
