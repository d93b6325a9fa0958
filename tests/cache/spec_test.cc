// What specs say, what they are refused for, and how a cache reads them back.
#include "quire/spec.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "cache/fixture.h"

namespace quire::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A change to a good spec, and what the refusal must name.
struct Wrong {
  std::function<void(CacheSpec&)> change;
  std::vector<std::string> parts;
};

void expect_refused(const CacheSpec& good, const std::vector<Wrong>& cases) {
  ASSERT_TRUE(succeeds(Cache::create(good)));
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CacheSpec spec = good;
    cases[i].change(spec);
    EXPECT_TRUE(fails(Cache::create(spec), ErrorCode::invalid_spec, cases[i].parts))
        << "case " << i;
  }
}

CacheSpec two_layers() { return CacheSpec::uniform({.layers = 2, .kv_heads = 2, .head_dim = 8}); }

// A change of layer 1.
std::function<void(CacheSpec&)> layer(std::function<void(LayerSpec&)> change) {
  return [change](CacheSpec& spec) { change(spec.layers[1]); };
}

// --- helpers -------------------------------------------------------------------------------------

TEST(Spec, UniformMakesEqualLayers) {
  const CacheSpec spec = CacheSpec::uniform({.layers = 3,
                                             .kv_heads = 2,
                                             .head_dim = 8,
                                             .query_heads = 6,
                                             .codec = {"int8", "f16"},
                                             .pattern = Pattern::window(5),
                                             .rotation = Rotation::none()});
  ASSERT_EQ(spec.layers.size(), 3u);
  for (const LayerSpec& made : spec.layers) {
    EXPECT_EQ(made.kv_heads, 2);
    EXPECT_EQ(made.key_dim, 8);
    EXPECT_EQ(made.value_dim, 8);
    EXPECT_EQ(made.query_heads, 6);
    EXPECT_EQ(made.codec, (CodecPair{"int8", "f16"}));
    EXPECT_EQ(made.pattern, Pattern::window(5));
    EXPECT_EQ(made.rotation.kind, Rotation::Kind::none);
  }
  EXPECT_EQ(spec.page_tokens, 64);
  EXPECT_EQ(spec.exact_head, 0);
  EXPECT_EQ(spec.exact_tail, 0);
  EXPECT_EQ(spec.rollback, 8);
}

TEST(Spec, HelpersSetTheHeadsOfEachKind) {
  const auto heads = [](const CacheSpec& spec) {
    return std::pair(spec.layers.at(0).query_heads, spec.layers.at(0).kv_heads);
  };
  EXPECT_EQ(heads(CacheSpec::mha(2, 8, 16)), std::pair(8, 8));
  EXPECT_EQ(heads(CacheSpec::gqa(2, 8, 2, 16)), std::pair(8, 2));
  EXPECT_EQ(heads(CacheSpec::mqa(2, 8, 16)), std::pair(8, 1));
  for (const CacheSpec& spec :
       {CacheSpec::mha(2, 8, 16), CacheSpec::gqa(2, 8, 2, 16), CacheSpec::mqa(2, 8, 16)}) {
    EXPECT_TRUE(succeeds(Cache::create(spec)));
  }
}

TEST(Spec, MlaStoresOneLatentWithItsRotaryPart) {
  CacheSpec spec = CacheSpec::mla(2, 16, 24, 8);
  for (const LayerSpec& made : spec.layers) {
    EXPECT_TRUE(made.mla);
    EXPECT_EQ(made.kv_heads, 1);
    EXPECT_EQ(made.query_heads, 16);
    EXPECT_EQ(made.key_dim, 32);
    EXPECT_EQ(made.value_dim, 24);
    EXPECT_EQ(made.rotation.kind, Rotation::Kind::rope);
    EXPECT_EQ(made.rotation.rope.pairs, Rope::Pairs::interleaved);
    EXPECT_EQ(made.rotation.rope.offset, 24);
    EXPECT_EQ(made.rotation.rope.size, 8);
  }
  spec.set_codec("int8", "f16");
  EXPECT_EQ(spec.layers[0].codec, (CodecPair{"int8", "int8"})) << "one latent has one codec";
  EXPECT_TRUE(succeeds(Cache::create(spec)));
  EXPECT_EQ(CacheSpec::mla(1, 4, 24, 0).layers[0].rotation.kind, Rotation::Kind::unknown);
}

TEST(Spec, SetCodecReachesEveryLayer) {
  CacheSpec spec = two_layers();
  spec.set_codec("fp8_e4m3", "bf16");
  for (const LayerSpec& made : spec.layers) EXPECT_EQ(made.codec, (CodecPair{"fp8_e4m3", "bf16"}));
}

TEST(Spec, PatternsAreComparable) {
  EXPECT_EQ(Pattern::window(4), Pattern::window(4, 4));
  EXPECT_FALSE(Pattern::window(4) == Pattern::window(4, 5));
  EXPECT_FALSE(Pattern::window(4) == Pattern::chunked(4));
  EXPECT_EQ(Pattern::causal(), Pattern());
}

TEST(Spec, DTypesHaveSizesAndNames) {
  EXPECT_EQ(bytes_of(DType::f32), 4u);
  EXPECT_EQ(bytes_of(DType::f16), 2u);
  EXPECT_EQ(bytes_of(DType::bf16), 2u);
  EXPECT_STREQ(name_of(DType::f32), "f32");
  EXPECT_STREQ(name_of(DType::f16), "f16");
  EXPECT_STREQ(name_of(DType::bf16), "bf16");
}

// --- codecs --------------------------------------------------------------------------------------

bool keys_only(const std::string& codec) { return codec.starts_with("dual"); }

TEST(Spec, EveryCodecEncodesKeysAndAllButSomeEncodeValues) {
  for (const std::string& key : codec_names()) {
    for (const std::string& value : codec_names()) {
      CacheSpec spec = CacheSpec::uniform({.layers = 1, .kv_heads = 1, .head_dim = 64});
      spec.set_codec(key, value);
      const Result<Cache> cache = Cache::create(spec);
      if (keys_only(value)) {
        EXPECT_TRUE(fails(cache, ErrorCode::invalid_spec,
                          {"layer 0", value + " encodes keys only; write " + key + "/tq"}));
      } else {
        EXPECT_TRUE(succeeds(cache)) << key << "/" << value;
      }
    }
  }
}

TEST(Spec, ATextNamesACodecAPairOrAPreset) {
  const auto pair = [](const char* text) { return parse_codec(text).value(); };
  EXPECT_EQ(pair("int8"), (CodecPair{"int8", "int8"}));
  EXPECT_EQ(pair("tq2"), (CodecPair{"tq2", "tq2"}));
  EXPECT_EQ(pair("f16/f32"), (CodecPair{"f16", "f32"}));
  EXPECT_EQ(pair("dual5/q8_0"), (CodecPair{"dual5", "q8_0"}));
  EXPECT_EQ(pair("safe"), (CodecPair{"dual6", "tq5"}));
  EXPECT_EQ(pair("balanced"), (CodecPair{"dual4", "tq4"}));
  EXPECT_EQ(pair("small"), (CodecPair{"dual4", "tq3"}));
  EXPECT_EQ(pair("tiny"), (CodecPair{"dual3", "tq3"}));
}

TEST(Spec, EveryPresetNamesItsPairAndMakesACache) {
  std::vector<std::string> names;
  for (const CodecPreset& preset : codec_presets()) {
    names.push_back(preset.name);
    EXPECT_EQ(parse_codec(preset.name).value(), preset.codec);
    CacheSpec spec = CacheSpec::uniform({.layers = 1, .kv_heads = 1, .head_dim = 64});
    spec.layers[0].codec = preset.codec;
    EXPECT_TRUE(succeeds(Cache::create(spec))) << preset.name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"safe", "balanced", "small", "tiny"}));
}

TEST(Spec, ATextThatNamesNothingIsRefusedWithTheNamesThereAre) {
  for (const std::string text : {"", "f17", "F16", "f16/", "/f16", "/", "f16/f16/f16",
                                 "balanced/f16", "f16/tiny", " int8", "int8 "}) {
    EXPECT_TRUE(fails(parse_codec(text), ErrorCode::invalid_spec,
                      {"\"" + text + "\"", "f32 f16 bf16", "q4_0", "safe balanced small tiny"}));
  }
}

TEST(Spec, AKeysOnlyCodecForValuesIsRefusedWithThePairToWrite) {
  for (const auto& [text, write] :
       {std::pair("dual4", "dual4 encodes keys only; write dual4/tq4"),
        std::pair("dual6", "dual6 encodes keys only; write dual6/tq5"),
        std::pair("dual5", "dual5 encodes keys only; write dual5/tq4"),
        std::pair("dual3/dual3", "dual3 encodes keys only; write dual3/tq3"),
        std::pair("f16/dual4", "dual4 encodes keys only; write f16/tq4")}) {
    EXPECT_TRUE(fails(parse_codec(text), ErrorCode::invalid_spec, {text, write}));
    const std::string suggested = std::string(write).substr(std::string(write).rfind(' ') + 1);
    EXPECT_TRUE(succeeds(parse_codec(suggested))) << suggested;
  }
}

TEST(Spec, ATextSetsTheCodecOfEveryLayer) {
  CacheSpec spec = two_layers();
  ASSERT_TRUE(succeeds(spec.set_codec("small")));
  for (const LayerSpec& made : spec.layers) EXPECT_EQ(made.codec, (CodecPair{"dual4", "tq3"}));
  EXPECT_TRUE(fails(spec.set_codec("smaller"), ErrorCode::invalid_spec, {"\"smaller\""}));
  for (const LayerSpec& made : spec.layers) EXPECT_EQ(made.codec, (CodecPair{"dual4", "tq3"}));
  CacheSpec latent = CacheSpec::mla(1, 4, 16, 8);
  ASSERT_TRUE(succeeds(latent.set_codec("int8/f16")));
  EXPECT_EQ(latent.layers[0].codec, (CodecPair{"int8", "int8"}));
}

TEST(Spec, LatentsTakeCodecsWithoutRotationAndBlocks) {
  for (const std::string& codec : codec_names()) {
    CacheSpec spec = CacheSpec::mla(1, 4, 64, 32);
    spec.set_codec(codec, codec);
    const bool taken = codec[0] == 'f' || codec == "bf16" || codec == "int8";
    if (taken) {
      EXPECT_TRUE(succeeds(Cache::create(spec))) << codec;
    } else {
      EXPECT_TRUE(fails(Cache::create(spec), ErrorCode::invalid_spec,
                        {"layer 0: " + codec, "MLA", "f32 f16 bf16 fp8_e4m3 fp8_e5m2 int8"}));
    }
  }
}

TEST(Spec, SizesThatACodecDoesNotTakeAreRefusedWithTheNearest) {
  CacheSpec good = CacheSpec::uniform({.layers = 2, .kv_heads = 2, .head_dim = 64});
  const auto sized = [](const char* codec, int key_dim, int value_dim) {
    return layer([=](LayerSpec& l) {
      l.codec = parse_codec(codec).value();
      l.key_dim = key_dim;
      l.value_dim = value_dim;
    });
  };
  expect_refused(
      good, {{sized("tq4", 63, 64), {"layer 1: tq4", "keys of 63 channels", "is 64"}},
             {sized("tq4", 64, 1), {"layer 1: tq4", "values of 1 channels", "is 2"}},
             {sized("dual4/f16", 65, 64), {"layer 1: dual4", "keys of 65 channels", "is 66"}},
             {sized("tq4", 5000, 64), {"layer 1: tq4", "keys of 5000 channels", "is 1024"}},
             {sized("q8_0", 80, 64), {"layer 1: q8_0", "keys of 80 channels", "is 96"}},
             {sized("f16/q4_0", 64, 16), {"layer 1: q4_0", "values of 16 channels", "is 32"}}});
  for (const auto& [codec, dim] : {std::pair("tq4", 6), std::pair("tq2", 80), std::pair("q8_0", 96),
                                   std::pair("dual3/tq3", 112), std::pair("int8", 63)}) {
    CacheSpec spec = good;
    sized(codec, dim, dim)(spec);
    EXPECT_TRUE(succeeds(Cache::create(spec))) << codec << " " << dim;
  }
}

// --- refusals ------------------------------------------------------------------------------------

TEST(Spec, LayersAreNeeded) {
  EXPECT_TRUE(fails(Cache::create(CacheSpec{}), ErrorCode::invalid_spec, {"no layers"}));
  EXPECT_TRUE(fails(Cache::create(CacheSpec::uniform({.layers = -2, .kv_heads = 1, .head_dim = 4})),
                    ErrorCode::invalid_spec, {"no layers"}));
}

TEST(Spec, SizesOfTheCacheAreChecked) {
  const std::int64_t far = (std::int64_t{1} << 60) + 1;
  expect_refused(two_layers(),
                 {{[](CacheSpec& s) { s.page_tokens = 0; }, {"page_tokens 0", "[1, 256]"}},
                  {[](CacheSpec& s) { s.page_tokens = 257; }, {"page_tokens 257"}},
                  {[](CacheSpec& s) { s.exact_head = -1; }, {"exact_head -1"}},
                  {[](CacheSpec& s) { s.exact_tail = -2; }, {"exact_tail -2"}},
                  {[](CacheSpec& s) { s.rollback = -3; }, {"rollback -3"}},
                  {[=](CacheSpec& s) { s.rollback = far; }, {"rollback", std::to_string(far)}},
                  {[](CacheSpec& s) { s.max_tokens = 0; }, {"max_tokens 0"}},
                  {[](CacheSpec& s) { s.max_sequences = -1; }, {"max_sequences -1"}},
                  {[](CacheSpec& s) { s.max_batch = 0; }, {"max_batch 0"}},
                  {[](CacheSpec& s) { s.threads = -1; }, {"threads -1"}},
                  {[](CacheSpec& s) { s.threads = 5000; }, {"threads 5000"}}});
  for (const int page : {1, 256}) {
    CacheSpec spec = two_layers();
    spec.page_tokens = page;
    EXPECT_TRUE(succeeds(Cache::create(spec))) << page;
  }
}

TEST(Spec, NumbersOfALayerAreChecked) {
  const float nan = static_cast<float>(kNan);
  expect_refused(
      two_layers(),
      {{layer([](LayerSpec& l) { l.kv_heads = 0; }), {"layer 1", "0 kv heads"}},
       {layer([](LayerSpec& l) { l.kv_heads = 65537; }), {"layer 1", "65537 kv heads"}},
       {layer([](LayerSpec& l) { l.key_dim = 0; }), {"layer 1", "key size 0"}},
       {layer([](LayerSpec& l) { l.key_dim = 70000; }), {"layer 1", "key size 70000"}},
       {layer([](LayerSpec& l) { l.value_dim = -4; }), {"layer 1", "value size -4"}},
       {layer([](LayerSpec& l) { l.query_heads = 3; }), {"layer 1", "3 query heads", "2 kv heads"}},
       {layer([](LayerSpec& l) { l.query_heads = -2; }), {"layer 1", "-2 query heads"}},
       {layer([=](LayerSpec& l) { l.scale = nan; }), {"layer 1", "scale"}},
       {layer([](LayerSpec& l) { l.soft_cap = -1.0f; }), {"layer 1", "soft cap -1"}},
       {layer([](LayerSpec& l) { l.soft_cap = kInfinity; }), {"layer 1", "soft cap"}},
       {layer([](LayerSpec& l) {
          l.slopes = {1, 1, 1};
        }),
        {"layer 1", "3 slopes"}},
       {layer([](LayerSpec& l) { l.sinks = {1}; }), {"layer 1", "1 sinks"}},
       {layer([](LayerSpec& l) {
          l.query_heads = 4;
          l.sinks = {1, 1};
        }),
        {"layer 1", "2 sinks", "4 query heads"}},
       {layer([=](LayerSpec& l) {
          l.slopes = {1, nan};
        }),
        {"layer 1", "slopes"}},
       {layer([](LayerSpec& l) {
          l.sinks = {1, -kInfinity};
        }),
        {"layer 1", "sinks"}},
       {layer([](LayerSpec& l) {
          l.slopes = {1, 1};
          l.sinks = {1, 1, 1, 1};
        }),
        {"layer 1", "2 slopes", "4 sinks"}}});
}

TEST(Spec, PatternsAreChecked) {
  const std::int64_t far = (std::int64_t{1} << 60) + 1;
  const auto pattern = [](Pattern p) { return layer([p](LayerSpec& l) { l.pattern = p; }); };
  expect_refused(two_layers(),
                 {{pattern({Pattern::Kind::causal, 3, 0}), {"layer 1", "3"}},
                  {pattern({Pattern::Kind::cross, 0, 7}), {"layer 1", "7"}},
                  {pattern(Pattern::window(0)), {"layer 1", "window of 0"}},
                  {pattern(Pattern::window(far)), {"layer 1", "window"}},
                  {pattern(Pattern::window(8, 5)), {"layer 1", "window of 8", "keep 5"}},
                  {pattern(Pattern::window(8, far)), {"layer 1", "window of 8"}},
                  {pattern(Pattern::chunked(0)), {"layer 1", "chunks of 0"}},
                  {pattern({Pattern::Kind::chunked, 4, 4}), {"layer 1", "chunks of 4"}},
                  {pattern({static_cast<Pattern::Kind>(9), 0, 0}), {"layer 1", "pattern 9"}}});
}

TEST(Spec, CrossLayersAloneStoreNoTokens) {
  expect_refused(pattern_spec({Pattern::causal(), Pattern::cross()}),
                 {{[](CacheSpec& s) { s.layers[0].pattern = Pattern::cross(); },
                   {"all 2 layers are cross layers"}}});
}

TEST(Spec, CodecsAndRowTypesAreChecked) {
  expect_refused(
      two_layers(),
      {{layer([](LayerSpec& l) { l.codec.key = "f8"; }), {"layer 1", "key codec \"f8\"", "int8"}},
       {layer([](LayerSpec& l) { l.codec.value = ""; }), {"layer 1", "value codec \"\""}},
       {layer([](LayerSpec& l) { l.row_type = static_cast<DType>(5); }), {"layer 1", "row type 5"}},
       {layer([](LayerSpec& l) { l.row_type = DType::bf16; }),
        {"layer 1", "bf16 rows", "codec f16"}},
       {layer([](LayerSpec& l) {
          l.codec = {"int8", "f32"};
          l.row_type = DType::f16;
        }),
        {"layer 1", "f16 rows", "codec f32"}}});
}

TEST(Spec, RotaryNumbersAreChecked) {
  CacheSpec good = two_layers();
  good.layers[1].rotation = Rotation::with_rope({});
  const auto rope = [](std::function<void(Rope&)> change) {
    return layer([change](LayerSpec& l) { change(l.rotation.rope); });
  };
  expect_refused(
      good, {{rope([](Rope& r) { r.offset = -1; }), {"layer 1", "-1"}},
             {rope([](Rope& r) { r.offset = 8; }), {"layer 1", "key of 8"}},
             {rope([](Rope& r) { r.size = -2; }), {"layer 1", "rotary"}},
             {rope([](Rope& r) { r.size = 10; }), {"layer 1", "10 rotary channels", "key of 8"}},
             {rope([](Rope& r) {
                r.offset = 4;
                r.size = 6;
              }),
              {"layer 1", "6 rotary channels from 4", "key of 8"}},
             {rope([](Rope& r) { r.size = 3; }), {"layer 1", "rotary size 3 is odd"}},
             {rope([](Rope& r) { r.base = 0; }), {"layer 1", "base 0"}},
             {rope([](Rope& r) { r.base = kNan; }), {"layer 1", "base"}},
             {rope([](Rope& r) { r.frequency_scale = -1; }), {"layer 1", "frequency_scale -1"}},
             {rope([](Rope& r) { r.frequency_scale = std::numeric_limits<double>::infinity(); }),
              {"layer 1", "frequency_scale"}},
             {rope([](Rope& r) {
                r.factors = {1, 1, 1};
              }),
              {"layer 1", "3 rotary factors", "4 pairs"}},
             {rope([](Rope& r) {
                r.factors = {1, 1, 0, 1};
              }),
              {"layer 1", "factor 2 is 0"}},
             {layer([](LayerSpec& l) { l.rotation = Rotation::with_function(nullptr); }),
              {"layer 1", "without a function"}},
             {layer([](LayerSpec& l) { l.rotation.kind = static_cast<Rotation::Kind>(7); }),
              {"layer 1", "rotation 7"}}});
}

TEST(Spec, HugeRotaryNumbersAreRefusedToo) {
  constexpr int kMost = std::numeric_limits<int>::max();
  for (const auto& [offset, size] :
       {std::pair(kMost, kMost), std::pair(-kMost - 1, 0), std::pair(4, kMost)}) {
    CacheSpec spec = two_layers();
    Rope rope;
    rope.offset = offset;
    rope.size = size;
    spec.layers[1].rotation = Rotation::with_rope(rope);
    EXPECT_TRUE(fails(Cache::create(spec), ErrorCode::invalid_spec, {"layer 1"}));
  }
}

TEST(Spec, MlaIsOneHeadOneLatentOneCodec) {
  expect_refused(
      CacheSpec::mla(2, 4, 16, 8),
      {{layer([](LayerSpec& l) { l.kv_heads = 2; }), {"layer 1", "2 kv heads"}},
       {layer([](LayerSpec& l) { l.value_dim = 32; }), {"layer 1", "latent of 32", "key of 24"}},
       {layer([](LayerSpec& l) { l.codec.value = "f32"; }), {"layer 1", "f16", "f32"}},
       {layer([](LayerSpec& l) { l.rotation.rope.offset = 14; }), {"layer 1", "14", "16"}}});
}

TEST(Spec, ALayerReadsAnEarlierOneLikeItself) {
  CacheSpec good = two_layers();
  good.layers[1].kv_of = 0;
  expect_refused(
      good,
      {{layer([](LayerSpec& l) { l.kv_of = 1; }), {"layer 1", "reads layer 1", "earlier"}},
       {layer([](LayerSpec& l) { l.kv_of = -1; }), {"layer 1", "reads layer -1"}},
       {layer([](LayerSpec& l) { l.kv_of = 2; }), {"layer 1", "reads layer 2"}},
       {layer([](LayerSpec& l) { l.kv_heads = 1; }), {"layer 1", "1 kv heads", "layer 0"}},
       {layer([](LayerSpec& l) { l.key_dim = 4; }), {"layer 1", "of 4 and 8"}},
       {layer([](LayerSpec& l) { l.value_dim = 4; }), {"layer 1", "of 8 and 4"}},
       {layer([](LayerSpec& l) { l.pattern = Pattern::window(4); }), {"layer 1", "pattern"}},
       {layer([](LayerSpec& l) { l.rotation = Rotation::none(); }), {"layer 1", "rotation"}}});
}

TEST(Spec, ALayerDoesNotReadOneThatReadsAnother) {
  CacheSpec spec = small_spec(3);
  spec.layers[1].kv_of = 0;
  spec.layers[2].kv_of = 1;
  EXPECT_TRUE(fails(Cache::create(spec), ErrorCode::invalid_spec,
                    {"layer 2", "reads layer 1", "reads layer 0"}));
  spec.layers[2].kv_of = 0;
  EXPECT_TRUE(succeeds(Cache::create(spec)));
}

// --- reading back --------------------------------------------------------------------------------

TEST(Spec, IsReadBackAsGiven) {
  CacheSpec spec = two_layers();
  spec.page_tokens = 16;
  spec.exact_head = 3;
  spec.max_tokens = 100;
  spec.seed = 12345;
  spec.layers[1].soft_cap = 30.0f;
  const Cache cache = Cache::create(spec).value();
  EXPECT_EQ(cache.spec().page_tokens, 16);
  EXPECT_EQ(cache.spec().exact_head, 3);
  EXPECT_EQ(cache.spec().max_tokens, 100);
  EXPECT_EQ(cache.spec().seed, 12345u);
  EXPECT_EQ(cache.clone().value().spec().seed, 12345u);
  EXPECT_EQ(cache.spec().layers.at(1).soft_cap, 30.0f);
}

TEST(Spec, LayersWithEqualPatternsFormAGroup) {
  const Cache cache =
      Cache::create(pattern_spec({Pattern::causal(), Pattern::window(8), Pattern::causal(),
                                  Pattern::window(8), Pattern::window(8, 16), Pattern::cross()}))
          .value();
  std::vector<int> groups;
  for (int i = 0; i < 6; ++i) {
    const LayerInfo info = cache.layer_info(i).value();
    groups.push_back(info.group);
    EXPECT_EQ(info.pattern, cache.spec().layers[index_of(i)].pattern);
    EXPECT_EQ(info.kv_of, i);
  }
  EXPECT_EQ(groups, (std::vector<int>{0, 1, 0, 1, 2, 3}));
}

TEST(Spec, TheRowTypeFollowsTheCodecs) {
  const auto row_type = [](const std::string& key, const std::string& value,
                           std::optional<DType> asked = {}) {
    CacheSpec spec = small_spec();
    spec.set_codec(key, value);
    spec.layers[0].row_type = asked;
    return Cache::create(spec).value().layer_info(0).value().row_type;
  };
  EXPECT_EQ(row_type("f32", "int8"), DType::f32);
  EXPECT_EQ(row_type("int8", "f32"), DType::f32);
  EXPECT_EQ(row_type("f16", "bf16"), DType::f32);
  EXPECT_EQ(row_type("bf16", "int8"), DType::bf16);
  EXPECT_EQ(row_type("fp8_e4m3", "bf16"), DType::bf16);
  EXPECT_EQ(row_type("f16", "f16"), DType::f16);
  EXPECT_EQ(row_type("int8", "fp8_e5m2"), DType::f16);
  EXPECT_EQ(row_type("int8", "int8", DType::bf16), DType::bf16);
  EXPECT_EQ(row_type("f16", "f16", DType::f32), DType::f32);
}

TEST(Spec, LayerInfoCountsBytes) {
  CacheSpec spec = CacheSpec::uniform({.layers = 2, .kv_heads = 3, .head_dim = 64});
  spec.set_codec("int8", "int8");
  spec.layers[1].kv_of = 0;
  const Cache cache = Cache::create(spec).value();
  const LayerInfo info = cache.layer_info(0).value();
  EXPECT_EQ(info.codec, (CodecPair{"int8", "int8"}));
  EXPECT_EQ(info.row_bytes_per_token, 3u * (64 + 64) * 2);
  EXPECT_EQ(info.sealed_bytes_per_page, 25344u) << "the worked example of docs/format.md";
  EXPECT_FLOAT_EQ(info.scale, 0.125f);
  const LayerInfo reader = cache.layer_info(1).value();
  EXPECT_EQ(reader.kv_of, 0);
  EXPECT_EQ(reader.sealed_bytes_per_page, 0u);
  EXPECT_EQ(reader.row_bytes_per_token, 0u);
}

TEST(Spec, LayerInfoOfAnMlaLayerCountsItsLatentOnce) {
  const Cache cache = Cache::create(CacheSpec::mla(1, 4, 16, 8)).value();
  EXPECT_EQ(cache.layer_info(0).value().row_bytes_per_token, 24u * 2);
}

TEST(Spec, LayerInfoOfTheLargestLayerDoesNotOverflow) {
  const Cache cache =
      Cache::create(CacheSpec::uniform({.layers = 1, .kv_heads = 65536, .head_dim = 256})).value();
  EXPECT_EQ(cache.layer_info(0).value().row_bytes_per_token, std::size_t{1} << 26);
  EXPECT_TRUE(
      fails(Cache::create(CacheSpec::uniform({.layers = 1, .kv_heads = 65536, .head_dim = 257})),
            ErrorCode::invalid_spec, {"65536", "257", "16777216"}));
}

TEST(Spec, LayerInfoOfALayerThatIsNotThereIsOutOfRange) {
  const Cache cache = Cache::create(two_layers()).value();
  EXPECT_TRUE(fails(cache.layer_info(2), ErrorCode::out_of_range, {"layer 2", "2"}));
  EXPECT_TRUE(fails(cache.layer_info(-1), ErrorCode::out_of_range, {"layer -1"}));
}

TEST(Spec, AnExplicitScaleReplacesTheDefault) {
  CacheSpec spec = two_layers();
  spec.layers[1].scale = 0.5f;
  const Cache cache = Cache::create(spec).value();
  EXPECT_FLOAT_EQ(cache.layer_info(0).value().scale, 1.0f / std::sqrt(8.0f));
  EXPECT_FLOAT_EQ(cache.layer_info(1).value().scale, 0.5f);
}

TEST(Spec, ALimitThatHoldsNoEmptyCacheIsRefused) {
  CacheSpec spec = two_layers();
  spec.memory_limit_bytes = 16;
  EXPECT_TRUE(fails(Cache::create(spec), ErrorCode::over_limit, {"create", "16"}));
}

}  // namespace
}  // namespace quire::test
