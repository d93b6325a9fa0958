// The law: what a query gets is a function of its place in its history alone, bit for bit. The same
// history is fed in many ways; every query must get the bits it got when tokens came one by one.
#include "property/law.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/crowd.h"
#include "base/isa.h"
#include "base/seed.h"
#include "codec/codec.h"

namespace quire::test {
namespace {

constexpr int kHeads = 2;
constexpr int kQueryHeads = 8;  // so that 40 tokens are many rows (attend/walk.h) of a KV head

const std::vector<std::string> kCodecs = {"f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8"};

// Channels of a layer. Kernels multiply values in tiles of 16, other sizes are decoded.
struct Size {
  int key;
  int value;
};
constexpr Size kDecoded = {6, 7};
constexpr Size kTiled = {20, 16};
constexpr Size kUsual = {64, 64};
constexpr Size kSmallPlanes = {32, 32};
constexpr Size kPlanes = {64, 128};  // all planes of values are whole

// Fewer cases and smaller sizes then: also where plain C++ attends, which takes 4 times as long and
// multiplies no planes where they lie.
bool is_slow() { return kSlowBuild || chosen_isa() == Isa::scalar; }

Size size_of_planes() { return is_slow() ? kSmallPlanes : kPlanes; }

bool is_float(const std::string& codec) {
  return codec == "f32" || codec == "f16" || codec == "bf16";
}

LayerSpec plain_layer(const CodecPair& codec, const Size& size, Pattern pattern) {
  LayerSpec layer;
  layer.kv_heads = kHeads;
  layer.query_heads = kQueryHeads;
  layer.key_dim = size.key;
  layer.value_dim = size.value;
  layer.codec = codec;
  layer.pattern = pattern;
  return layer;
}

LayerSpec mla_layer(const std::string& codec, Pattern pattern) {
  LayerSpec layer = plain_layer({codec, codec}, kTiled, pattern);
  layer.mla = true;
  layer.kv_heads = 1;
  return layer;
}

// Every pattern in one cache, each a group of its own, and a layer that reads another's store.
CacheSpec all_patterns(const std::string& name) {
  const CodecPair codec = {name, name};
  CacheSpec spec;
  spec.layers = {plain_layer(codec, kTiled, Pattern::causal()),
                 plain_layer(codec, kDecoded, Pattern::window(5)),
                 plain_layer(codec, kTiled, Pattern::window(3, 9)),
                 plain_layer(codec, kUsual, Pattern::chunked(6)),
                 plain_layer(codec, kTiled, Pattern::causal()),
                 mla_layer(name, Pattern::causal())};
  spec.layers[4].kv_of = 0;
  spec.layers[4].soft_cap = 2.0f;
  spec.layers[4].sinks = {0.5f, -1.0f, 0.0f, 2.0f, 1.0f, -0.5f, 0.25f, 3.0f};
  return spec;
}

struct Exactness {
  std::int64_t head, tail, rollback;
};

std::string name_of_case(const CacheSpec& spec) {
  return "codecs " + spec.layers[0].codec.key + "/" + spec.layers[0].codec.value + ", page " +
         std::to_string(spec.page_tokens) + ", exact_head " + std::to_string(spec.exact_head) +
         ", exact_tail " + std::to_string(spec.exact_tail) + ", rollback " +
         std::to_string(spec.rollback);
}

// Histories of several work items, of which threads have shares, and a prefill of 512: alone on
// some threads, and as one of 64 sequences, few of which are long.
void expect_law_of_items(LawCase c, Random& random) {
  SCOPED_TRACE(c.name);
  c.spec.page_tokens = 16;
  c.tokens = is_slow() ? 540 : 600;  // three items
  Reference reference;
  feed_in_steps(c, 1, reference, random);
  c.at_first = 512;
  std::int64_t feedings = 0;
  for (const int threads : {1, 2, 3}) {
    if (is_slow() && threads != 3) continue;
    c.spec.threads = threads;
    feed_in_steps(c, 1, reference, random);
    feed_in_crowd(c, reference, random);
    feedings += 2;
  }
  Crowd crowd;
  c.spec.executor = &crowd;
  feed_in_crowd(c, reference, random);
  EXPECT_GT(crowd.most, 64u);  // more than one for each sequence
  EXPECT_EQ(reference.met(), (feedings + 1) * c.tokens);
}

class Law : public testing::TestWithParam<std::string> {};

TEST_P(Law, HoldsForEveryPageSizeAndExactRegion) {
  const std::uint64_t seed = announce_seed();
  Walked walked;
  std::uint64_t salt = 0;
  const std::vector<int> pages = is_slow() ? std::vector{3, 16} : std::vector{1, 3, 4, 16, 20};
  for (const int page : pages) {
    for (const Exactness& exact : {Exactness{0, 0, 0}, Exactness{0, 0, 8}, Exactness{5, 0, 2},
                                   Exactness{0, 6, 0}, Exactness{3, 7, 4}, Exactness{0, 50, 1}}) {
      LawCase c;
      c.spec = all_patterns(GetParam());
      c.spec.page_tokens = page;
      c.spec.exact_head = exact.head;
      c.spec.exact_tail = exact.tail;
      c.spec.rollback = exact.rollback;
      c.name = name_of_case(c.spec);
      expect_law(c, seed + ++salt, walked);
      if (HasFailure()) return;
    }
  }
  // That each of them was met at all: how often is a matter of the seed.
  EXPECT_GT(walked.rollbacks, 0);
  EXPECT_GT(walked.exact_cuts, 0);
  if (!is_float(GetParam())) {
    EXPECT_GT(walked.coded_points, 0);
  }
}

// Values under one codec, keys under all others.
TEST_P(Law, HoldsForPairsOfCodecs) {
  const std::uint64_t seed = announce_seed() + 1000;
  Walked walked;
  std::uint64_t salt = 0;
  for (const std::string& key : kCodecs) {
    LawCase c;
    c.spec.layers = {plain_layer({key, GetParam()}, kTiled, Pattern::causal()),
                     plain_layer({GetParam(), key}, kTiled, Pattern::window(4, 6))};
    if (key == "f16") c.spec.layers[0].row_type = DType::f32;
    c.spec.page_tokens = 5;
    c.spec.rollback = 3;
    c.name = name_of_case(c.spec);
    expect_law(c, seed + ++salt, walked);
    if (HasFailure()) return;
  }
}

// One token, 8 and 512 at a time, in pages of the usual size.
TEST_P(Law, HoldsForAPrefillOf512) {
  const std::uint64_t seed = announce_seed() + 2000;
  LawCase c;
  const CodecPair codec = {GetParam(), GetParam()};
  c.spec.layers = {plain_layer(codec, is_slow() ? kTiled : kUsual, Pattern::causal()),
                   plain_layer(codec, kTiled, Pattern::window(100))};
  c.tokens = 1100;  // more than one work item of 16 pages
  c.name = name_of_case(c.spec);
  Random random(seed);
  Reference reference;
  feed_in_steps(c, 1, reference, random);
  feed_in_steps(c, 8, reference, random);
  c.spec.threads = 2;
  feed_in_steps(c, 512, reference, random);
}

// One sequence alone and as one of 64.
TEST_P(Law, HoldsInABatchOf64) {
  const std::uint64_t seed = announce_seed() + 4000;
  LawCase c;
  c.spec.layers = {plain_layer({GetParam(), GetParam()}, kTiled, Pattern::causal())};
  c.spec.page_tokens = 16;
  c.tokens = 100;
  Random random(seed);
  Reference reference;
  feed_in_steps(c, 1, reference, random);
  c.spec.threads = 2;
  feed_in_crowd(c, reference, random);
  EXPECT_EQ(reference.met(), c.tokens);
}

TEST_P(Law, HoldsWhereThreadsShareHistoriesAloneAndInABatchOf64) {
  Random random(announce_seed() + 6000);
  LawCase c;
  const Size size = is_slow() ? kTiled : kUsual;
  c.spec.layers = {plain_layer({GetParam(), GetParam()}, size, Pattern::causal())};
  expect_law_of_items(c, random);
}

// A cut at a coded point is told before and after, and what is read stays readable.
TEST_P(Law, CodedCutsAreTold) {
  const bool lossless = is_float(GetParam());
  CacheSpec spec;
  spec.layers = {plain_layer({GetParam(), GetParam()}, kTiled, Pattern::causal())};
  spec.page_tokens = 4;
  spec.rollback = 2;
  Cache cache = Cache::create(spec).value();
  Reference ignored;
  const Sequence sequence = cache.open().value();
  Step step = run_told(cache, tell(sequence, 0, 19), ignored);
  ASSERT_TRUE(step.commit().ok());
  // Rows from floor_page(19 - 2) = 16 on are held; boundaries need none.
  for (std::int64_t at = 0; at <= 19; ++at) {
    const bool exact = lossless || at >= 16 || at % 4 == 0;
    EXPECT_EQ(sequence.can_resume(at).value(), exact ? Resume::exact : Resume::coded) << at;
    const Sequence child = sequence.fork(at).value().sequence;
    EXPECT_EQ(child.is_exact().value(), exact) << at;
    EXPECT_TRUE(sequence.is_exact().value());
  }
  EXPECT_EQ(sequence.can_resume(20).value(), Resume::no);
  EXPECT_EQ(sequence.can_resume(-1).value(), Resume::no);
  ASSERT_TRUE(sequence.truncate(6).ok());
  EXPECT_EQ(sequence.is_exact().value(), lossless);
  // Cutting the inexact tokens away again brings the law back.
  ASSERT_TRUE(sequence.truncate(4).ok());
  EXPECT_TRUE(sequence.is_exact().value());
}

// Every codec of the registry as keys, and as values where it encodes them, beside a random other:
// steps of all sizes, rollbacks, cuts and forks.
TEST(LawOfPairs, HoldsForEveryCodecThroughRollbacksCutsAndForks) {
  const std::uint64_t seed = announce_seed() + 3000;
  Random random(seed);
  std::vector<const Codec*> keys(all_codecs().begin(), all_codecs().end());
  std::vector<const Codec*> values;
  for (const Codec* codec : keys) {
    if (codec->encodes_values) values.push_back(codec);
  }
  random.shuffle(keys);
  random.shuffle(values);
  std::uint64_t salt = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const CodecPair pair = {keys[i]->name, values[i % values.size()]->name};
    LawCase c;
    c.spec.layers = {plain_layer(pair, size_of_planes(), Pattern::causal()),
                     plain_layer(pair, kSmallPlanes, Pattern::window(4, 6))};
    c.spec.page_tokens = random.one_in(2) ? 5 : 16;
    c.spec.rollback = 3;
    c.name = name_of_case(c.spec);
    Walked walked;
    expect_law(c, seed + ++salt, walked);
    EXPECT_GT(walked.rollbacks, 0) << c.name;
    EXPECT_GT(walked.exact_cuts, 0) << c.name;
    if (testing::Test::HasFailure()) return;
  }
}

const std::vector<CodecPair> kPairsOfFewerBits = {{"tq6", "tq2"},   {"tq5", "tq6"},
                                                  {"dual6", "tq5"}, {"dual5", "tq4"},
                                                  {"dual4", "tq3"}, {"dual3", "tq3"}};

// One token, 8 and 512 at a time, and as one of 64 sequences, for every codec below 8 bits.
TEST(LawOfPairs, HoldsForAPrefillOf512AndInABatchOf64) {
  Random random(announce_seed() + 5000);
  for (const CodecPair& pair : kPairsOfFewerBits) {
    SCOPED_TRACE(pair.key + '/' + pair.value);
    LawCase c;
    c.spec.layers = {plain_layer(pair, kSmallPlanes, Pattern::causal())};
    c.tokens = 600;
    Reference reference;
    feed_in_steps(c, 1, reference, random);
    feed_in_steps(c, 8, reference, random);
    c.spec.threads = 2;
    feed_in_steps(c, 512, reference, random);
    c.tokens = 150;
    feed_in_crowd(c, reference, random);
    EXPECT_EQ(reference.met(), 2 * 600 + 150);
  }
}

TEST(LawOfPairs, HoldsWhereThreadsShareHistoriesAloneAndInABatchOf64) {
  Random random(announce_seed() + 7000);
  for (const CodecPair& pair : kPairsOfFewerBits) {
    LawCase c;
    c.spec.layers = {plain_layer(pair, size_of_planes(), Pattern::causal())};
    c.name = pair.key + '/' + pair.value;
    expect_law_of_items(c, random);
  }
}

// A query that reads only rows gets its zeros with their signs, whether or not another query of the
// step reads codes: values of -1e-38 that weigh nothing are -0, and stay it.
TEST(LawOfPairs, ZerosKeepTheirSignsWhoeverElseIsInTheStep) {
  constexpr int kSize = 32;
  CacheSpec spec = CacheSpec::gqa(1, 1, 1, kSize);
  spec.set_codec("f32", "tq4");
  spec.page_tokens = 16;
  spec.exact_tail = 16;
  Cache cache = Cache::create(spec).value();
  const auto first_output = [&](const Sequence& sequence, std::int64_t tokens) {
    const std::int64_t from = sequence.next_position().value();
    Step step = cache.begin(Batch().add(sequence.id(), from, tokens)).value();
    std::vector<float> k(size_of(tokens * kSize), 0.0f);
    std::vector<float> v(size_of(tokens * kSize), 0.0f);
    std::vector<float> q(size_of(tokens * kSize), 0.0f);
    std::vector<float> out(size_of(tokens * kSize), 7.0f);
    for (std::int64_t t = 0; t < tokens; ++t) {
      q[size_of(t * kSize)] = 100.0f;
      k[size_of(t * kSize)] = from + t < 16 ? 0.0f : 4.0f;
      for (int c = 0; c < kSize && from + t < 16; ++c) v[size_of(t * kSize + c)] = -1e-38f;
    }
    const auto rows = [&](const std::vector<float>& of) {
      return TensorView::dense(of.data(), DType::f32, tokens, 1, kSize);
    };
    step.put(0, rows(k), rows(v)).value();
    step.attend(0, rows(q), OutputView::dense(out.data(), tokens, 1, kSize)).value();
    step.commit().value();
    out.resize(kSize);
    return out;
  };
  const Sequence alone = cache.open().value();
  first_output(alone, 31);
  const Sequence among = alone.fork().value();
  const std::vector<float> expected = first_output(alone, 1);
  const std::vector<float> found = first_output(among, 2);
  // Products that are rounded before they are added leave +0 everywhere.
  if (chosen_isa() != Isa::scalar) {
    EXPECT_TRUE(std::signbit(expected[0])) << expected[0];
  }
  EXPECT_EQ(std::memcmp(found.data(), expected.data(), kSize * sizeof(float)), 0);
}

INSTANTIATE_TEST_SUITE_P(Codec, Law, testing::ValuesIn(kCodecs),
                         [](const auto& codec) { return codec.param; });

}  // namespace
}  // namespace quire::test
