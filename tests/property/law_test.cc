// The law: what a query gets is a function of its place in its history alone, bit for bit. The same
// history is fed in many ways; every query must get the bits it got when tokens came one by one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/seed.h"
#include "property/random.h"
#include "quire/cache.hpp"

namespace quire::test {
namespace {

constexpr int kHeads = 2;
constexpr int kQueryHeads = 4;
constexpr int kDim = 6;

const std::vector<std::string> kCodecs = {"f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8"};

std::size_t size_of(std::int64_t n) { return static_cast<std::size_t>(n); }

bool is_float(const std::string& codec) {
  return codec == "f32" || codec == "f16" || codec == "bf16";
}

// The numbers of one token of a story in one layer: the same whenever they are asked for.
void fill_row(std::uint64_t story, std::int64_t token, int layer, int what, float* row, int count) {
  Random random(story * 1000003 + static_cast<std::uint64_t>(token * 64 + layer * 8 + what));
  for (int i = 0; i < count; ++i) row[i] = random.real(-2.0f, 2.0f);
}

// Tokens of a batch: which story they tell, and which token of it they are.
struct Told {
  SequenceId sequence{};
  std::int64_t token = 0;
  std::uint64_t story = 0;
  std::int64_t position = 0;
};

using Output = std::vector<float>;  // [query head][dim]

struct LawCase {
  CacheSpec spec;
  std::string name;
  std::int64_t tokens = 40;
  bool gaps = false;  // positions jump now and then
};

// What every query of story 1 gets, [layer][token]: set by the first feeding, compared after.
class Reference {
 public:
  void meet(std::size_t layer, std::int64_t token, const float* output, std::size_t count) {
    Output& known = outputs_[{layer, token}];
    if (known.empty()) {
      known.assign(output, output + count);
      return;
    }
    ASSERT_EQ(known.size(), count);
    if (std::memcmp(known.data(), output, count * sizeof(float)) == 0) {
      ++met_;
      return;
    }
    ADD_FAILURE() << "layer " << layer << ", token " << token << " got other bits";
  }
  // How many queries got what is known.
  std::int64_t met() const { return met_; }

 private:
  std::map<std::pair<std::size_t, std::int64_t>, Output> outputs_;
  std::int64_t met_ = 0;
};

// Puts and attends a batch in all layers; queries of story 1 must meet the reference.
Step run(Cache& cache, const std::vector<Told>& told, Reference& reference) {
  Batch batch;
  for (const Told& token : told) batch.add(token.sequence, token.position, 1);
  Result<Step> begun = cache.begin(batch);
  EXPECT_TRUE(begun.ok()) << begun.error().text;
  if (!begun) return {};
  Step step = std::move(begun).value();
  const auto tokens = static_cast<std::int64_t>(told.size());
  const CacheSpec& spec = cache.spec();
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    const LayerSpec& layer = spec.layers[l];
    const int index = static_cast<int>(l);
    const auto tensor = [&](int what, int heads, int dim) {
      std::vector<float> data(size_of(tokens * heads * dim));
      for (std::int64_t t = 0; t < tokens; ++t) {
        fill_row(told[size_of(t)].story, told[size_of(t)].token, index, what,
                 data.data() + t * heads * dim, heads * dim);
      }
      return data;
    };
    const auto view = [&](const std::vector<float>& data, int heads, int dim) {
      return TensorView::dense(data.data(), DType::f32, tokens, heads, dim);
    };
    if (!layer.kv_of) {
      const std::vector<float> keys = tensor(0, layer.kv_heads, layer.key_dim);
      const std::vector<float> values = tensor(1, layer.kv_heads, layer.value_dim);
      const Result<void> put = layer.mla
                                   ? step.put(index, view(keys, 1, layer.key_dim))
                                   : step.put(index, view(keys, layer.kv_heads, layer.key_dim),
                                              view(values, layer.kv_heads, layer.value_dim));
      EXPECT_TRUE(put.ok()) << put.error().text;
    }
    const std::vector<float> q = tensor(2, kQueryHeads, layer.key_dim);
    const std::size_t row = size_of(kQueryHeads * layer.value_dim);
    std::vector<float> out(told.size() * row);
    EXPECT_TRUE(step.attend(index, view(q, kQueryHeads, layer.key_dim),
                            OutputView::dense(out.data(), tokens, kQueryHeads, layer.value_dim))
                    .ok());
    for (std::size_t t = 0; t < told.size(); ++t) {
      if (told[t].story == 1) reference.meet(l, told[t].token, out.data() + t * row, row);
    }
  }
  return step;
}

std::vector<Told> tell(const Sequence& sequence, std::int64_t first, std::int64_t count,
                       std::uint64_t story = 1) {
  std::vector<Told> told;
  for (std::int64_t i = first; i < first + count; ++i) {
    told.push_back({sequence.id(), i, story, i});
  }
  return told;
}

std::int64_t next_of(const Sequence& sequence) { return sequence.next_position().value(); }

// Feeds story 1, `at_once` tokens a step (0: random counts).
void feed_in_steps(const LawCase& c, std::int64_t at_once, Reference& reference, Random& random) {
  Cache cache = Cache::create(c.spec).value();
  const Sequence sequence = cache.open().value();
  for (std::int64_t fed = 0; fed < c.tokens;) {
    const std::int64_t wanted = at_once > 0 ? at_once : random.integer(1, 2 * c.spec.page_tokens);
    std::vector<Told> told = tell(sequence, fed, std::min(wanted, c.tokens - fed));
    for (Told& token : told) {
      if (c.gaps) token.position += token.token / 5 * 3;
    }
    Step step = run(cache, told, reference);
    ASSERT_TRUE(step.commit().ok());
    fed += static_cast<std::int64_t>(told.size());
  }
  EXPECT_TRUE(sequence.is_exact().value());
}

// Feeds story 1 among tokens of other sequences, in any order.
void feed_mixed(const LawCase& c, Reference& reference, Random& random) {
  Cache cache = Cache::create(c.spec).value();
  const Sequence sequence = cache.open().value();
  const std::vector<Sequence> others = {cache.open().value(), cache.open().value()};
  while (next_of(sequence) < c.tokens) {
    const std::int64_t left = c.tokens - next_of(sequence);
    std::vector<std::vector<Told>> parts = {
        tell(sequence, next_of(sequence), std::min(left, random.integer(1, 9)))};
    for (const Sequence& other : others) {
      if (random.one_in(3)) continue;
      parts.push_back(tell(other, next_of(other), random.integer(1, 12), 7));
    }
    std::vector<Told> told;
    std::vector<std::size_t> taken(parts.size(), 0);
    while (!parts.empty()) {
      const std::size_t p = random.index(parts.size());
      told.push_back(parts[p][taken[p]++]);
      if (taken[p] < parts[p].size()) continue;
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(p));
      taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(p));
    }
    Step step = run(cache, told, reference);
    ASSERT_TRUE(step.commit().ok());
  }
}

// Feeds story 1 as one of 64 sequences that all have tokens in every step.
void feed_in_crowd(const LawCase& c, Reference& reference, Random& random) {
  constexpr std::size_t kCrowd = 64;
  Cache cache = Cache::create(c.spec).value();
  std::vector<Sequence> sequences;
  for (std::size_t i = 0; i < kCrowd; ++i) sequences.push_back(cache.open().value());
  const std::size_t own = random.index(kCrowd);
  while (next_of(sequences[own]) < c.tokens) {
    std::vector<Told> told;
    for (std::size_t i = 0; i < kCrowd; ++i) {
      const std::int64_t next = next_of(sequences[i]);
      const std::int64_t count =
          i == own ? std::min(c.tokens - next, random.integer(1, 9)) : random.integer(1, 2);
      const std::vector<Told> part = tell(sequences[i], next, count, i == own ? 1 : 7 + i);
      told.insert(told.end(), part.begin(), part.end());
    }
    Step step = run(cache, told, reference);
    ASSERT_TRUE(step.commit().ok());
  }
}

// How often each thing happened, so that a test that tests nothing is seen.
struct Walked {
  int rollbacks = 0;
  int exact_cuts = 0;
  int coded_points = 0;
};

// A life with everything the law allows: steps of any size, drafts that are rolled back, partly
// committed or dropped, forks and cuts at exact points.
void walk(const LawCase& c, Reference& reference, Random& random, Walked& walked) {
  Cache cache = Cache::create(c.spec).value();
  Sequence sequence = cache.open().value();
  std::int64_t since_cut = 0;  // tokens appended since the last cut
  for (int round = 0; round < 24; ++round) {
    const std::int64_t next = next_of(sequence);
    const std::int64_t room = c.tokens - next;
    switch (random.number(0, 6)) {
      case 0:
      case 1: {  // a step
        if (room == 0) break;
        const std::int64_t count = random.integer(1, std::min<std::int64_t>(room, 12));
        Step step = run(cache, tell(sequence, next, count), reference);
        ASSERT_TRUE(step.commit().ok());
        since_cut += count;
        break;
      }
      case 2: {  // a wrong draft, committed, and undone
        const std::int64_t wrong = random.integer(0, c.spec.rollback);
        if (wrong == 0) break;
        std::int64_t done = 0;
        while (done < wrong) {
          const std::int64_t count = random.integer(1, wrong - done);
          Step step = run(cache, tell(sequence, next + done, count, 5), reference);
          ASSERT_TRUE(step.commit().ok());
          done += count;
        }
        ASSERT_EQ(sequence.can_resume(next).value(), Resume::exact)
            << "undoing " << wrong << " of " << next + wrong;
        ASSERT_TRUE(sequence.truncate(next).value().removed);
        since_cut = 0;
        ++walked.rollbacks;
        break;
      }
      case 3: {  // a draft of which the first tokens are right
        const std::int64_t right = std::min<std::int64_t>(room, random.integer(0, 6));
        std::vector<Told> told = tell(sequence, next, right);
        const std::vector<Told> wrong = tell(sequence, next + right, random.integer(1, 6), 5);
        told.insert(told.end(), wrong.begin(), wrong.end());
        Step step = run(cache, told, reference);
        ASSERT_TRUE(step.commit({right}).ok());
        since_cut += right;
        break;
      }
      case 4: {  // a step that is dropped
        Step step = run(cache, tell(sequence, next, random.integer(1, 9), 5), reference);
        step.drop();
        break;
      }
      case 5: {  // undoing right tokens within rollback
        const std::int64_t undone = random.integer(0, std::min({c.spec.rollback, since_cut, next}));
        if (undone == 0) break;
        ASSERT_EQ(sequence.can_resume(next - undone).value(), Resume::exact) << "at " << next;
        ASSERT_TRUE(sequence.truncate(next - undone).value().removed);
        since_cut = 0;
        ++walked.rollbacks;
        break;
      }
      default: {  // a fork or a cut anywhere that is exact
        if (next == 0) break;
        const std::int64_t at = random.integer(0, next);
        const Resume resume = sequence.can_resume(at).value();
        const Sequence child = sequence.fork(at).value().sequence;
        if (resume != Resume::exact) {
          if (resume == Resume::coded) {
            EXPECT_FALSE(child.is_exact().value()) << "cut at " << at << " of " << next;
            ++walked.coded_points;
            Reference other;
            Step step = run(cache, tell(child, next_of(child), 2, 5), other);
            EXPECT_TRUE(step.commit().ok());
          } else {
            const Batch batch = Batch().add(child.id(), at, 1);
            EXPECT_EQ(cache.begin(batch).code(), ErrorCode::not_resumable);
          }
          ASSERT_TRUE(child.close().ok());
          break;
        }
        ++walked.exact_cuts;
        if (random.one_in(2)) {
          ASSERT_TRUE(child.close().ok());
          ASSERT_TRUE(sequence.truncate(at).ok());
        } else {
          if (random.one_in(2)) {
            ASSERT_TRUE(sequence.close().ok());
          }
          sequence = child;
        }
        since_cut = 0;
        break;
      }
    }
    ASSERT_TRUE(sequence.is_exact().value()) << "round " << round;
  }
}

LayerSpec plain_layer(const std::string& key, const std::string& value, Pattern pattern) {
  LayerSpec layer;
  layer.kv_heads = kHeads;
  layer.query_heads = kQueryHeads;
  layer.key_dim = kDim;
  layer.value_dim = kDim + 1;
  layer.codec = {key, value};
  layer.pattern = pattern;
  return layer;
}

LayerSpec mla_layer(const std::string& codec, Pattern pattern) {
  LayerSpec layer = plain_layer(codec, codec, pattern);
  layer.mla = true;
  layer.kv_heads = 1;
  layer.value_dim = kDim - 2;
  return layer;
}

// Every pattern in one cache, each a group of its own, and a layer that reads another's store.
CacheSpec all_patterns(const std::string& key, const std::string& value) {
  CacheSpec spec;
  spec.layers = {
      plain_layer(key, value, Pattern::causal()),     plain_layer(key, value, Pattern::window(5)),
      plain_layer(key, value, Pattern::window(3, 9)), plain_layer(key, value, Pattern::chunked(6)),
      plain_layer(key, value, Pattern::causal()),     mla_layer(key, Pattern::causal())};
  spec.layers[4].kv_of = 0;
  spec.layers[4].soft_cap = 2.0f;
  spec.layers[4].sinks = {0.5f, -1.0f, 0.0f, 2.0f};
  return spec;
}

void expect_law(LawCase c, std::uint64_t seed, Walked& walked) {
  SCOPED_TRACE(c.name);
  Random random(seed);
  Reference reference;
  feed_in_steps(c, 1, reference, random);
  feed_in_steps(c, 8, reference, random);
  feed_in_steps(c, c.tokens, reference, random);
  feed_in_steps(c, 0, reference, random);
  for (const int threads : {1, 2}) {
    c.spec.threads = threads;
    feed_in_steps(c, 8, reference, random);
    feed_mixed(c, reference, random);
    for (int i = 0; i < 3; ++i) walk(c, reference, random, walked);
  }
  EXPECT_GE(reference.met(), 8 * c.tokens * static_cast<std::int64_t>(c.spec.layers.size()));

  c.gaps = true;
  Reference with_gaps;
  feed_in_steps(c, 1, with_gaps, random);
  feed_in_steps(c, 0, with_gaps, random);
  feed_in_steps(c, c.tokens, with_gaps, random);
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

class Law : public testing::TestWithParam<std::string> {};

TEST_P(Law, HoldsForEveryPageSizeAndExactRegion) {
  const std::uint64_t seed = announce_seed();
  Walked walked;
  std::uint64_t salt = 0;
  const std::vector<int> pages = kSlowBuild ? std::vector{3, 16} : std::vector{1, 3, 4, 16, 20};
  for (const int page : pages) {
    for (const Exactness& exact : {Exactness{0, 0, 0}, Exactness{0, 0, 8}, Exactness{5, 0, 2},
                                   Exactness{0, 6, 0}, Exactness{3, 7, 4}, Exactness{0, 50, 1}}) {
      LawCase c;
      c.spec = all_patterns(GetParam(), GetParam());
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
    c.spec.layers = {plain_layer(key, GetParam(), Pattern::causal()),
                     plain_layer(GetParam(), key, Pattern::window(4, 6))};
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
  c.spec.layers = {plain_layer(GetParam(), GetParam(), Pattern::causal()),
                   plain_layer(GetParam(), GetParam(), Pattern::window(100))};
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
  c.spec.layers = {plain_layer(GetParam(), GetParam(), Pattern::causal())};
  c.spec.page_tokens = 16;
  c.tokens = 100;
  Random random(seed);
  Reference reference;
  feed_in_steps(c, 1, reference, random);
  c.spec.threads = 2;
  feed_in_crowd(c, reference, random);
  EXPECT_EQ(reference.met(), c.tokens);
}

// A cut at a coded point is told before and after, and what is read stays readable.
TEST_P(Law, CodedCutsAreTold) {
  const bool lossless = is_float(GetParam());
  CacheSpec spec;
  spec.layers = {plain_layer(GetParam(), GetParam(), Pattern::causal())};
  spec.page_tokens = 4;
  spec.rollback = 2;
  Cache cache = Cache::create(spec).value();
  Reference ignored;
  const Sequence sequence = cache.open().value();
  Step step = run(cache, tell(sequence, 0, 19), ignored);
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

// Codecs that rotate, that look at whole pages, and that are decoded to be attended to: they take
// fewer sizes and no latents.
TEST(LawOfPairs, HoldsForCodecsOfFewerBits) {
  const std::uint64_t seed = announce_seed() + 3000;
  Walked walked;
  std::uint64_t salt = 0;
  for (const CodecPair& pair :
       {CodecPair{"tq4", "tq4"}, CodecPair{"tq3", "tq2"}, CodecPair{"dual4", "tq4"},
        CodecPair{"dual6", "tq5"}, CodecPair{"q8_0", "q4_0"}}) {
    for (const int page : {5, 16}) {
      LawCase c;
      c.spec.layers = {plain_layer(pair.key, pair.value, Pattern::causal()),
                       plain_layer(pair.key, pair.value, Pattern::window(4, 6))};
      for (LayerSpec& layer : c.spec.layers) layer.key_dim = layer.value_dim = 32;
      c.spec.page_tokens = page;
      c.spec.rollback = 3;
      c.name = name_of_case(c.spec);
      expect_law(c, seed + ++salt, walked);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// One token, 8 and 512 at a time, and as one of 64 sequences, for every codec below 8 bits.
TEST(LawOfPairs, HoldsForAPrefillOf512AndInABatchOf64) {
  Random random(announce_seed() + 5000);
  for (const CodecPair& pair :
       {CodecPair{"tq6", "tq2"}, CodecPair{"tq5", "tq6"}, CodecPair{"dual6", "tq5"},
        CodecPair{"dual5", "tq4"}, CodecPair{"dual4", "tq3"}, CodecPair{"dual3", "tq3"}}) {
    SCOPED_TRACE(pair.key + '/' + pair.value);
    LawCase c;
    c.spec.layers = {plain_layer(pair.key, pair.value, Pattern::causal())};
    c.spec.layers[0].key_dim = c.spec.layers[0].value_dim = 32;
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
  EXPECT_TRUE(std::signbit(expected[0])) << expected[0];
  EXPECT_EQ(std::memcmp(found.data(), expected.data(), kSize * sizeof(float)), 0);
}

INSTANTIATE_TEST_SUITE_P(Codec, Law, testing::ValuesIn(kCodecs),
                         [](const auto& codec) { return codec.param; });

}  // namespace
}  // namespace quire::test
