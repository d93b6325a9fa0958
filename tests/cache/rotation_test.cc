// Tokens that move: turned by rotary data without touching a page, or made anew by a function.
#include <gtest/gtest.h>

#include <cmath>

#include "cache/fixture.h"

namespace quire::test {
namespace {

// A key as an engine would make it for a position, from its part without one.
void rotate(const Rope& rope, int dim, std::int64_t position, float* key) {
  const int size = rope.size > 0 ? rope.size : dim - rope.offset;
  const int pairs = size / 2;
  for (int i = 0; i < pairs; ++i) {
    const double factor = rope.factors.empty() ? 1.0 : rope.factors[index_of(i)];
    const double angle = static_cast<double>(position) * rope.frequency_scale *
                         std::pow(rope.base, -2.0 * i / size) / factor;
    const bool halves = rope.pairs == Rope::Pairs::halves;
    float& x = key[rope.offset + (halves ? i : 2 * i)];
    float& y = key[rope.offset + (halves ? i + pairs : 2 * i + 1)];
    const double turned =
        static_cast<double>(x) * std::cos(angle) - static_cast<double>(y) * std::sin(angle);
    y = static_cast<float>(static_cast<double>(x) * std::sin(angle) +
                           static_cast<double>(y) * std::cos(angle));
    x = static_cast<float>(turned);
  }
}

// Contents that do not depend on where they stand: token `content` at a position.
struct Placed {
  std::int64_t content;
  std::int64_t position;
};

Rows keys_of(const CacheSpec& spec, int layer, const std::vector<Placed>& tokens) {
  const LayerSpec& shape = spec.layers[index_of(layer)];
  std::vector<std::int64_t> contents;
  for (const Placed& token : tokens) contents.push_back(token.content);
  Rows keys = known_rows(shape, layer, Side::key, contents);
  if (shape.rotation.kind != Rotation::Kind::rope) return keys;
  for (std::int64_t t = 0; t < keys.tokens; ++t) {
    for (int h = 0; h < keys.heads; ++h) {
      rotate(shape.rotation.rope, shape.key_dim, tokens[index_of(t)].position, keys.at(t, h));
    }
  }
  return keys;
}

Rows values_of(const CacheSpec& spec, int layer, const std::vector<Placed>& tokens) {
  std::vector<std::int64_t> contents;
  for (const Placed& token : tokens) contents.push_back(token.content);
  return known_rows(spec.layers[index_of(layer)], layer, Side::value, contents);
}

Step placed(Cache& cache, const Sequence& sequence, const std::vector<Placed>& tokens) {
  const CacheSpec& spec = cache.spec();
  Batch batch;
  for (const Placed& token : tokens) batch.add(sequence.id(), token.position, 1);
  Step step = cache.begin(batch).value();
  for (int layer = 0; layer < static_cast<int>(spec.layers.size()); ++layer) {
    const Rows keys = keys_of(spec, layer, tokens);
    if (spec.layers[index_of(layer)].mla) {
      step.put(layer, keys.view()).value();
    } else {
      step.put(layer, keys.view(), values_of(spec, layer, tokens).view()).value();
    }
  }
  return step;
}

std::vector<Placed> in_place(std::int64_t begin, std::int64_t end) {
  std::vector<Placed> tokens;
  for (const std::int64_t p : range(begin, end)) tokens.push_back({p, p});
  return tokens;
}

void expect_near(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 2e-5) << i;
}

// Attention and keys after removals must be those of a cache built at the new positions.
void expect_like_built_anew(const CacheSpec& spec) {
  Cache cache = Cache::create(spec).value();
  const Sequence moved = cache.open().value();
  placed(cache, moved, in_place(0, 13)).commit().value();
  const std::int64_t pages = cache.stats().pages_used;
  moved.remove(3, 7).value();  // 7 .. 12 moved to 3 .. 8
  moved.remove(1, 2).value();  // and once more
  EXPECT_LE(cache.stats().pages_used, pages) << "no page is made";
  std::vector<Placed> now = {{0, 0}, {2, 1}};
  for (const std::int64_t p : range(7, 13)) now.push_back({p, p - 5});

  Cache other = Cache::create(spec).value();
  const Sequence built = other.open().value();
  placed(other, built, now).commit().value();
  ASSERT_EQ(positions_of(moved), positions_of(built));

  const std::vector<Placed> next = {{20, 8}, {21, 9}};
  Step step = placed(cache, moved, next);
  Step expected = placed(other, built, next);
  for (int layer = 0; layer < static_cast<int>(spec.layers.size()); ++layer) {
    const LayerSpec& shape = spec.layers[index_of(layer)];
    const Rows q = known_queries(2, 2 * shape.kv_heads, shape.key_dim);
    expect_near(attend(step, spec, layer, q).data, attend(expected, spec, layer, q).data);
    const Gathered size = step.gather_size(layer, {moved.id()}, {}).value();
    std::vector<float> keys(index_of(size.key_elements));
    step.gather(layer, {moved.id()}, {}, keys.data(), size.key_elements, nullptr, 0).value();
    now.insert(now.end(), next.begin(), next.end());
    expect_near(keys, keys_of(spec, layer, now).data);
    now.resize(now.size() - next.size());
    expect_near(read_all(moved, layer, Side::key), keys_of(spec, layer, now).data);
  }
}

CacheSpec rope_spec(const Rope& rope, int dim = 8) {
  CacheSpec spec = small_spec(2);
  for (LayerSpec& layer : spec.layers) {
    layer.key_dim = dim;
    layer.rotation = Rotation::with_rope(rope);
  }
  return spec;
}

TEST(Rotation, BothPairConventionsTurnWithTheirTokens) {
  for (const Rope::Pairs pairs : {Rope::Pairs::halves, Rope::Pairs::interleaved}) {
    Rope rope;
    rope.pairs = pairs;
    expect_like_built_anew(rope_spec(rope));
  }
}

TEST(Rotation, BaseAndScalingAreThoseOfTheSpec) {
  Rope rope;
  rope.base = 500.0;
  rope.frequency_scale = 0.25;
  rope.factors = {1.0, 2.0, 4.0, 8.0};
  expect_like_built_anew(rope_spec(rope));
}

TEST(Rotation, OnlyTheRotaryChannelsTurn) {
  for (const Rope::Pairs pairs : {Rope::Pairs::halves, Rope::Pairs::interleaved}) {
    Rope rope;
    rope.pairs = pairs;
    rope.offset = 3;
    rope.size = 4;
    expect_like_built_anew(rope_spec(rope, 9));
  }
}

TEST(Rotation, LayersMayTurnDifferently) {
  CacheSpec spec = rope_spec({}, 8);
  spec.layers[1].rotation.rope.base = 100.0;
  spec.layers[1].rotation.rope.pairs = Rope::Pairs::interleaved;
  expect_like_built_anew(spec);
}

TEST(Rotation, KeysWithoutPositionsStayAsTheyAre) {
  CacheSpec spec = small_spec(2);
  spec.layers[0].rotation = Rotation::none();
  spec.layers[1].rotation = Rotation::none();
  spec.layers[1].slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
  expect_like_built_anew(spec);
}

TEST(Rotation, TheRotaryPartOfAnMlaLayerTurns) {
  CacheSpec spec = CacheSpec::mla(1, 2, 6, 4);
  spec.set_codec("f32", "f32");
  spec.page_tokens = 4;
  expect_like_built_anew(spec);
}

TEST(Rotation, ALayerThatReadsAnotherTurnsToo) {
  CacheSpec spec = rope_spec({}, 8);
  spec.layers[1].kv_of = 0;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  Step first = cache.begin(batch_of(sequence, 0, 6)).value();
  first.put(0, keys_of(spec, 0, in_place(0, 6)).view(), values_of(spec, 0, in_place(0, 6)).view())
      .value();
  first.commit().value();
  sequence.remove(0, 3).value();
  expect_near(read_all(sequence, 1, Side::key), read_all(sequence, 0, Side::key));
  expect_near(read_all(sequence, 1, Side::key), keys_of(spec, 0, {{3, 0}, {4, 1}, {5, 2}}).data);
}

TEST(Rotation, RunsSayHowFarTheirKeysMustBeTurned) {
  Cache cache = Cache::create(rope_spec({})).value();
  const Sequence sequence = cache.open().value();
  placed(cache, sequence, in_place(0, 10)).commit().value();
  sequence.remove(2, 5).value();
  for (const RunView& run : sequence.runs(0).value()) {
    EXPECT_EQ(run.turn, run.positions.at(0) < 2 ? 0 : -3);
  }
}

TEST(Rotation, SealedBytesAreNotTouched) {
  CacheSpec spec = rope_spec({});
  spec.set_codec("int8", "int8");
  spec.rollback = 0;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  placed(cache, sequence, in_place(0, 12)).commit().value();
  const std::byte* last = sequence.runs(0).value().back().data;
  sequence.remove(1, 3).value();
  EXPECT_EQ(sequence.runs(0).value().back().data, last);
}

TEST(Rotation, AnOverwrittenKeyIsTheOneGivenForItsPresentPosition) {
  CacheSpec spec = rope_spec({});
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  placed(cache, sequence, in_place(0, 10)).commit().value();
  sequence.remove(2, 5).value();
  for (const std::int64_t position : {3, 6}) {  // in a full page and in the open one
    const Rows key = keys_of(spec, 0, {{50, position}});
    sequence.overwrite(0, position, key.view(), values_of(spec, 0, {{50, position}}).view())
        .value();
    float found[16];
    sequence.read(0, Side::key, {position, position + 1}, found, 16).value();
    expect_near(std::vector<float>(found, found + 16), key.data);
  }
}

// --- a caller's function -------------------------------------------------------------------------

// Adds the distance to channel 1 of every head, which any number format here holds exactly.
struct Call {
  int layer, heads, dim;
  std::int64_t from, to;
};

CacheSpec function_spec(std::vector<Call>* calls, const std::string& codec = "f32") {
  CacheSpec spec = small_spec(2, codec);
  spec.layers[0].rotation = Rotation::with_function(
      [calls](int layer, float* keys, int heads, int dim, std::int64_t from, std::int64_t to) {
        if (calls != nullptr) calls->push_back({layer, heads, dim, from, to});
        for (int h = 0; h < heads; ++h) keys[h * dim + 1] += static_cast<float>(to - from);
      });
  spec.layers[1].rotation = Rotation::none();
  return spec;
}

// Known keys of layer 0, with channel 1 moved by `distance`.
std::vector<float> shifted_keys(const CacheSpec& spec, const std::vector<std::int64_t>& contents,
                                float distance) {
  Rows rows = known_rows(spec.layers[0], 0, Side::key, contents);
  for (std::int64_t t = 0; t < rows.tokens; ++t) {
    for (int h = 0; h < rows.heads; ++h) rows.at(t, h)[1] += distance;
  }
  return rows.data;
}

std::vector<float> joined(std::vector<float> a, const std::vector<float>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(RotateFunction, IsCalledForEveryTokenThatMoves) {
  std::vector<Call> calls;
  Cache cache = Cache::create(function_spec(&calls)).value();
  const Sequence sequence = filled(cache, 10);
  sequence.remove(2, 5).value();
  ASSERT_EQ(calls.size(), 5u);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].layer, 0) << "layer 1 has none";
    EXPECT_EQ(calls[i].heads, 2);
    EXPECT_EQ(calls[i].dim, 4);
    EXPECT_EQ(calls[i].from, 5 + static_cast<std::int64_t>(i));
    EXPECT_EQ(calls[i].to, 2 + static_cast<std::int64_t>(i));
  }
}

TEST(RotateFunction, MakesNewKeysAndLeavesValues) {
  const CacheSpec spec = function_spec(nullptr);
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 10);
  sequence.remove(2, 5).value();
  EXPECT_EQ(read_all(sequence, 0, Side::key),
            joined(shifted_keys(spec, range(0, 2), 0), shifted_keys(spec, range(5, 10), -3)));
  std::vector<std::int64_t> left = range(0, 2);
  for (const std::int64_t p : range(5, 10)) left.push_back(p);
  EXPECT_EQ(read_all(sequence, 0, Side::value),
            known_rows(spec.layers[0], 0, Side::value, left).data);
  EXPECT_EQ(read_all(sequence, 1, Side::key), known_rows(spec.layers[1], 1, Side::key, left).data);
  for (const RunView& run : sequence.runs(0).value()) EXPECT_EQ(run.turn, 0);
}

TEST(RotateFunction, LeavesTheKeysOfOtherSequences) {
  const CacheSpec spec = function_spec(nullptr);
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 10);
  const Sequence fork = sequence.fork().value();
  sequence.remove(2, 5).value();
  EXPECT_TRUE(holds(cache, fork, 0, range(0, 10)));
  EXPECT_TRUE(holds(cache, fork, 1, range(0, 10)));
}

// Several runs of one page, open or full, moved together.
TEST(RotateFunction, MovesAPageInPieces) {
  for (const std::string codec : {"f32", "f16"}) {
    CacheSpec spec = function_spec(nullptr, codec);
    spec.page_tokens = 16;
    Cache cache = Cache::create(spec).value();
    const Sequence sequence = filled(cache, 24);
    sequence.remove(10, 12).value();  // 12 .. 23 moved by 2
    sequence.remove(17, 18).value();  // 20 .. 23 moved by 3, in the open page
    sequence.remove(1, 3).value();    // all by 2 more
    std::vector<float> expected = shifted_keys(spec, {0}, 0);
    expected = joined(expected, shifted_keys(spec, range(3, 10), -2));
    expected = joined(expected, shifted_keys(spec, range(12, 19), -4));
    expected = joined(expected, shifted_keys(spec, range(20, 24), -5));
    EXPECT_EQ(read_all(sequence, 0, Side::key), expected);
    append(cache, sequence, 19, 20, 1);
    std::vector<float> after = read_all(sequence, 0, Side::key);
    after.resize(expected.size());
    EXPECT_EQ(after, expected) << "also once the page is full";
  }
}

// Sum of squares of differences over that of `exact`.
double relative_error(const std::vector<float>& found, const std::vector<float>& exact) {
  EXPECT_EQ(found.size(), exact.size());
  double error = 0;
  double energy = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    error += std::pow(double{found[i]} - exact[i], 2);
    energy += std::pow(double{exact[i]}, 2);
  }
  return error / energy;
}

// Whatever the codec, a page is encoded once more, and not once for each of its tokens.
TEST(RotateFunction, EncodesAPageOnce) {
  for (const std::string& codec : codec_names()) {
    CacheSpec spec = small_spec();
    spec.set_codec(codec, "f16");
    spec.layers[0].key_dim = 64;
    spec.layers[0].rotation =
        Rotation::with_function([](int, float*, int, int, std::int64_t, std::int64_t) {});
    spec.page_tokens = 32;
    for (const int rollback : {0, 64}) {  // pages of codes alone, and with rows
      spec.rollback = rollback;
      Cache cache = Cache::create(spec).value();
      const Sequence sequence = filled(cache, 96);
      const std::vector<float> exact = known_rows(spec.layers[0], 0, Side::key, range(32, 96)).data;
      const std::vector<float> all = read_all(sequence, 0, Side::key);
      const std::vector<float> before(all.begin() + 32 * 2 * 64, all.end());
      sequence.remove(0, 32).value();
      const std::vector<float> after = read_all(sequence, 0, Side::key);
      if (rollback > 0) {
        EXPECT_EQ(after, before) << codec;
      }
      EXPECT_LE(relative_error(after, exact), 2.5 * relative_error(before, exact)) << codec;
    }
  }
}

// Also where the sequence shows it in several pieces.
TEST(RotateFunction, EncodesAPageInPiecesOnce) {
  CacheSpec spec = small_spec();
  spec.set_codec("dual3", "f16");
  spec.layers[0].key_dim = 64;
  spec.layers[0].rotation =
      Rotation::with_function([](int, float*, int, int, std::int64_t, std::int64_t) {});
  spec.page_tokens = 32;
  spec.rollback = 0;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 64);
  std::vector<float> exact;
  std::vector<float> before;
  const std::vector<float> all = read_all(sequence, 0, Side::key);
  for (std::int64_t p = 32; p < 64; ++p) {
    if (p % 4 == 1) {
      sequence.remove(p, p + 1, true).value();
      continue;
    }
    const std::vector<float> row = known_rows(spec.layers[0], 0, Side::key, {p}).data;
    exact.insert(exact.end(), row.begin(), row.end());
    before.insert(before.end(), all.begin() + p * 2 * 64, all.begin() + (p + 1) * 2 * 64);
  }
  sequence.remove(0, 32).value();
  EXPECT_LE(relative_error(read_all(sequence, 0, Side::key), exact),
            2.5 * relative_error(before, exact));
}

TEST(RotateFunction, AKeyItMakesThatIsNotFiniteIsRefusedAndChangesNothing) {
  CacheSpec spec = small_spec();
  spec.layers[0].rotation =
      Rotation::with_function([](int, float* keys, int, int, std::int64_t from, std::int64_t) {
        if (from == 8) keys[2] = kInfinity;
      });
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 10);
  const Snapshot before = snapshot(cache);
  EXPECT_TRUE(fails(sequence.remove(2, 5), ErrorCode::non_finite, {"layer 0", "channel 2"}));
  EXPECT_EQ(snapshot(cache), before);
}

TEST(RotateFunction, WhatItThrowsIsAnErrorAndChangesNothing) {
  CacheSpec spec = small_spec();
  spec.layers[0].rotation =
      Rotation::with_function([](int, float*, int, int, std::int64_t, std::int64_t) {
        throw std::runtime_error("no table");
      });
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 10);
  const Snapshot before = snapshot(cache);
  EXPECT_TRUE(fails(sequence.remove(2, 5), ErrorCode::internal, {"no table"}));
  EXPECT_EQ(snapshot(cache), before);
}

TEST(RotateFunction, LivesBesideRotaryLayersInOneGroup) {
  CacheSpec spec = function_spec(nullptr);
  spec.layers[1].rotation = Rotation::with_rope({});
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  placed(cache, sequence, in_place(0, 10)).commit().value();
  sequence.remove(2, 5).value();
  sequence.remove(0, 1).value();
  EXPECT_EQ(read_all(sequence, 0, Side::key),
            joined(shifted_keys(spec, {1}, -1), shifted_keys(spec, range(5, 10), -4)));
  std::vector<Placed> now = {{1, 0}};
  for (const std::int64_t p : range(5, 10)) now.push_back({p, p - 4});
  expect_near(read_all(sequence, 1, Side::key), keys_of(spec, 1, now).data);
}

}  // namespace
}  // namespace quire::test
