// Replacing one stored token of one layer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cache/fixture.h"

namespace quire::test {
namespace {

struct Pair {
  Rows key;
  Rows value;
};

Pair other_row(const CacheSpec& spec, int layer, std::int64_t position, int tag = 9) {
  const LayerSpec& shape = spec.layers[index_of(layer)];
  return {known_rows(shape, layer, Side::key, {position}, tag),
          known_rows(shape, layer, Side::value, {position}, tag)};
}

// Rows with the one at `position` replaced.
std::vector<float> with_row(std::vector<float> rows, std::int64_t position, const Rows& row) {
  std::copy(row.data.begin(), row.data.end(),
            rows.begin() + position * static_cast<std::int64_t>(row.data.size()));
  return rows;
}

TEST(Overwrite, ReplacesOneTokenOfOneLayer) {
  const CacheSpec spec = small_spec(2);
  for (const std::int64_t position : {0, 5, 7, 8, 9}) {  // full pages and the open one
    Cache cache = Cache::create(spec).value();
    const Sequence sequence = filled(cache, 10);
    const std::vector<float> keys = read_all(sequence, 0, Side::key);
    const std::vector<float> values = read_all(sequence, 0, Side::value);
    const Pair row = other_row(spec, 0, position);
    sequence.overwrite(0, position, row.key.view(), row.value.view()).value();
    EXPECT_EQ(read_all(sequence, 0, Side::key), with_row(keys, position, row.key));
    EXPECT_EQ(read_all(sequence, 0, Side::value), with_row(values, position, row.value));
    EXPECT_TRUE(holds(cache, sequence, 1, range(0, 10)));
    append(cache, sequence, 10, 4);
    std::vector<float> later = read_all(sequence, 0, Side::key);
    later.resize(keys.size());
    EXPECT_EQ(later, with_row(keys, position, row.key)) << "also after the page is full";
  }
}

TEST(Overwrite, ASharedPageIsCopied) {
  const CacheSpec spec = small_spec(2);
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 10);
  const Sequence fork = sequence.fork().value();
  const Pair row = other_row(spec, 0, 5);
  sequence.overwrite(0, 5, row.key.view(), row.value.view()).value();
  EXPECT_TRUE(holds(cache, fork, 0, range(0, 10)));
  EXPECT_TRUE(holds(cache, fork, 1, range(0, 10)));
  EXPECT_EQ(cache.stats().pages_used, 4) << "one page of three";
  EXPECT_EQ(cache.stats().pages_shared, 2);
}

TEST(Overwrite, MakesTheHistoryInexactFromThere) {
  const CacheSpec spec = small_spec();
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 10);
  const Pair row = other_row(spec, 0, 5);
  sequence.overwrite(0, 5, row.key.view(), row.value.view()).value();
  EXPECT_FALSE(sequence.is_exact().value());
  sequence.truncate(5).value();
  EXPECT_TRUE(sequence.is_exact().value());
}

// The codes of the other tokens stay, bit for bit.
TEST(Overwrite, OfACodedTokenLeavesTheOthersCodes) {
  for (const std::string codec :
       {"int8", "fp8_e4m3", "fp8_e5m2", "bf16", "tq6", "tq3", "q8_0", "q4_0"}) {
    CacheSpec spec = small_spec(1, codec);
    spec.layers[0].key_dim = spec.layers[0].value_dim = 32;
    spec.rollback = 0;
    Cache cache = Cache::create(spec).value();
    const Sequence sequence = filled(cache, 8);
    Cache lone = Cache::create(spec).value();
    const Sequence alone = lone.open().value();
    const Pair row = other_row(spec, 0, 5);
    {
      const Batch batch = batch_of(alone, 0, 8);
      Step step = lone.begin(batch).value();
      Rows keys = known_rows(spec.layers[0], 0, Side::key, range(0, 8));
      Rows values = known_rows(spec.layers[0], 0, Side::value, range(0, 8));
      keys.data = with_row(keys.data, 5, row.key);
      values.data = with_row(values.data, 5, row.value);
      step.put(0, keys.view(), values.view()).value();
      step.commit().value();
    }
    sequence.overwrite(0, 5, row.key.view(), row.value.view()).value();
    EXPECT_EQ(read_all(sequence, 0, Side::key), read_all(alone, 0, Side::key)) << codec;
    EXPECT_EQ(read_all(sequence, 0, Side::value), read_all(alone, 0, Side::value)) << codec;
  }
}

// A codec that looks at all tokens of a page encodes it again from what it decodes to: the new
// token is there, and the others are about where they were.
TEST(Overwrite, OfATokenCodedWithItsPageEncodesThePageAgain) {
  for (const std::string codec : {"dual6", "dual4"}) {
    CacheSpec spec = small_spec(1);
    spec.set_codec(codec, "f16");
    spec.layers[0].key_dim = 64;
    spec.page_tokens = 16;
    spec.rollback = 0;
    Cache cache = Cache::create(spec).value();
    const Sequence sequence = filled(cache, 32);
    const std::vector<float> keys = read_all(sequence, 0, Side::key);
    const std::vector<float> values = read_all(sequence, 0, Side::value);
    const Pair row = other_row(spec, 0, 5);
    sequence.overwrite(0, 5, row.key.view(), row.value.view()).value();
    const std::vector<float> now = read_all(sequence, 0, Side::key);
    const std::vector<float> expected = with_row(keys, 5, row.key);
    ASSERT_EQ(now.size(), expected.size());
    const std::size_t page = 16 * 2 * 64;
    double error = 0;
    double energy = 0;
    for (std::size_t i = 0; i < page; ++i) {
      error += std::pow(double{now[i]} - expected[i], 2);
      energy += std::pow(double{expected[i]}, 2);
    }
    EXPECT_LT(error, (codec == "dual6" ? 0.002 : 0.02) * energy) << codec;
    EXPECT_TRUE(std::equal(now.begin() + page, now.end(), keys.begin() + page));
    EXPECT_EQ(read_all(sequence, 0, Side::value), with_row(values, 5, row.value));
  }
}

// As long as a page has its rows they are what it is encoded from, so that nothing adds up.
TEST(Overwrite, OfATokenWhosePageHasRowsComesBackToTheSameCodes) {
  CacheSpec spec = small_spec(1);
  spec.set_codec("dual3", "f16");
  spec.layers[0].key_dim = 64;
  spec.page_tokens = 16;
  spec.rollback = 32;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 32);
  const std::vector<float> keys = read_all(sequence, 0, Side::key);
  const Rows key = known_rows(spec.layers[0], 0, Side::key, {5});
  const Rows value = known_rows(spec.layers[0], 0, Side::value, {5});
  const Pair row = other_row(spec, 0, 5);
  for (int i = 0; i < 3; ++i) {
    sequence.overwrite(0, 5, row.key.view(), row.value.view()).value();
    EXPECT_NE(read_all(sequence, 0, Side::key), keys);
    sequence.overwrite(0, 5, key.view(), value.view()).value();
    EXPECT_EQ(read_all(sequence, 0, Side::key), keys);
  }
}

TEST(Overwrite, OfAnMlaLayerTakesTheLatent) {
  CacheSpec spec = CacheSpec::mla(1, 2, 6, 4);
  spec.set_codec("f32", "f32");
  spec.page_tokens = 4;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 6);
  const Rows latent = known_rows(spec.layers[0], 0, Side::key, {2}, 9);
  const std::vector<float> before = read_all(sequence, 0, Side::key);
  sequence.overwrite(0, 2, latent.view(), {}).value();
  EXPECT_EQ(read_all(sequence, 0, Side::key), with_row(before, 2, latent));
}

TEST(Overwrite, OfACrossEntry) {
  const CacheSpec spec = pattern_spec({Pattern::causal(), Pattern::cross()});
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  Batch batch = batch_of(sequence, 0, 2);
  batch.cross.push_back({sequence.id(), 6, 0, 1});
  stepped(cache, batch).commit().value();
  const std::vector<float> before = read_all(sequence, 1, Side::key);
  const Pair row = other_row(spec, 1, 5);
  sequence.overwrite(1, 5, row.key.view(), row.value.view()).value();
  EXPECT_EQ(read_all(sequence, 1, Side::key), with_row(before, 5, row.key));
  EXPECT_TRUE(sequence.has_cross().value());
}

TEST(Overwrite, IsRefusedWholeWhenSomethingDoesNotFit) {
  const CacheSpec spec = small_spec(2);
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 6);
  append(cache, sequence, 8, 1);
  const Snapshot before = snapshot(cache);
  const Pair row = other_row(spec, 0, 2);
  const auto overwrite = [&](int layer, std::int64_t position, const TensorView& key,
                             const TensorView& value) {
    return sequence.overwrite(layer, position, key, value);
  };
  EXPECT_TRUE(fails(overwrite(0, 7, row.key.view(), row.value.view()), ErrorCode::out_of_range,
                    {"layer 0", "position 7"}));
  EXPECT_TRUE(
      fails(overwrite(0, 9, row.key.view(), row.value.view()), ErrorCode::out_of_range, {"9"}));
  EXPECT_TRUE(
      fails(overwrite(0, -1, row.key.view(), row.value.view()), ErrorCode::out_of_range, {"-1"}));
  EXPECT_TRUE(fails(overwrite(2, 2, row.key.view(), row.value.view()), ErrorCode::out_of_range,
                    {"layer 2"}));
  EXPECT_TRUE(fails(overwrite(0, 2, Rows(2, 2, 4).view(), row.value.view()), ErrorCode::mismatch,
                    {"key", "[2][2][4]", "[1 tokens][2 heads][4]"}));
  EXPECT_TRUE(fails(overwrite(0, 2, row.key.view(), Rows(1, 2, 3).view()), ErrorCode::mismatch,
                    {"value", "[1][2][3]"}));
  EXPECT_TRUE(fails(overwrite(0, 2, {}, row.value.view()), ErrorCode::invalid_argument, {"key"}));
  EXPECT_TRUE(fails(overwrite(0, 2, row.key.view(), {}), ErrorCode::invalid_argument, {"value"}));
  TensorView strange = row.key.view();
  strange.dtype = static_cast<DType>(6);
  EXPECT_TRUE(fails(overwrite(0, 2, strange, row.value.view()), ErrorCode::mismatch, {"dtype 6"}));
  Rows bad = row.value;
  bad.at(0, 1)[3] = kInfinity;
  EXPECT_TRUE(fails(overwrite(0, 2, row.key.view(), bad.view()), ErrorCode::non_finite,
                    {"overwrite", "layer 0", "value", "head 1", "channel 3"}));
  EXPECT_EQ(snapshot(cache), before);
}

}  // namespace
}  // namespace quire::test
