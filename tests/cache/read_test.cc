// Reading rows back: ranges, heads, and which form of a page is read.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/numbers.h"
#include "cache/fixture.h"

namespace quire::test {
namespace {

// What int8 gives back for one row: one f16 scale, codes of nearest.
std::vector<float> int8_of(const float* row, int dim) {
  float largest = 0;
  for (int c = 0; c < dim; ++c) largest = std::max(largest, std::fabs(row[c]));
  const float scale = f32_from_f16(f16_from_f32(largest / 127.0f));
  std::vector<float> coded;
  for (int c = 0; c < dim; ++c) {
    coded.push_back(scale > 0 ? std::nearbyint(row[c] / scale) * scale : 0.0f);
  }
  return coded;
}

// Known keys of layer 0, those with `coded` positions as int8 gives them back.
std::vector<float> keys_with(const CacheSpec& spec, const std::vector<std::int64_t>& positions,
                             const std::vector<std::int64_t>& coded) {
  const Rows rows = known_rows(spec.layers[0], 0, Side::key, positions);
  std::vector<float> all;
  for (std::int64_t t = 0; t < rows.tokens; ++t) {
    const bool is_coded = std::count(coded.begin(), coded.end(), positions[index_of(t)]) > 0;
    for (int h = 0; h < rows.heads; ++h) {
      const float* row = rows.at(t, h);
      const std::vector<float> one =
          is_coded ? int8_of(row, rows.dim) : std::vector<float>(row, row + rows.dim);
      all.insert(all.end(), one.begin(), one.end());
    }
  }
  return all;
}

TEST(Read, ARangeOfPositions) {
  CacheSpec spec = small_spec(2);
  spec.layers[1].value_dim = 3;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 11);
  for (const auto& [begin, end] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 11}, {3, 4}, {2, 9}, {4, 8}, {10, 99}, {-5, 2}, {6, 6}, {11, 20}}) {
    std::vector<float> out(11 * 2 * 3, -1.0f);
    const std::int64_t tokens =
        sequence
            .read(1, Side::value, {begin, end}, out.data(), static_cast<std::int64_t>(out.size()))
            .value();
    const auto positions = range(std::max<std::int64_t>(begin, 0), std::min<std::int64_t>(end, 11));
    EXPECT_EQ(tokens, static_cast<std::int64_t>(positions.size()));
    std::vector<float> expected = known_rows(spec.layers[1], 1, Side::value, positions).data;
    expected.resize(out.size(), -1.0f);
    EXPECT_EQ(out, expected) << begin << " " << end;
  }
}

TEST(Read, OneHead) {
  CacheSpec spec = small_spec();
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 6);
  const Rows rows = known_rows(spec.layers[0], 0, Side::key, range(0, 6));
  for (int head = 0; head < 2; ++head) {
    std::vector<float> out(4 * 4);
    EXPECT_EQ(sequence.read(0, Side::key, {1, 5, head}, out.data(), 16).value(), 4);
    for (std::int64_t t = 0; t < 4; ++t) {
      EXPECT_TRUE(std::equal(rows.at(t + 1, head), rows.at(t + 1, head) + 4, out.begin() + t * 4));
    }
  }
}

TEST(Read, OnePositionThatIsNotHeldIsOutOfRange) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence sequence = filled(cache, 3);
  append(cache, sequence, 10, 2);
  float row[8];
  EXPECT_EQ(sequence.read(0, Side::key, {10, 11}, row, 8).value(), 1);
  for (const std::int64_t position : {5, 12, -1}) {
    EXPECT_TRUE(fails(sequence.read(0, Side::key, {position, position + 1}, row, 8),
                      ErrorCode::out_of_range, {"layer 0", std::to_string(position)}));
  }
  EXPECT_EQ(sequence.read(0, Side::key, {4, 8}, row, 8).value(), 0) << "a range may be empty";
  EXPECT_EQ(sequence.read(0, Side::key, {INT64_MAX, INT64_MAX}, row, 8).value(), 0);
  EXPECT_EQ(sequence.read(0, Side::key, {INT64_MIN, INT64_MIN}, row, 8).value(), 0);
}

TEST(Read, BadArgumentsAreRefusedWithTheirNumbers) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence sequence = filled(cache, 6);
  std::vector<float> out(48, 9.0f);
  const auto read = [&](const ReadRange& asked, float* to, std::int64_t elements) {
    return sequence.read(0, Side::key, asked, to, elements);
  };
  EXPECT_TRUE(fails(read({4, 2}, out.data(), 48), ErrorCode::invalid_argument, {"[4, 2)"}));
  EXPECT_TRUE(fails(read({0, 6, 2}, out.data(), 48), ErrorCode::out_of_range, {"head 2", "2"}));
  EXPECT_TRUE(fails(read({0, 6, -2}, out.data(), 48), ErrorCode::out_of_range, {"head -2"}));
  EXPECT_TRUE(fails(read({}, out.data(), 47), ErrorCode::buffer_too_small, {"48", "47"}));
  EXPECT_TRUE(fails(read({}, nullptr, 48), ErrorCode::buffer_too_small, {"48"}));
  EXPECT_EQ(out, std::vector<float>(48, 9.0f)) << "nothing is written";
}

TEST(Read, OpenPagesAreReadExactAndFullOnesCoded) {
  CacheSpec spec = small_spec(1, "int8");
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 10);
  EXPECT_EQ(read_all(sequence, 0, Side::key), keys_with(spec, range(0, 10), range(0, 8)));
}

// Reads read as the next query would.
TEST(Read, ExactRegionsAreReadAsRows) {
  CacheSpec spec = small_spec(1, "int8");
  spec.exact_tail = 5;
  Cache tail = Cache::create(spec).value();
  EXPECT_EQ(read_all(filled(tail, 18), 0, Side::key), keys_with(spec, range(0, 18), range(0, 12)))
      << "floor_page(18 - 5) = 12";
  spec.exact_tail = 0;
  spec.exact_head = 5;
  Cache head = Cache::create(spec).value();
  EXPECT_EQ(read_all(filled(head, 18), 0, Side::key), keys_with(spec, range(0, 18), range(8, 16)))
      << "the head is rounded up to a page";
}

TEST(Read, AStepReadsAsItsFirstQueryDoes) {
  CacheSpec spec = small_spec(1, "int8");
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 6);
  const Step step = stepped(cache, batch_of(sequence, 6, 7));
  std::vector<float> keys(13 * 8);
  step.gather(0, {sequence.id()}, {}, keys.data(), 13 * 8, nullptr, 0).value();
  EXPECT_EQ(keys, keys_with(spec, range(0, 13), range(0, 4)))
      << "the query at 6 reads its own page as rows, and all that is newer";
}

TEST(Read, APageOfOneTokenWorksLikeAnyOther) {
  CacheSpec spec = small_spec(1, "int8");
  spec.page_tokens = 1;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  append(cache, sequence, 0, 3);
  append_singly(cache, sequence, 3, 4);
  EXPECT_EQ(read_all(sequence, 0, Side::key), keys_with(spec, range(0, 7), range(0, 7)));
  sequence.truncate(5).value();
  append(cache, sequence, 5, 2);
  EXPECT_EQ(positions_of(sequence), range(0, 7));
  EXPECT_EQ(cache.stats().pages_used, 7);
}

TEST(Read, TheLargestPageWorksToo) {
  CacheSpec spec = small_spec(1, "f16");
  spec.page_tokens = 256;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 600);
  EXPECT_TRUE(holds(cache, sequence, 0, range(0, 600)));
  EXPECT_EQ(cache.stats().pages_used, 3);
}

TEST(Read, EverySideHasItsOwnCodec) {
  CacheSpec spec = small_spec();
  spec.set_codec("f32", "int8");
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 4);
  EXPECT_EQ(read_all(sequence, 0, Side::key),
            known_rows(spec.layers[0], 0, Side::key, range(0, 4)).data);
  const Rows values = known_rows(spec.layers[0], 0, Side::value, range(0, 4));
  const std::vector<float> found = read_all(sequence, 0, Side::value);
  EXPECT_NE(found, values.data);
  const std::vector<float> row = int8_of(values.at(2, 1), 4);
  EXPECT_TRUE(std::equal(row.begin(), row.end(), found.begin() + 2 * 8 + 4));
}

// --- for_each ------------------------------------------------------------------------------------

TEST(ForEach, CallsEveryTokenInOrder) {
  CacheSpec spec = small_spec(2);
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 9);
  std::vector<std::int64_t> positions;
  std::vector<float> rows;
  sequence
      .for_each(1, Side::value,
                [&](std::int64_t position, const float* row) {
                  positions.push_back(position);
                  rows.insert(rows.end(), row, row + 8);
                })
      .value();
  EXPECT_EQ(positions, range(0, 9));
  EXPECT_EQ(rows, known_rows(spec.layers[1], 1, Side::value, range(0, 9)).data);
}

TEST(ForEach, MayCallTheCache) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence sequence = filled(cache, 9);
  std::int64_t calls = 0;
  sequence
      .for_each(0, Side::key,
                [&](std::int64_t, const float*) {
                  if (++calls == 2) sequence.truncate(1).value();
                  EXPECT_GE(sequence.length().value(), 1);
                })
      .value();
  EXPECT_EQ(calls, 9) << "it goes on over what the sequence held";
  EXPECT_EQ(sequence.length().value(), 1);
}

TEST(ForEach, NeedsAFunction) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence sequence = filled(cache, 3);
  EXPECT_TRUE(fails(sequence.for_each(0, Side::key, nullptr), ErrorCode::invalid_argument));
}

TEST(ForEach, WhatTheFunctionThrowsIsAnError) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence sequence = filled(cache, 3);
  EXPECT_TRUE(fails(
      sequence.for_each(0, Side::key,
                        [](std::int64_t, const float*) { throw std::runtime_error("stop here"); }),
      ErrorCode::internal, {"stop here"}));
  EXPECT_EQ(cache.stats().pages_used, 1);
  EXPECT_TRUE(succeeds(sequence.truncate(1)));
}

}  // namespace
}  // namespace quire::test
