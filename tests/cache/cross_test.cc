// Encoder entries: put with the positions that own them, seen whole by every query, gone with the
// first of their owners.
#include <gtest/gtest.h>

#include "cache/fixture.h"

namespace quire::test {
namespace {

// Layer 0 stores tokens, layer 1 entries.
CacheSpec cross_spec(const std::string& codec = "f32") {
  CacheSpec spec = pattern_spec({Pattern::causal(), Pattern::cross()}, codec);
  for (LayerSpec& layer : spec.layers) layer.rotation = Rotation::none();
  return spec;
}

Batch with_entry(Batch batch, std::int64_t length, std::int64_t begin, std::int64_t end) {
  batch.cross.push_back({batch.tokens.front().sequence, length, begin, end});
  return batch;
}

// Eight tokens, of which [2, 5) own an entry of `length`.
Sequence with_entry(Cache& cache, std::int64_t length, int tag = 1) {
  const Sequence sequence = filled(cache, 1);
  stepped(cache, with_entry(batch_of(sequence, 1, 7), length, 2, 5), tag).commit().value();
  return sequence;
}

testing::AssertionResult holds_entry(const Cache& cache, const Sequence& sequence,
                                     std::int64_t length, int tag = 1) {
  if (!sequence.has_cross().value()) return testing::AssertionFailure() << "no entry";
  return holds(cache, sequence, 1, range(0, length), tag);
}

testing::AssertionResult holds_no_entry(const Sequence& sequence) {
  if (sequence.has_cross().value()) return testing::AssertionFailure() << "an entry";
  return sequence.length(1).value() == 0 ? testing::AssertionSuccess()
                                         : testing::AssertionFailure() << "entries are left";
}

TEST(Cross, AnEntryHasItsOwnLength) {
  Cache cache = Cache::create(cross_spec()).value();
  const Sequence sequence = with_entry(cache, 10);
  EXPECT_TRUE(holds_entry(cache, sequence, 10));
  EXPECT_EQ(sequence.length(1).value(), 10);
  EXPECT_EQ(sequence.length(0).value(), 8);
  EXPECT_EQ(sequence.length().value(), 8) << "entries are no tokens";
  EXPECT_EQ(sequence.first_position(1).value(), 0);
}

TEST(Cross, EveryQuerySeesAllOfItAtOnce) {
  CacheSpec spec = cross_spec();
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  const Batch batch = with_entry(batch_of(sequence, 0, 3), 6, 0, 1);
  Step step = stepped(cache, batch, 1);
  const Rows q = known_queries(3, 2, 4);
  const Rows out = attend(step, spec, 1, q);
  const Rows keys = known_rows(spec.layers[1], 1, Side::key, range(0, 6), 1);
  const Rows values = known_rows(spec.layers[1], 1, Side::value, range(0, 6), 1);
  for (std::int64_t t = 0; t < 3; ++t) {
    for (int h = 0; h < 2; ++h) {
      std::vector<Seen> all;
      for (std::int64_t e = 0; e < 6; ++e) all.push_back({keys.at(e, h), values.at(e, h)});
      EXPECT_TRUE(near(out.at(t, h), naive_attention(q.at(t, h), all, 4, 4, {.scale = 0.5})));
    }
  }
  EXPECT_EQ(seen_positions(step, 1, batch), std::vector<std::vector<std::int64_t>>(3, range(0, 6)));
}

TEST(Cross, WithoutAnEntryAttentionIsZero) {
  CacheSpec spec = cross_spec();
  Cache cache = Cache::create(spec).value();
  const Sequence with = with_entry(cache, 3);
  const Sequence without = filled(cache, 2);
  Step step = stepped(cache, batch_of(with, 8, 1).add(without.id(), 2, 1));
  Rows out(2, 2, 4);
  std::fill(out.data.begin(), out.data.end(), 7.0f);
  step.attend(1, known_queries(2, 2, 4).view(), out.out()).value();
  for (int i = 0; i < 8; ++i) {
    EXPECT_NE(out.at(0, 0)[i], 0.0f);
    EXPECT_EQ(out.at(1, 0)[i], 0.0f);
  }
  EXPECT_EQ(step.gather_size(1, {without.id()}, {}).value().first_positions[0], -1);
}

// Rows of a put follow the batch's entries.
TEST(Cross, SeveralSequencesBringEntriesInOneStep) {
  CacheSpec spec = cross_spec();
  Cache cache = Cache::create(spec).value();
  const Sequence a = cache.open().value();
  const Sequence b = cache.open().value();
  Batch batch = batch_of(a, 0, 2).add(b.id(), 0, 1);
  batch.cross = {{b.id(), 3, 0, 1}, {a.id(), 5, 0, 2}};
  Step step = cache.begin(batch).value();
  put(step, spec, 0, batch).value();
  const Rows keys = known_rows(spec.layers[1], 1, Side::key, range(0, 8));
  const Rows values = known_rows(spec.layers[1], 1, Side::value, range(0, 8));
  step.put(1, keys.view(), values.view()).value();
  step.commit().value();
  EXPECT_EQ(a.length(1).value(), 5);
  EXPECT_EQ(b.length(1).value(), 3);
  EXPECT_EQ(read_all(b, 1, Side::key), known_rows(spec.layers[1], 1, Side::key, range(0, 3)).data);
  EXPECT_EQ(read_all(a, 1, Side::key), known_rows(spec.layers[1], 1, Side::key, range(3, 8)).data);
}

TEST(Cross, IsReadCodedAlsoInItsOwnStep) {
  CacheSpec spec = cross_spec("int8");
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  Step step = stepped(cache, with_entry(batch_of(sequence, 0, 2), 3, 0, 1), 1);
  std::vector<float> keys(3 * 2 * 4);
  step.gather(1, {sequence.id()}, {}, keys.data(), 24, nullptr, 0).value();
  EXPECT_NE(keys, known_rows(spec.layers[1], 1, Side::key, range(0, 3), 1).data);
  step.commit().value();
  EXPECT_EQ(read_all(sequence, 1, Side::key), keys);
  EXPECT_EQ(sequence.runs(1).value().at(0).layout, "tiles/int8");
}

TEST(Cross, IsReplacedByOneOfAnotherLength) {
  Cache cache = Cache::create(cross_spec()).value();
  const Sequence sequence = with_entry(cache, 10);
  const std::int64_t pages = cache.stats().pages_used;
  stepped(cache, with_entry(batch_of(sequence, 8, 1), 3, 8, 9), 2).commit().value();
  EXPECT_TRUE(holds_entry(cache, sequence, 3, 2));
  EXPECT_EQ(cache.stats().pages_used, pages - 3 + 1 + 1) << "3 pages of entries became 1";
  stepped(cache, with_entry(batch_of(sequence, 9, 1), 21, 9, 10), 3).commit().value();
  EXPECT_TRUE(holds_entry(cache, sequence, 21, 3));
}

TEST(Cross, IsSharedByForkAndCopyAndClone) {
  Cache cache = Cache::create(cross_spec()).value();
  const Sequence sequence = with_entry(cache, 10);
  const std::int64_t pages = cache.stats().pages_used;
  const Sequence fork = sequence.fork().value();
  const Sequence copy = cache.open().value();
  cache.copy_prefix(sequence.id(), copy.id(), 6).value();
  Cache clone = cache.clone().value();
  EXPECT_EQ(cache.stats().pages_used, pages);
  EXPECT_TRUE(holds_entry(cache, fork, 10));
  EXPECT_TRUE(holds_entry(cache, copy, 10));
  EXPECT_TRUE(holds_entry(clone, clone.find(sequence.id()).value(), 10));
  stepped(cache, with_entry(batch_of(fork, 8, 1), 3, 8, 9), 2).commit().value();
  EXPECT_TRUE(holds_entry(cache, sequence, 10)) << "the fork's own is another";
}

TEST(Cross, IsDroppedWithTheFirstOfItsOwners) {
  const auto after = [](auto&& edit) {
    Cache cache = Cache::create(cross_spec()).value();
    const Sequence sequence = with_entry(cache, 6);
    edit(sequence);
    const bool left = sequence.has_cross().value();
    EXPECT_TRUE(left ? holds_entry(cache, sequence, 6) : holds_no_entry(sequence));
    return left;
  };
  EXPECT_TRUE(after([](const Sequence& s) { s.truncate(5).value(); }));
  EXPECT_FALSE(after([](const Sequence& s) { s.truncate(4).value(); }));
  EXPECT_FALSE(after([](const Sequence& s) { s.truncate(0).value(); }));
  EXPECT_TRUE(after([](const Sequence& s) { s.keep_last(6).value(); }));
  EXPECT_FALSE(after([](const Sequence& s) { s.keep_last(5).value(); }));
  EXPECT_TRUE(after([](const Sequence& s) { s.remove(5, 7).value(); }));
  EXPECT_TRUE(after([](const Sequence& s) { s.remove(0, 2).value(); }));
  EXPECT_FALSE(after([](const Sequence& s) { s.remove(0, 3).value(); }));
  EXPECT_FALSE(after([](const Sequence& s) { s.remove(4, 5, true).value(); }));
  EXPECT_FALSE(after([](const Sequence& s) { s.remove(3, 8).value(); }));
  EXPECT_TRUE(after([](const Sequence& s) { s.shift_left(2).value(); }));
  EXPECT_FALSE(after([](const Sequence& s) { s.shift_left(3).value(); }));
}

TEST(Cross, MovesWithItsOwners) {
  Cache cache = Cache::create(cross_spec()).value();
  const Sequence sequence = with_entry(cache, 6);
  sequence.remove(0, 2).value();  // owned by [0, 3) now
  EXPECT_TRUE(holds_entry(cache, sequence, 6));
  EXPECT_TRUE(sequence.fork(3).value().sequence.has_cross().value());
  EXPECT_FALSE(sequence.fork(2).value().sequence.has_cross().value());
  sequence.remove(0, 1).value();
  EXPECT_TRUE(holds_no_entry(sequence));
}

TEST(Cross, AForkBelowItsOwnersHasNone) {
  Cache cache = Cache::create(cross_spec()).value();
  const Sequence sequence = with_entry(cache, 6);
  EXPECT_FALSE(sequence.fork(4).value().sequence.has_cross().value());
  EXPECT_TRUE(sequence.fork(5).value().sequence.has_cross().value());
  EXPECT_TRUE(holds_entry(cache, sequence, 6));
}

TEST(Cross, OwnersThatAWindowHasLetGoStillOwnIt) {
  CacheSpec spec = pattern_spec({Pattern::window(2), Pattern::cross()});
  spec.rollback = 0;
  spec.layers[0].rotation = Rotation::none();
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = with_entry(cache, 6);
  append_singly(cache, sequence, 8, 4);
  ASSERT_EQ(positions_of(sequence), range(10, 12));
  EXPECT_TRUE(holds_entry(cache, sequence, 6));
  sequence.remove(3, 4).value();
  EXPECT_TRUE(holds_no_entry(sequence));
}

// --- steps ---------------------------------------------------------------------------------------

TEST(Cross, ADroppedStepRestoresTheEntryBefore) {
  Cache cache = Cache::create(cross_spec()).value();
  const Sequence sequence = with_entry(cache, 10);
  const Snapshot before = snapshot(cache);
  { const Step step = stepped(cache, with_entry(batch_of(sequence, 8, 1), 3, 8, 9), 2); }
  EXPECT_EQ(snapshot(cache), before);
  EXPECT_TRUE(holds_entry(cache, sequence, 10));
}

TEST(Cross, APartialCommitThatCutsTheOwnerKeepsTheEntryBefore) {
  Cache cache = Cache::create(cross_spec()).value();
  const Sequence sequence = with_entry(cache, 10);
  Step step = stepped(cache, with_entry(batch_of(sequence, 8, 4), 3, 9, 11), 2);
  step.commit({2}).value();  // 8 and 9; 10 owned the new entry too
  EXPECT_EQ(positions_of(sequence), range(0, 10));
  EXPECT_TRUE(holds_entry(cache, sequence, 10));
  Step next = stepped(cache, with_entry(batch_of(sequence, 10, 4), 3, 10, 12), 2);
  next.commit({2}).value();
  EXPECT_TRUE(holds_entry(cache, sequence, 3, 2)) << "all its owners were taken";
}

TEST(Cross, APartialCommitThatCutsTheOnlyEntryLeavesNone) {
  Cache cache = Cache::create(cross_spec()).value();
  const Sequence sequence = filled(cache, 3);
  stepped(cache, with_entry(batch_of(sequence, 3, 4), 6, 5, 7), 2).commit({1}).value();
  EXPECT_TRUE(holds_no_entry(sequence));
  EXPECT_EQ(cache.stats().pages_used, 1);
}

TEST(Cross, ALayerIsPutOnlyInAStepThatBringsAnEntry) {
  CacheSpec spec = cross_spec();
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  const Batch plain = batch_of(sequence, 0, 2);
  const Batch bringing = with_entry(plain, 3, 0, 1);
  Step step = cache.begin(plain).value();
  EXPECT_TRUE(fails(put(step, spec, 1, bringing), ErrorCode::wrong_state, {"layer 1", "no entry"}));
  put(step, spec, 0, plain).value();
  step.commit().value();
  const Batch next = with_entry(batch_of(sequence, 2, 1), 3, 2, 3);
  Step second = cache.begin(next).value();
  put(second, spec, 0, next).value();
  EXPECT_TRUE(fails(second.commit(), ErrorCode::wrong_state, {"layer 1"}));
  EXPECT_TRUE(fails(second.attend(1, known_queries(1, 2, 4).view(), Rows(1, 2, 4).out()),
                    ErrorCode::wrong_state, {"layer 1"}));
  EXPECT_TRUE(fails(put(second, spec, 1, with_entry(plain, 4, 0, 1)), ErrorCode::mismatch,
                    {"[4]", "3 tokens"}));
  put(second, spec, 1, next).value();
  second.commit().value();
  EXPECT_TRUE(holds_entry(cache, sequence, 3, 0));
}

TEST(Cross, ARefusedPutCanBePutAgain) {
  CacheSpec spec = cross_spec("int8");
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = with_entry(cache, 10);
  const Batch batch = with_entry(batch_of(sequence, 8, 1), 6, 8, 9);
  Step step = cache.begin(batch).value();
  Rows bad(6, 2, 4);
  bad.at(5, 1)[2] = kInfinity;
  EXPECT_TRUE(fails(step.put(1, Rows(6, 2, 4).view(), bad.view()), ErrorCode::non_finite,
                    {"layer 1", "value", "token 5", "head 1", "channel 2"}));
  put_all(step, spec, batch, 2);
  step.commit().value();
  EXPECT_EQ(sequence.length(1).value(), 6);
}

TEST(Cross, EntriesAreChecked) {
  Cache cache = Cache::create(cross_spec()).value();
  const Sequence sequence = filled(cache, 3);
  const Sequence other = filled(cache, 3);
  const Snapshot before = snapshot(cache);
  const Batch batch = batch_of(sequence, 3, 2);
  const auto refused = [&](const Batch& asked, ErrorCode code, const std::string& what) {
    return fails(cache.begin(asked), code, {"cross", what});
  };
  EXPECT_TRUE(refused(with_entry(batch, 0, 3, 4), ErrorCode::invalid_argument, "0 tokens"));
  EXPECT_TRUE(refused(with_entry(batch, -5, 3, 4), ErrorCode::invalid_argument, "-5 tokens"));
  EXPECT_TRUE(refused(with_entry(batch, 4, 3, 6), ErrorCode::out_of_range, "[3, 6)"));
  EXPECT_TRUE(refused(with_entry(batch, 4, 4, 3), ErrorCode::out_of_range, "[4, 3)"));
  EXPECT_TRUE(refused(with_entry(batch, 4, 3, 3), ErrorCode::out_of_range, "[3, 3)")) << "nobody";
  EXPECT_TRUE(refused(with_entry(with_entry(batch, 4, 3, 4), 4, 3, 4), ErrorCode::invalid_argument,
                      "second"));
  Batch elsewhere = batch;
  elsewhere.cross.push_back({other.id(), 4, 0, 1});
  EXPECT_TRUE(refused(elsewhere, ErrorCode::invalid_argument, "no token"));
  EXPECT_EQ(snapshot(cache), before);
  EXPECT_TRUE(succeeds(cache.begin(with_entry(batch, 4, 1, 3)))) << "owners of earlier steps";
}

TEST(Cross, ACacheWithoutCrossLayersTakesNone) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence sequence = cache.open().value();
  EXPECT_TRUE(fails(cache.begin(with_entry(batch_of(sequence, 0, 2), 3, 0, 1)),
                    ErrorCode::not_supported, {"3 tokens"}));
  EXPECT_FALSE(sequence.has_cross().value());
}

}  // namespace
}  // namespace quire::test
