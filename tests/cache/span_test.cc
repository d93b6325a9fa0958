// Spans: tokens that see each other whatever their order, and that no cut divides.
#include <gtest/gtest.h>

#include "cache/fixture.h"

namespace quire::test {
namespace {

using Seens = std::vector<std::vector<std::int64_t>>;

Batch with_span(Batch batch, std::int64_t begin, std::int64_t end) {
  batch.spans.push_back({batch.tokens.front().sequence, begin, end});
  return batch;
}

// A sequence of 10 tokens with a span over [3, 7), after 2 tokens of its own step.
Sequence with_image(Cache& cache) {
  const Sequence sequence = filled(cache, 1);
  stepped(cache, with_span(batch_of(sequence, 1, 9), 3, 7)).commit().value();
  return sequence;
}

TEST(Span, ItsTokensSeeUpToItsEnd) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence sequence = filled(cache, 2);
  const Batch batch = with_span(batch_of(sequence, 2, 5), 3, 6);
  const Step step = stepped(cache, batch);
  EXPECT_EQ(seen_positions(step, 0, batch),
            (Seens{range(0, 3), range(0, 6), range(0, 6), range(0, 6), range(0, 7)}));
}

TEST(Span, LowerBoundsOfWindowsAndChunksStay) {
  Cache cache = Cache::create(pattern_spec({Pattern::window(2), Pattern::chunked(4)})).value();
  const Sequence sequence = filled(cache, 2);
  const Batch batch = with_span(batch_of(sequence, 2, 5), 3, 6);
  const Step step = stepped(cache, batch);
  EXPECT_EQ(seen_positions(step, 0, batch),
            (Seens{range(1, 3), range(2, 6), range(3, 6), range(4, 6), range(5, 7)}));
  EXPECT_EQ(seen_positions(step, 1, batch),
            (Seens{range(0, 3), range(0, 6), range(4, 6), range(4, 6), range(4, 7)}));
}

TEST(Span, AttentionFollowsTheMask) {
  CacheSpec spec = small_spec();
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  const Batch batch = with_span(batch_of(sequence, 0, 6), 1, 5);
  Step step = stepped(cache, batch);
  const Rows q = known_queries(6, 2, 4);
  const Rows out = attend(step, spec, 0, q);
  const Rows keys = known_rows(spec.layers[0], 0, Side::key, range(0, 6));
  const Rows values = known_rows(spec.layers[0], 0, Side::value, range(0, 6));
  const Seens seen = seen_positions(step, 0, batch);
  for (std::int64_t t = 0; t < 6; ++t) {
    for (int h = 0; h < 2; ++h) {
      std::vector<Seen> visible;
      for (const std::int64_t p : seen[index_of(t)])
        visible.push_back({keys.at(p, h), values.at(p, h)});
      EXPECT_TRUE(near(out.at(t, h), naive_attention(q.at(t, h), visible, 4, 4, {.scale = 0.5})));
    }
  }
}

TEST(Span, SpansOfAnEarlierStepStillHold) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence sequence = with_image(cache);
  const Batch batch = with_span(batch_of(sequence, 10, 4), 11, 13);
  const Step step = stepped(cache, batch);
  EXPECT_EQ(seen_positions(step, 0, batch),
            (Seens{range(0, 11), range(0, 13), range(0, 13), range(0, 14)}));
}

TEST(Span, TruncateMovesDownToItsBeginAndSaysSo) {
  for (const std::int64_t at : {4, 5, 6}) {
    Cache cache = Cache::create(small_spec()).value();
    const Sequence sequence = with_image(cache);
    const Cut cut = sequence.truncate(at).value();
    EXPECT_TRUE(cut.removed);
    EXPECT_EQ(cut.at, 3);
    EXPECT_EQ(positions_of(sequence), range(0, 3));
  }
  for (const std::int64_t at : {3, 7}) {
    Cache cache = Cache::create(small_spec()).value();
    const Sequence sequence = with_image(cache);
    EXPECT_EQ(sequence.truncate(at).value().at, at) << "its ends divide nothing";
    EXPECT_EQ(positions_of(sequence), range(0, at));
  }
}

TEST(Span, ForkAndCopyPrefixMoveDownToItsBegin) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence sequence = with_image(cache);
  const Forked forked = sequence.fork(5).value();
  EXPECT_EQ(forked.at, 3);
  EXPECT_EQ(positions_of(forked.sequence), range(0, 3));
  EXPECT_EQ(sequence.fork(7).value().at, 7);
  const Sequence target = cache.open().value();
  EXPECT_EQ(cache.copy_prefix(sequence.id(), target.id(), 6).value().at, 3);
  EXPECT_EQ(positions_of(target), range(0, 3));
  EXPECT_EQ(positions_of(sequence), range(0, 10));
}

TEST(Span, CommitNeverTakesAPartOfIt) {
  for (std::int64_t taken = 0; taken <= 9; ++taken) {
    Cache cache = Cache::create(small_spec()).value();
    const Sequence sequence = filled(cache, 1);
    Step step = stepped(cache, with_span(batch_of(sequence, 1, 9), 3, 7));
    const std::int64_t expected = taken > 2 && taken < 6 ? 2 : taken;  // token 2 is at position 3
    EXPECT_EQ(step.commit({taken}).value()[0].tokens, expected);
    EXPECT_TRUE(holds(cache, sequence, 0, range(0, 1 + expected)));
  }
}

TEST(Span, CannotBeResumedInside) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence sequence = with_image(cache);
  for (std::int64_t at = 0; at <= 10; ++at) {
    const bool inside = at > 3 && at < 7;
    EXPECT_EQ(sequence.can_resume(at).value(), inside ? Resume::no : Resume::exact) << at;
  }
}

TEST(Span, JoinsOneThatItMeetsWherePositionsRepeat) {
  CacheSpec spec = small_spec();
  spec.equal_positions = true;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  stepped(cache, with_span(batch_of(sequence, 0, 3), 1, 3)).commit().value();
  const Batch batch = with_span(batch_of(sequence, 2, 3), 2, 5);
  Step step = stepped(cache, batch);
  const std::vector<std::int64_t> all{0, 1, 2, 2, 3, 4};
  EXPECT_EQ(seen_positions(step, 0, batch), (Seens{all, all, all}));
  step.commit().value();
  EXPECT_EQ(sequence.truncate(4).value().at, 1) << "2 lies in both";
}

TEST(Span, IsForgottenWithItsTokens) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence sequence = with_image(cache);
  sequence.truncate(3).value();
  append(cache, sequence, 3, 7);
  EXPECT_EQ(sequence.truncate(5).value().at, 5);
}

TEST(Span, MovesWithItsTokens) {
  CacheSpec spec = small_spec();
  spec.layers[0].rotation = Rotation::none();
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = with_image(cache);
  sequence.remove(0, 2).value();  // now [1, 5)
  EXPECT_EQ(sequence.fork(5).value().at, 5);
  EXPECT_EQ(sequence.fork(4).value().at, 1);
  sequence.remove(2, 4).value();  // half of it is gone: [1, 3)
  EXPECT_EQ(sequence.fork(2).value().at, 1);
  EXPECT_EQ(sequence.fork(3).value().at, 3);
}

TEST(Span, GapsInSpansGoWithTheTokensBehindThem) {
  CacheSpec spec = small_spec();
  spec.layers[0].rotation = Rotation::none();
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 1);
  Batch batch = with_span(with_span(batch_of(sequence, 1, 3), 1, 3), 3, 6);
  batch.tokens[1].position = 5;
  batch.tokens[2].position = 6;
  stepped(cache, batch).commit().value();
  sequence.remove(5, 6).value();  // 0, 1 and 5; spans [1, 3) and [3, 5), the second without tokens
  sequence.truncate(5).value();
  EXPECT_EQ(sequence.next_position().value(), 2);
  EXPECT_EQ(sequence.can_resume(2).value(), Resume::exact);
}

TEST(Span, KeepLastMayDivideIt) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence sequence = with_image(cache);
  sequence.keep_last(5).value();  // 5 .. 9, of the span [5, 7)
  EXPECT_EQ(sequence.fork(6).value().at, 5);
  sequence.keep_last(3).value();
  EXPECT_EQ(sequence.fork(8).value().at, 8);
}

TEST(Span, LiesInTheBatch) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence sequence = filled(cache, 4);
  const Sequence other = filled(cache, 2);
  const Snapshot before = snapshot(cache);
  const Batch batch = batch_of(sequence, 4, 6);
  const auto refused = [&](Batch asked, const std::string& what) {
    return fails(cache.begin(asked), ErrorCode::invalid_argument, {"span", what});
  };
  EXPECT_TRUE(refused(with_span(batch, 3, 6), "[3, 6)"));
  EXPECT_TRUE(refused(with_span(batch, 8, 11), "[8, 11)"));
  EXPECT_TRUE(refused(with_span(batch, 6, 6), "empty"));
  EXPECT_TRUE(refused(with_span(batch, 7, 6), "[7, 6)"));
  EXPECT_TRUE(refused(with_span(with_span(batch, 5, 8), 7, 9), "another"));
  Batch elsewhere = batch;
  elsewhere.spans.push_back({other.id(), 4, 6});
  EXPECT_TRUE(refused(elsewhere, "no token"));
  EXPECT_EQ(snapshot(cache), before);
  EXPECT_TRUE(succeeds(cache.begin(with_span(with_span(batch, 7, 9), 5, 7)))) << "neighbours";
}

}  // namespace
}  // namespace quire::test
