// Steps: what a batch may be, putting, committing, dropping.
#include <gtest/gtest.h>

#include <cstring>

#include "base/numbers.h"
#include "cache/fixture.h"

namespace quire::test {
namespace {

Cache make_cache(const CacheSpec& spec = small_spec(3)) { return Cache::create(spec).value(); }

// --- the batch -----------------------------------------------------------------------------------

TEST(Batch, AddsConsecutivePositions) {
  const auto id = static_cast<SequenceId>(4);
  const Batch batch = Batch().add(id, 10, 2).add(id, 12, {7, 8});
  ASSERT_EQ(batch.tokens.size(), 4u);
  EXPECT_EQ(batch.tokens[1].position, 11);
  EXPECT_EQ(batch.tokens[1].key, 0u);
  EXPECT_EQ(batch.tokens[3].position, 13);
  EXPECT_EQ(batch.tokens[3].key, 8u);
  EXPECT_EQ(batch.tokens[3].sequence, id);
}

TEST(Begin, AnEmptyBatchIsRefused) {
  Cache cache = make_cache();
  EXPECT_TRUE(fails(cache.begin({}), ErrorCode::invalid_argument, {"no tokens"}));
}

TEST(Begin, AnUnknownSequenceIsRefused) {
  Cache cache = make_cache();
  const Sequence known = filled(cache, 3);
  const Snapshot before = snapshot(cache);
  const Batch batch = batch_of(known, 3, 2).add(static_cast<SequenceId>(55), 0, 1);
  EXPECT_TRUE(fails(cache.begin(batch), ErrorCode::unknown_sequence, {"55"}));
  EXPECT_EQ(snapshot(cache), before);
}

TEST(Begin, APositionThatIsTakenIsADuplicate) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 5);
  const Snapshot before = snapshot(cache);
  EXPECT_TRUE(fails(cache.begin(batch_of(sequence, 4, 1)), ErrorCode::duplicate_position, {"4"}));
  EXPECT_TRUE(fails(cache.begin(batch_of(sequence, 2, 1)), ErrorCode::duplicate_position, {"2"}));
  EXPECT_TRUE(fails(cache.begin(batch_of(sequence, 5, 2).add(sequence.id(), 6, 1)),
                    ErrorCode::duplicate_position, {"token 2", "6"}));
  EXPECT_EQ(snapshot(cache), before);
}

TEST(Begin, PositionsNeverDecrease) {
  Cache cache = make_cache();
  const Sequence sequence = cache.open().value();
  append(cache, sequence, 10, 3);
  const Snapshot before = snapshot(cache);
  EXPECT_TRUE(fails(cache.begin(batch_of(sequence, 7, 1)), ErrorCode::out_of_range, {"7", "12"}));
  EXPECT_TRUE(fails(cache.begin(batch_of(sequence, 20, 1).add(sequence.id(), 15, 1)),
                    ErrorCode::out_of_range, {"token 1", "15", "20"}));
  EXPECT_TRUE(fails(cache.begin(batch_of(sequence, -1, 1)), ErrorCode::out_of_range, {"-1"}));
  EXPECT_TRUE(fails(cache.begin(batch_of(sequence, INT64_MAX, 1)), ErrorCode::out_of_range));
  EXPECT_EQ(snapshot(cache), before);
}

TEST(Begin, EqualPositionsAreAllowedWhereTheSpecSaysSo) {
  CacheSpec spec = small_spec();
  spec.equal_positions = true;
  Cache cache = make_cache(spec);
  const Sequence sequence = cache.open().value();
  append(cache, sequence, 0, 2);
  stepped(cache, batch_of(sequence, 1, 1).add(sequence.id(), 1, 1).add(sequence.id(), 2, 1))
      .commit()
      .value();
  EXPECT_EQ(positions_of(sequence), (std::vector<std::int64_t>{0, 1, 1, 1, 2}));
  EXPECT_TRUE(fails(cache.begin(batch_of(sequence, 1, 1)), ErrorCode::duplicate_position, {"1"}));
}

TEST(Begin, MixesSequencesInAnyOrder) {
  Cache cache = make_cache();
  const Sequence a = filled(cache, 3);
  const Sequence b = cache.open().value();
  Batch batch;
  batch.add(b.id(), 0, 1).add(a.id(), 3, 1).add(b.id(), 1, 2).add(a.id(), 4, 1);
  Step step = stepped(cache, batch);
  EXPECT_EQ(step.tokens(), 5);
  const std::vector<Committed> done = step.commit().value();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].sequence, b.id()) << "in the order sequences first appear";
  EXPECT_EQ(done[0].tokens, 3);
  EXPECT_EQ(done[1].sequence, a.id());
  EXPECT_EQ(done[1].tokens, 2);
  EXPECT_TRUE(holds(cache, a, 2, range(0, 5)));
  EXPECT_TRUE(holds(cache, b, 2, range(0, 3)));
}

TEST(Begin, GoingPastALimitIsFull) {
  CacheSpec spec = small_spec();
  spec.max_tokens = 6;
  spec.max_batch = 4;
  spec.max_sequences = 2;
  Cache cache = make_cache(spec);
  const Sequence sequence = filled(cache, 4);
  const Sequence other = cache.open().value();
  const Snapshot before = snapshot(cache);
  EXPECT_TRUE(fails(cache.begin(batch_of(sequence, 4, 3)), ErrorCode::full,
                    {"3 tokens", "holds 4", "max_tokens is 6"}));
  EXPECT_TRUE(
      fails(cache.begin(batch_of(other, 0, 5)), ErrorCode::full, {"5 tokens", "max_batch is 4"}));
  EXPECT_TRUE(fails(cache.open(), ErrorCode::full, {"2 sequences", "max_sequences is 2"}));
  EXPECT_TRUE(fails(sequence.fork(), ErrorCode::full, {"max_sequences is 2"}));
  EXPECT_EQ(snapshot(cache), before);
  append(cache, sequence, 4, 2);
  other.close().value();
  EXPECT_TRUE(succeeds(cache.open()));
}

// --- put -----------------------------------------------------------------------------------------

TEST(Put, LayersComeInAnyOrder) {
  Cache cache = make_cache();
  const Sequence sequence = cache.open().value();
  const Batch batch = batch_of(sequence, 0, 6);
  Step step = cache.begin(batch).value();
  for (const int layer : {2, 0, 1}) put(step, cache.spec(), layer, batch).value();
  step.commit().value();
  for (int layer = 0; layer < 3; ++layer) EXPECT_TRUE(holds(cache, sequence, layer, range(0, 6)));
}

// Layouts, strides and dtypes of the caller's tensors.
TEST(Put, TakesEveryLayoutStrideAndDtype) {
  CacheSpec spec = small_spec();
  spec.layers[0].key_dim = 3;  // K and V differ
  const Rows keys = known_rows(spec.layers[0], 0, Side::key, range(0, 5));
  const Rows values = known_rows(spec.layers[0], 0, Side::value, range(0, 5));
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const Layout layout : {Layout::token_major, Layout::head_major}) {
      for (const std::int64_t gap : {0, 3}) {
        std::vector<std::vector<std::byte>> buffers;
        const auto view = [&](const Rows& rows) {
          const bool tokens_first = layout == Layout::token_major;
          const std::int64_t inner = rows.dim + gap;
          TensorView made{nullptr,
                          dtype,
                          rows.tokens,
                          rows.heads,
                          rows.dim,
                          tokens_first ? rows.heads * inner : inner,
                          tokens_first ? inner : rows.tokens * inner};
          buffers.emplace_back(index_of(rows.tokens * rows.heads * inner * 4), std::byte{0xff});
          for (std::int64_t t = 0; t < rows.tokens; ++t) {
            for (int h = 0; h < rows.heads; ++h) {
              for (int c = 0; c < rows.dim; ++c) {
                store_element(dtype, buffers.back().data(),
                              index_of(t * made.token_stride + h * made.head_stride + c),
                              rows.at(t, h)[c]);
              }
            }
          }
          made.data = buffers.back().data();
          return made;
        };
        Cache cache = make_cache(spec);
        const Sequence sequence = cache.open().value();
        Step step = cache.begin(batch_of(sequence, 0, 5)).value();
        const TensorView k = view(keys);
        const TensorView v = view(values);
        step.put(0, k, v).value();
        step.commit().value();
        EXPECT_TRUE(holds(cache, sequence, 0, range(0, 5)));
      }
    }
  }
}

TEST(Put, DenseViewsHaveTheStridesOfTheirLayout) {
  const TensorView tokens = TensorView::dense(nullptr, DType::f16, 5, 2, 8);
  EXPECT_EQ(tokens.token_stride, 16);
  EXPECT_EQ(tokens.head_stride, 8);
  const TensorView heads = TensorView::dense(nullptr, DType::f16, 5, 2, 8, Layout::head_major);
  EXPECT_EQ(heads.token_stride, 8);
  EXPECT_EQ(heads.head_stride, 40);
  const OutputView out = OutputView::dense(nullptr, 5, 2, 8, Layout::head_major);
  EXPECT_EQ(out.token_stride, 8);
  EXPECT_EQ(out.head_stride, 40);
}

TEST(Put, ShapesAreCheckedWithKeysAndValuesToldApart) {
  Cache cache = make_cache();
  const Sequence sequence = cache.open().value();
  Step step = cache.begin(batch_of(sequence, 0, 2)).value();
  const Rows good(2, 2, 4);
  const auto put_keys = [&](const Rows& rows) { return step.put(1, rows.view(), good.view()); };
  const auto put_values = [&](const Rows& rows) { return step.put(1, good.view(), rows.view()); };
  EXPECT_TRUE(fails(put_keys(Rows(3, 2, 4)), ErrorCode::mismatch,
                    {"layer 1", "keys", "[3][2][4]", "[2 tokens][2 heads][4]"}));
  EXPECT_TRUE(fails(put_keys(Rows(2, 1, 4)), ErrorCode::mismatch, {"keys", "[2][1][4]"}));
  EXPECT_TRUE(fails(put_values(Rows(2, 2, 5)), ErrorCode::mismatch, {"values", "[2][2][5]"}));
  EXPECT_TRUE(fails(put_values(Rows(1, 2, 4)), ErrorCode::mismatch, {"values", "[1][2][4]"}));
  TensorView strange = good.view();
  strange.dtype = static_cast<DType>(9);
  EXPECT_TRUE(fails(step.put(1, strange, good.view()), ErrorCode::mismatch, {"keys", "dtype 9"}));
  EXPECT_TRUE(fails(step.put(1, good.view(), strange), ErrorCode::mismatch, {"values", "dtype 9"}));
  TensorView null = good.view();
  null.data = nullptr;
  EXPECT_TRUE(fails(step.put(1, null, good.view()), ErrorCode::invalid_argument, {"keys", "null"}));
  EXPECT_TRUE(fails(step.put(1, good.view(), null), ErrorCode::invalid_argument, {"values"}));
  EXPECT_TRUE(fails(step.put(1, good.view()), ErrorCode::mismatch, {"layer 1"})) << "not MLA";
  EXPECT_TRUE(fails(step.put(3, good.view(), good.view()), ErrorCode::out_of_range, {"layer 3"}));
  EXPECT_TRUE(fails(step.put(-1, good.view(), good.view()), ErrorCode::out_of_range, {"layer -1"}));
  EXPECT_TRUE(succeeds(step.put(1, good.view(), good.view()))) << "refusals left it as it was";
}

TEST(Put, ALayerIsPutOnce) {
  Cache cache = make_cache();
  const Sequence sequence = cache.open().value();
  const Batch batch = batch_of(sequence, 0, 2);
  Step step = cache.begin(batch).value();
  put(step, cache.spec(), 1, batch).value();
  EXPECT_TRUE(fails(put(step, cache.spec(), 1, batch), ErrorCode::wrong_state, {"layer 1"}));
}

TEST(Put, AValueThatIsNotFiniteIsRefusedWithItsPlace) {
  Cache cache = make_cache();
  const Sequence sequence = cache.open().value();
  Step step = cache.begin(batch_of(sequence, 0, 3)).value();
  const Rows good(3, 2, 4);
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    Rows rows(3, 2, 4);
    rows.at(2, 1)[3] = bad;
    EXPECT_TRUE(fails(step.put(1, rows.view(), good.view()), ErrorCode::non_finite,
                      {"layer 1", "key", "token 2", "head 1", "channel 3"}));
    EXPECT_TRUE(fails(step.put(1, good.view(), rows.view()), ErrorCode::non_finite,
                      {"layer 1", "value", "token 2", "head 1", "channel 3"}));
  }
}

TEST(Put, AValueThatOverflowsItsRowsOrScaleIsRefused) {
  const auto refused = [](const std::string& codec, std::optional<DType> row_type, float value) {
    CacheSpec spec = small_spec(1, codec);
    spec.layers[0].row_type = row_type;
    Cache cache = Cache::create(spec).value();
    const Sequence sequence = cache.open().value();
    Step step = cache.begin(batch_of(sequence, 0, 1)).value();
    Rows rows(1, 2, 4);
    rows.at(0, 1)[2] = value;
    const Result<void> result = step.put(0, rows.view(), rows.view());
    if (!result.ok()) {
      EXPECT_TRUE(fails(result, ErrorCode::non_finite, {"head 1", "channel 2"}));
    }
    return !result.ok();
  };
  EXPECT_FALSE(refused("f16", {}, 65504.0f));
  EXPECT_TRUE(refused("f16", {}, 65520.0f));
  EXPECT_TRUE(refused("int8", {}, 1e5f)) << "f16 rows";
  EXPECT_FALSE(refused("int8", DType::f32, 8e6f));
  EXPECT_TRUE(refused("int8", DType::f32, 8321040.0f)) << "the scale would be infinite";
  EXPECT_FALSE(refused("f32", {}, 3e38f));
  EXPECT_TRUE(refused("bf16", {}, 3.4e38f));
  EXPECT_FALSE(refused("fp8_e4m3", {}, 60000.0f)) << "fp8 saturates";
}

// A refused put leaves the step as it was: put again, or drop.
TEST(Put, RefusedInOneLayerItCanBePutAgain) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 3);
  const Batch batch = batch_of(sequence, 3, 7);
  Step step = cache.begin(batch).value();
  put(step, cache.spec(), 0, batch).value();
  Rows bad(7, 2, 4);
  bad.at(6, 1)[3] = kInfinity;
  ASSERT_FALSE(step.put(1, bad.view(), bad.view()).ok());
  EXPECT_TRUE(fails(step.commit(), ErrorCode::wrong_state, {"layer 1"}));
  put(step, cache.spec(), 1, batch).value();
  put(step, cache.spec(), 2, batch).value();
  step.commit().value();
  for (int layer = 0; layer < 3; ++layer) EXPECT_TRUE(holds(cache, sequence, layer, range(0, 10)));
}

TEST(Put, RefusedHalfWayAndDroppedItLeavesNoTrace) {
  Cache cache = make_cache();
  const Sequence sequence = filled(cache, 3);
  const Sequence fork = sequence.fork().value();
  const Snapshot before = snapshot(cache);
  {
    const Batch batch = batch_of(sequence, 3, 7);
    Step step = cache.begin(batch).value();
    put(step, cache.spec(), 0, batch, 8).value();
    Rows bad(7, 2, 4);
    bad.at(6, 1)[3] = kInfinity;
    ASSERT_FALSE(step.put(1, bad.view(), bad.view()).ok());
  }
  EXPECT_EQ(snapshot(cache), before);
  append(cache, sequence, 3, 2);
  EXPECT_TRUE(holds(cache, sequence, 1, range(0, 5)));
}

}  // namespace
}  // namespace quire::test
