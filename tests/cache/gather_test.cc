// Contiguous tensors and masks for engines with their own attention.
#include <gtest/gtest.h>

#include "base/numbers.h"
#include "cache/fixture.h"

namespace quire::test {
namespace {

// Element (column, head, channel) of sequence `which` in a gathered buffer.
struct Place {
  GatherFormat format;
  std::int64_t columns;
  int heads;
  int dim;

  std::size_t at(Side side, std::int64_t which, std::int64_t column, int head, int channel) const {
    if (format.layout == Layout::token_major)
      return index_of((column * heads + head) * dim + channel);
    const std::int64_t block = (which * heads + head) * columns * dim;
    const bool transposed = side == Side::value && format.transpose_values;
    return index_of(block + (transposed ? channel * columns + column : column * dim + channel));
  }
};

CacheSpec gather_spec() {
  CacheSpec spec = small_spec(2);
  spec.layers[1].key_dim = 6;
  spec.layers[1].value_dim = 3;
  return spec;
}

// Checks one side of a gathered buffer against known rows; padding must be zero.
void expect_rows(const CacheSpec& spec, Side side, const GatherFormat& format, std::int64_t columns,
                 const std::vector<std::byte>& buffer,
                 const std::vector<std::vector<std::int64_t>>& positions) {
  const LayerSpec& layer = spec.layers[1];
  const int dim = side == Side::key ? layer.key_dim : layer.value_dim;
  const Place place{format, columns, layer.kv_heads, dim};
  for (std::size_t which = 0; which < positions.size(); ++which) {
    const Rows rows = known_rows(layer, 1, side, positions[which]);
    for (std::int64_t column = 0; column < columns; ++column) {
      for (int h = 0; h < layer.kv_heads; ++h) {
        for (int c = 0; c < dim; ++c) {
          const float expected = column < rows.tokens ? rows.at(column, h)[c] : 0.0f;
          const std::size_t at = place.at(side, static_cast<std::int64_t>(which), column, h, c);
          ASSERT_EQ(load_element(format.dtype, buffer.data(), at), expected)
              << "sequence " << which << " column " << column << " head " << h << " channel " << c;
        }
      }
    }
  }
}

std::vector<GatherFormat> all_formats() {
  std::vector<GatherFormat> formats;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::int64_t pad : {1, 8}) {
      formats.push_back({dtype, Layout::token_major, false, pad});
      formats.push_back({dtype, Layout::head_major, false, pad});
      formats.push_back({dtype, Layout::head_major, true, pad});
    }
  }
  return formats;
}

TEST(Gather, WritesEveryLayoutDtypeAndPadding) {
  const CacheSpec spec = gather_spec();
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 11);
  for (const GatherFormat& format : all_formats()) {
    const Gathered size = sequence.gather_size(1, format).value();
    EXPECT_EQ(size.columns, format.pad_tokens_to == 1 ? 11 : 16);
    EXPECT_EQ(size.key_elements, size.columns * 2 * 6);
    EXPECT_EQ(size.value_elements, size.columns * 2 * 3);
    EXPECT_EQ(size.lengths, std::vector<std::int64_t>{11});
    EXPECT_EQ(size.first_positions, std::vector<std::int64_t>{0});
    std::vector<std::byte> keys(index_of(size.key_elements) * bytes_of(format.dtype), std::byte{7});
    std::vector<std::byte> values(index_of(size.value_elements) * bytes_of(format.dtype),
                                  std::byte{7});
    const Gathered got =
        sequence
            .gather(1, format, keys.data(), size.key_elements, values.data(), size.value_elements)
            .value();
    EXPECT_EQ(got.columns, size.columns);
    expect_rows(spec, Side::key, format, size.columns, keys, {range(0, 11)});
    expect_rows(spec, Side::value, format, size.columns, values, {range(0, 11)});
  }
}

// Codes of the largest f16 may stand for more than it.
TEST(Gather, WritesFiniteNumbers) {
  for (const std::string& codec : codec_names()) {
    CacheSpec spec = small_spec();
    spec.set_codec(codec, "f16");
    spec.layers[0].key_dim = 32;
    spec.rollback = 0;
    Cache cache = Cache::create(spec).value();
    const Sequence sequence = cache.open().value();
    Step step = cache.begin(batch_of(sequence, 0, 4)).value();
    Rows keys = known_rows(spec.layers[0], 0, Side::key, range(0, 4));
    for (std::int64_t t = 0; t < 4; ++t) keys.at(t, 0)[3] = t % 2 == 0 ? 65504.0f : -65504.0f;
    const Rows values = known_rows(spec.layers[0], 0, Side::value, range(0, 4));
    if (!step.put(0, keys.view(), values.view()).ok()) continue;  // its norm is too large
    step.commit().value();
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
      const GatherFormat format{dtype, Layout::token_major, false, 1};
      const std::int64_t elements = 4 * 2 * 32;
      std::vector<std::byte> buffer(index_of(elements) * bytes_of(dtype));
      sequence.gather(0, format, buffer.data(), elements, nullptr, 0).value();
      for (std::size_t i = 0; i < index_of(elements); ++i) {
        const float number = load_element(dtype, buffer.data(), i);
        ASSERT_TRUE(std::isfinite(number)) << codec << ' ' << name_of(dtype) << ' ' << i;
      }
      const float first = load_element(dtype, buffer.data(), 3);
      if (codec.starts_with("fp8")) continue;
      EXPECT_NEAR(first, 65504.0f, codec == "q4_0" ? 5000.0f : 300.0f) << codec;
    }
  }
}

TEST(Gather, PutsSeveralSequencesOfAStepSideBySide) {
  const CacheSpec spec = gather_spec();
  Cache cache = Cache::create(spec).value();
  const Sequence a = filled(cache, 5);
  const Sequence b = filled(cache, 9);
  const Sequence c = cache.open().value();
  const Step step = stepped(cache, batch_of(a, 5, 1).add(c.id(), 0, 2).add(b.id(), 9, 1));
  for (const GatherFormat& format : all_formats()) {
    if (format.layout == Layout::token_major) continue;
    const std::vector<SequenceId> asked = {b.id(), c.id(), a.id()};
    const Gathered size = step.gather_size(1, asked, format).value();
    EXPECT_EQ(size.columns, format.pad_tokens_to == 1 ? 10 : 16);
    EXPECT_EQ(size.lengths, (std::vector<std::int64_t>{10, 2, 6}));
    std::vector<std::byte> keys(index_of(size.key_elements) * bytes_of(format.dtype), std::byte{7});
    std::vector<std::byte> values(index_of(size.value_elements) * bytes_of(format.dtype),
                                  std::byte{7});
    step.gather(1, asked, format, keys.data(), size.key_elements, values.data(),
                size.value_elements)
        .value();
    expect_rows(spec, Side::key, format, size.columns, keys,
                {range(0, 10), range(0, 2), range(0, 6)});
    expect_rows(spec, Side::value, format, size.columns, values,
                {range(0, 10), range(0, 2), range(0, 6)});
  }
}

TEST(Gather, PutsWhatSeveralSequencesHoldSideBySide) {
  const CacheSpec spec = gather_spec();
  Cache cache = Cache::create(spec).value();
  const Sequence a = filled(cache, 5);
  const Sequence b = cache.open().value();
  const Sequence c = filled(cache, 9);
  const GatherFormat format{DType::bf16, Layout::head_major, true, 4};
  const std::vector<SequenceId> asked = {c.id(), b.id(), a.id()};
  const Gathered size = cache.gather_size(1, asked, format).value();
  EXPECT_EQ(size.columns, 12);
  EXPECT_EQ(size.lengths, (std::vector<std::int64_t>{9, 0, 5}));
  EXPECT_EQ(size.first_positions, (std::vector<std::int64_t>{0, -1, 0}));
  std::vector<std::byte> keys(index_of(size.key_elements) * 2, std::byte{7});
  std::vector<std::byte> values(index_of(size.value_elements) * 2, std::byte{7});
  cache.gather(1, asked, format, keys.data(), size.key_elements, values.data(), size.value_elements)
      .value();
  expect_rows(spec, Side::key, format, 12, keys, {range(0, 9), {}, range(0, 5)});
  expect_rows(spec, Side::value, format, 12, values, {range(0, 9), {}, range(0, 5)});
  EXPECT_TRUE(fails(cache.gather_size(1, {}, format), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails(cache.gather_size(1, {a.id(), static_cast<SequenceId>(99)}, format),
                    ErrorCode::unknown_sequence, {"99"}));
  EXPECT_TRUE(fails(cache.gather_size(2, asked, format), ErrorCode::out_of_range, {"layer 2"}));
  EXPECT_TRUE(fails(cache.gather(1, asked, format, keys.data(), 10, nullptr, 0),
                    ErrorCode::buffer_too_small, {std::to_string(size.key_elements), "10"}));
}

TEST(Gather, HoldsOwnTokensOnly) {
  Cache cache = Cache::create(small_spec()).value();
  std::vector<Sequence> all;
  for (int i = 0; i < 4; ++i) all.push_back(cache.open().value());
  for (std::int64_t p = 0; p < 10; ++p) {
    for (const Sequence& sequence : all) append(cache, sequence, p, 1);
  }
  const Step step = stepped(cache, batch_of(all[2], 10, 1));
  EXPECT_EQ(step.gather_size(0, {all[2].id()}, {}).value().columns, 11)
      << "however sequences interleave";
}

TEST(Gather, BeginsWhereTheFirstQuerySees) {
  Cache cache = Cache::create(pattern_spec({Pattern::window(3)})).value();
  const Sequence sequence = filled(cache, 10);
  const Step step = stepped(cache, batch_of(sequence, 10, 2));
  const Gathered size = step.gather_size(0, {sequence.id()}, {}).value();
  EXPECT_EQ(size.first_positions, std::vector<std::int64_t>{8});
  EXPECT_EQ(size.columns, 4);
  EXPECT_EQ(sequence.gather_size(0, {}).value().columns, 10) << "a sequence gives all it holds";
}

TEST(Gather, ASideThatIsNotWantedMayBeNull) {
  const CacheSpec spec = gather_spec();
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 3);
  std::vector<float> keys(36), values(18);
  sequence.gather(1, {}, keys.data(), 36, nullptr, 0).value();
  sequence.gather(1, {}, nullptr, 0, values.data(), 18).value();
  EXPECT_EQ(keys, known_rows(spec.layers[1], 1, Side::key, range(0, 3)).data);
  EXPECT_EQ(values, known_rows(spec.layers[1], 1, Side::value, range(0, 3)).data);
}

TEST(Gather, OfNothingIsEmpty) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence sequence = cache.open().value();
  const Gathered got = sequence.gather(0, {}, nullptr, 0, nullptr, 0).value();
  EXPECT_EQ(got.columns, 0);
  EXPECT_EQ(got.first_positions, std::vector<std::int64_t>{-1});
}

TEST(Gather, ABufferTooSmallIsNamedWithTheSizeNeeded) {
  const CacheSpec spec = gather_spec();
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 3);
  std::vector<float> keys(36, 5.0f), values(18, 5.0f);
  EXPECT_TRUE(fails(sequence.gather(1, {}, keys.data(), 35, values.data(), 18),
                    ErrorCode::buffer_too_small, {"keys", "36", "35"}));
  EXPECT_TRUE(fails(sequence.gather(1, {}, keys.data(), 36, values.data(), 17),
                    ErrorCode::buffer_too_small, {"values", "18", "17"}));
  EXPECT_EQ(keys, std::vector<float>(36, 5.0f)) << "nothing is written";
}

TEST(Gather, FormatsAreChecked) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence a = filled(cache, 3);
  const Sequence b = filled(cache, 3);
  const auto refused = [&](const GatherFormat& format, const std::string& what) {
    return fails(a.gather_size(0, format), ErrorCode::invalid_argument, {what});
  };
  EXPECT_TRUE(refused({static_cast<DType>(7), Layout::head_major, false, 1}, "dtype 7"));
  EXPECT_TRUE(refused({DType::f32, static_cast<Layout>(5), false, 1}, "layout 5"));
  EXPECT_TRUE(refused({DType::f32, Layout::head_major, false, 0}, "0"));
  EXPECT_TRUE(refused({DType::f32, Layout::head_major, false, -3}, "-3"));
  EXPECT_TRUE(refused({DType::f32, Layout::token_major, true, 1}, "head_major"));
  const Step step = stepped(cache, batch_of(a, 3, 1).add(b.id(), 3, 1));
  EXPECT_TRUE(fails(step.gather_size(0, {a.id(), b.id()}, {}), ErrorCode::invalid_argument, {"2"}));
  const auto nobody = static_cast<SequenceId>(88);
  EXPECT_TRUE(fails(step.gather_size(0, {nobody}, {}), ErrorCode::unknown_sequence, {"88"}));
  EXPECT_TRUE(fails(step.runs(0, nobody), ErrorCode::unknown_sequence, {"88"}));
  EXPECT_TRUE(fails(step.gather_size(1, {a.id()}, {}), ErrorCode::out_of_range, {"layer 1"}));
  EXPECT_TRUE(fails(step.gather_size(0, {}, {}), ErrorCode::invalid_argument));
}

// --- mask ----------------------------------------------------------------------------------------

TEST(Mask, IsZeroWhereATokenSeesAndMinusInfinityElsewhere) {
  Cache cache = Cache::create(pattern_spec({Pattern::causal(), Pattern::window(2)})).value();
  const Sequence a = filled(cache, 2);
  const Sequence b = cache.open().value();
  const Step step = stepped(cache, batch_of(a, 2, 2).add(b.id(), 0, 1));
  const float no = -kInfinity;
  std::vector<float> mask(3 * 4);
  EXPECT_EQ(step.mask_columns(0).value(), 4);
  EXPECT_EQ(step.mask(0, DType::f32, 1, mask.data(), 12).value(), 4);
  EXPECT_EQ(mask, (std::vector<float>{0, 0, 0, no, 0, 0, 0, 0, 0, no, no, no}));
  mask.resize(3 * 3);
  EXPECT_EQ(step.mask(1, DType::f32, 1, mask.data(), 9).value(), 3) << "columns from position 1 on";
  EXPECT_EQ(mask, (std::vector<float>{0, 0, no, no, 0, 0, 0, no, no}));
}

TEST(Mask, IsPaddedLikeTheGatherWithColumnsThatNobodySees) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence sequence = filled(cache, 4);
  const Step step = stepped(cache, batch_of(sequence, 4, 2));
  const GatherFormat format{DType::f16, Layout::head_major, true, 8};
  EXPECT_EQ(step.gather_size(0, {sequence.id()}, format).value().columns, 8);
  EXPECT_EQ(step.mask_columns(0, 8).value(), 8);
  std::vector<std::uint16_t> mask(16, 0x5555);
  step.mask(0, DType::f16, 8, mask.data(), 16).value();
  const std::uint16_t no = 0xfc00;                                        // minus infinity in f16
  EXPECT_EQ(mask, (std::vector<std::uint16_t>{0, 0, 0, 0, 0, no, no, no,  //
                                              0, 0, 0, 0, 0, 0, no, no}));
}

TEST(Mask, ArgumentsAreChecked) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence sequence = filled(cache, 4);
  const Step step = stepped(cache, batch_of(sequence, 4, 2));
  std::vector<float> mask(12, 3.0f);
  EXPECT_TRUE(fails(step.mask(0, DType::f32, 1, mask.data(), 11), ErrorCode::buffer_too_small,
                    {"12", "11"}));
  EXPECT_TRUE(fails(step.mask(0, DType::f32, 1, nullptr, 12), ErrorCode::buffer_too_small, {"12"}));
  EXPECT_TRUE(fails(step.mask(0, DType::bf16, 1, mask.data(), 12), ErrorCode::invalid_argument,
                    {"f32 or f16"}));
  EXPECT_TRUE(
      fails(step.mask(0, DType::f32, 0, mask.data(), 12), ErrorCode::invalid_argument, {"0"}));
  EXPECT_TRUE(fails(step.mask_columns(0, -1), ErrorCode::invalid_argument, {"-1"}));
  EXPECT_TRUE(fails(step.mask_columns(5), ErrorCode::out_of_range, {"layer 5"}));
  EXPECT_EQ(mask, std::vector<float>(12, 3.0f));
}

}  // namespace
}  // namespace quire::test
