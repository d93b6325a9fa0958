// How a step ends, and what else may happen while it is open.
#include <gtest/gtest.h>

#include "cache/fixture.h"

namespace quire::test {
namespace {

Cache make_cache(const CacheSpec& spec = small_spec(2)) { return Cache::create(spec).value(); }

TEST(Commit, NothingIsSeenBeforeIt) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 5);
  Step step = stepped(cache, batch_of(sequence, 5, 6));
  EXPECT_TRUE(step.is_open());
  EXPECT_EQ(cache.stats().open_steps, 1);
  EXPECT_EQ(cache.stats().tokens, 5);
  EXPECT_TRUE(holds(cache, sequence, 0, range(0, 5)));
  EXPECT_EQ(sequence.next_position().value(), 5);
  step.commit().value();
  EXPECT_FALSE(step.is_open());
  EXPECT_EQ(cache.stats().open_steps, 0);
  EXPECT_TRUE(holds(cache, sequence, 0, range(0, 11)));
}

TEST(Commit, WithALayerMissingIsRefusedAndTheStepStaysOpen) {
  Cache cache = make_cache();
  const Sequence sequence = cache.open().value();
  const Batch batch = batch_of(sequence, 0, 3);
  Step step = cache.begin(batch).value();
  put(step, cache.spec(), 0, batch).value();
  EXPECT_TRUE(fails(step.commit(), ErrorCode::wrong_state, {"layer 1"}));
  EXPECT_TRUE(step.is_open());
  put(step, cache.spec(), 1, batch).value();
  EXPECT_TRUE(succeeds(step.commit()));
}

TEST(Commit, TakesTheFirstTokensOfEachSequence) {
  for (std::int64_t taken = 0; taken <= 6; ++taken) {
    Cache cache = make_cache();
    const Sequence a = filled(cache, 3);
    const Sequence b = filled(cache, 4);
    Step step = stepped(cache, batch_of(a, 3, 6).add(b.id(), 4, 2));
    const std::vector<Committed> done = step.commit({taken, 1}).value();
    EXPECT_EQ(done[0].tokens, taken);
    EXPECT_EQ(done[1].tokens, 1);
    EXPECT_TRUE(holds(cache, a, 0, range(0, 3 + taken)));
    EXPECT_TRUE(holds(cache, b, 1, range(0, 5)));
    EXPECT_EQ(a.next_position().value(), 3 + taken);
    append(cache, a, 3 + taken, 2);
    EXPECT_TRUE(holds(cache, a, 1, range(0, 5 + taken)));
    EXPECT_TRUE(a.is_exact().value());
  }
}

TEST(Commit, OfNothingLeavesASequenceAsItWas) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 5);
  const Snapshot before = snapshot(cache);
  stepped(cache, batch_of(sequence, 5, 9)).commit({0}).value();
  EXPECT_EQ(snapshot(cache), before);
}

TEST(Commit, CountsAreChecked) {
  Cache cache = make_cache();
  const Sequence a = filled(cache, 3);
  const Sequence b = cache.open().value();
  Step step = stepped(cache, batch_of(a, 3, 4).add(b.id(), 0, 2));
  EXPECT_TRUE(fails(step.commit({1}), ErrorCode::mismatch, {"1 counts", "2 sequences"}));
  EXPECT_TRUE(fails(step.commit({5, 2}), ErrorCode::out_of_range, {"5 tokens", "brought 4"}));
  EXPECT_TRUE(fails(step.commit({4, -1}), ErrorCode::out_of_range, {"-1 tokens", "brought 2"}));
  EXPECT_TRUE(step.is_open());
  EXPECT_TRUE(succeeds(step.commit({4, 2})));
}

TEST(Commit, APartialOneSealsOnlyThePagesItFills) {
  Cache cache = make_cache(small_spec(1, "int8"));
  const Sequence sequence = cache.open().value();
  stepped(cache, batch_of(sequence, 0, 12)).commit({6}).value();
  const LayerInfo info = cache.layer_info(0).value();
  EXPECT_EQ(cache.stats().bytes_sealed, info.sealed_bytes_per_page);
  EXPECT_EQ(cache.stats().pages_used, 2);
}

TEST(Step, EndedItAnswersWrongState) {
  Cache cache = make_cache();
  const Sequence sequence = cache.open().value();
  Step step = stepped(cache, batch_of(sequence, 0, 2));
  step.commit().value();
  const Rows rows(2, 2, 4);
  Rows out(2, 2, 4);
  EXPECT_TRUE(fails(step.put(0, rows.view(), rows.view()), ErrorCode::wrong_state, {"over"}));
  EXPECT_TRUE(fails(step.attend(0, rows.view(), out.out()), ErrorCode::wrong_state));
  EXPECT_TRUE(fails(step.scores(0, rows.view(), nullptr, 0), ErrorCode::wrong_state));
  EXPECT_TRUE(fails(step.set_exceptions({}), ErrorCode::wrong_state));
  EXPECT_TRUE(fails(step.gather_size(0, {sequence.id()}, {}), ErrorCode::wrong_state));
  EXPECT_TRUE(fails(step.mask_columns(0), ErrorCode::wrong_state));
  EXPECT_TRUE(fails(step.runs(0, sequence.id()), ErrorCode::wrong_state));
  EXPECT_TRUE(fails(step.commit(), ErrorCode::wrong_state));
  EXPECT_EQ(step.tokens(), 0);
  step.drop();
  EXPECT_EQ(positions_of(sequence), range(0, 2)) << "drop after commit undoes nothing";
}

TEST(Step, AnEmptyHandleIsAnError) {
  Step step;
  const Rows rows(1, 2, 4);
  EXPECT_FALSE(step.is_open());
  EXPECT_EQ(step.tokens(), 0);
  EXPECT_TRUE(fails(step.put(0, rows.view()), ErrorCode::wrong_state));
  EXPECT_TRUE(fails(step.commit(), ErrorCode::wrong_state));
  step.drop();
}

TEST(Step, DroppedOrDestroyedItLeavesNoTrace) {
  Cache cache = make_cache(small_spec(2, "int8"));
  const Sequence sequence = filled(cache, 6);
  const Sequence fork = sequence.fork().value();
  const Snapshot before = snapshot(cache);
  Step step = stepped(cache, batch_of(sequence, 6, 20), 4);
  step.drop();
  EXPECT_EQ(snapshot(cache), before);
  { const Step gone = stepped(cache, batch_of(sequence, 6, 3), 5); }
  EXPECT_EQ(snapshot(cache), before);
  { const Step never_put = cache.begin(batch_of(sequence, 6, 3)).value(); }
  EXPECT_EQ(snapshot(cache), before);
}

TEST(Step, MovedItStaysOpen) {
  Cache cache = make_cache();
  const Sequence sequence = cache.open().value();
  Step first = stepped(cache, batch_of(sequence, 0, 2));
  Step second = std::move(first);
  EXPECT_TRUE(second.is_open());
  EXPECT_FALSE(first.is_open());
  EXPECT_TRUE(fails(first.commit(), ErrorCode::wrong_state));
  second.commit().value();
  EXPECT_EQ(sequence.length().value(), 2);
}

TEST(Step, AssignedOverItIsDropped) {
  Cache cache = make_cache();
  const Sequence a = cache.open().value();
  const Sequence b = cache.open().value();
  Step step = stepped(cache, batch_of(a, 0, 2));
  step = stepped(cache, batch_of(b, 0, 3));
  EXPECT_EQ(cache.stats().open_steps, 1);
  step.commit().value();
  EXPECT_TRUE(a.is_empty().value());
  EXPECT_EQ(b.length().value(), 3);
}

// --- while a step is open ------------------------------------------------------------------------

TEST(OpenStep, ItsSequencesAreBusy) {
  Cache cache = make_cache();
  const Sequence s = filled(cache, 5);
  const Snapshot before = snapshot(cache);
  const Rows row(1, 2, 4);
  Step step = cache.begin(batch_of(s, 5, 2)).value();
  const std::string id = "sequence " + std::to_string(static_cast<std::uint64_t>(s.id()));
  EXPECT_TRUE(fails(cache.begin(batch_of(s, 5, 1)), ErrorCode::busy, {"begin", id}));
  EXPECT_TRUE(fails(cache.plan(batch_of(s, 5, 1)), ErrorCode::busy));
  EXPECT_TRUE(fails(s.truncate(2), ErrorCode::busy, {"truncate", id}));
  EXPECT_TRUE(fails(s.keep_last(2), ErrorCode::busy));
  EXPECT_TRUE(fails(s.shift_left(2), ErrorCode::busy));
  EXPECT_TRUE(fails(s.remove(1, 2, true), ErrorCode::busy));
  EXPECT_TRUE(fails(s.overwrite(0, 1, row.view(), row.view()), ErrorCode::busy));
  EXPECT_TRUE(fails(s.close(), ErrorCode::busy));
  EXPECT_TRUE(fails(cache.clear(), ErrorCode::busy, {"1"}));
  step.drop();
  EXPECT_EQ(snapshot(cache), before);
  EXPECT_TRUE(succeeds(s.truncate(2)));
}

TEST(OpenStep, TwoOfDifferentSequencesGoSideBySide) {
  Cache cache = make_cache();
  const Sequence a = filled(cache, 6);
  const Sequence b = a.fork().value();
  const Batch batch_a = batch_of(a, 6, 3);
  const Batch batch_b = batch_of(b, 6, 5);
  Step first = cache.begin(batch_a).value();
  Step second = cache.begin(batch_b).value();
  EXPECT_EQ(cache.stats().open_steps, 2);
  for (int layer = 0; layer < 2; ++layer) {
    put(second, cache.spec(), layer, batch_b, 2).value();
    put(first, cache.spec(), layer, batch_a, 1).value();
  }
  second.commit().value();
  first.commit().value();
  const auto tail = [&](const Sequence& sequence, std::size_t tokens) {
    const std::vector<float> keys = read_all(sequence, 1, Side::key);
    return std::vector<float>(keys.end() - static_cast<std::ptrdiff_t>(tokens * 8), keys.end());
  };
  EXPECT_EQ(tail(a, 3), known_rows(cache.spec().layers[1], 1, Side::key, range(6, 9), 1).data);
  EXPECT_EQ(tail(b, 5), known_rows(cache.spec().layers[1], 1, Side::key, range(6, 11), 2).data);
}

TEST(OpenStep, AForkTakesTheCommittedState) {
  Cache cache = make_cache(small_spec(2, "int8"));
  const Sequence parent = filled(cache, 6);
  const std::vector<float> before = read_all(parent, 0, Side::key);
  Step step = stepped(cache, batch_of(parent, 6, 9), 1);
  const Sequence child = parent.fork().value();
  EXPECT_EQ(positions_of(child), range(0, 6));
  EXPECT_EQ(read_all(child, 0, Side::key), before);
  append(cache, child, 6, 2, 2);  // goes on in its own copy of the open page
  step.commit().value();
  EXPECT_EQ(positions_of(parent), range(0, 15));
  EXPECT_EQ(positions_of(child), range(0, 8));
  Cache lone = make_cache(small_spec(2, "int8"));
  const Sequence alone = filled(lone, 6);
  append(lone, alone, 6, 2, 2);
  EXPECT_EQ(read_all(child, 0, Side::key), read_all(alone, 0, Side::key));
  EXPECT_EQ(read_all(child, 1, Side::value), read_all(alone, 1, Side::value));
}

TEST(OpenStep, AForkMayBeWorkedOnWhileItsParentsPageFills) {
  CacheSpec spec = small_spec(2, "int8");
  for (LayerSpec& layer : spec.layers) layer.rotation = Rotation::none();
  Cache cache = make_cache(spec);
  const Sequence parent = filled(cache, 6);
  Step step = cache.begin(batch_of(parent, 6, 2)).value();  // fills the page
  const Sequence child = parent.fork().value();
  const Rows row = known_rows(spec.layers[0], 0, Side::key, {100}, 3);
  child.overwrite(0, 5, row.view(), row.view()).value();
  child.remove(0, 1).value();
  put_all(step, spec, batch_of(parent, 6, 2));
  step.commit().value();
  Cache other = make_cache(spec);
  const Sequence same = filled(other, 6);
  same.overwrite(0, 5, row.view(), row.view()).value();
  same.remove(0, 1).value();
  append(cache, child, 5, 6, 1);
  append(other, same, 5, 6, 1);
  for (int layer = 0; layer < 2; ++layer) {
    EXPECT_EQ(read_all(child, layer, Side::key), read_all(same, layer, Side::key));
    EXPECT_EQ(read_all(child, layer, Side::value), read_all(same, layer, Side::value));
  }
}

// --- closing -------------------------------------------------------------------------------------

TEST(Close, DropsOpenStepsAndEveryHandleAnswersAnError) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 5);
  Step step = stepped(cache, batch_of(sequence, 5, 2));
  cache.close();
  EXPECT_FALSE(step.is_open());
  EXPECT_TRUE(fails(step.commit(), ErrorCode::wrong_state));
  EXPECT_TRUE(fails(sequence.length(), ErrorCode::unknown_sequence, {"closed"}));
  EXPECT_TRUE(fails(sequence.truncate(0), ErrorCode::unknown_sequence, {"closed"}));
  EXPECT_TRUE(fails(sequence.read(0, Side::key, {}, nullptr, 0), ErrorCode::unknown_sequence));
  EXPECT_TRUE(fails(cache.open(), ErrorCode::unknown_sequence, {"closed"}));
  EXPECT_TRUE(
      fails(cache.begin(batch_of(sequence, 5, 1)), ErrorCode::unknown_sequence, {"closed"}));
  EXPECT_TRUE(fails(cache.plan(batch_of(sequence, 5, 1)), ErrorCode::unknown_sequence));
  EXPECT_TRUE(fails(cache.reserve({}), ErrorCode::unknown_sequence));
  EXPECT_TRUE(fails(cache.clear(), ErrorCode::unknown_sequence));
  EXPECT_TRUE(fails(cache.clone(), ErrorCode::unknown_sequence));
  EXPECT_TRUE(fails(cache.compact(), ErrorCode::unknown_sequence));
  EXPECT_TRUE(fails(cache.enforce_memory_limit(1 << 20), ErrorCode::unknown_sequence));
  EXPECT_TRUE(fails(cache.resize(1 << 20), ErrorCode::unknown_sequence));
  EXPECT_TRUE(cache.sequences().empty());
  const Stats stats = cache.stats();
  EXPECT_EQ(stats.pages_used, 0);
  EXPECT_EQ(stats.bytes, stats.bytes_free);
  EXPECT_FALSE(cache.text().empty());
  EXPECT_FALSE(cache.json().empty());
  cache.close();  // again
}

TEST(Close, HandlesMayOutliveTheCache) {
  Sequence sequence;
  Step step;
  {
    Cache cache = make_cache();
    sequence = filled(cache, 5);
    step = stepped(cache, batch_of(sequence, 5, 2));
  }
  EXPECT_FALSE(step.is_open());
  EXPECT_TRUE(fails(step.commit(), ErrorCode::wrong_state));
  EXPECT_TRUE(fails(sequence.tokens(), ErrorCode::unknown_sequence));
}

TEST(Clear, DropsAllSequencesAndKeepsTheCache) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 5);
  cache.clear().value();
  EXPECT_TRUE(fails(sequence.length(), ErrorCode::unknown_sequence));
  EXPECT_EQ(cache.stats().pages_used, 0);
  EXPECT_EQ(cache.stats().sequences, 0);
  const Sequence next = filled(cache, 3);
  EXPECT_NE(next.id(), sequence.id());
  EXPECT_TRUE(holds(cache, next, 0, range(0, 3)));
}

}  // namespace
}  // namespace quire::test
