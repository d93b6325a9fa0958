// Attention through the surface, against softmax over plain rows in double.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "base/crowd.h"
#include "base/numbers.h"
#include "base/slow_build.h"
#include "cache/fixture.h"
#include "quire/executor.hpp"

namespace quire::test {
namespace {

// Everything that one layer's step answers must be softmax over `keys` and `values`, the tokens
// [0, end) as the layer reads them.
struct Reference {
  Rows keys;
  Rows values;

  std::vector<Seen> seen(std::int64_t position, int kv_head) const {
    std::vector<Seen> all;
    for (std::int64_t p = 0; p <= position; ++p) {
      all.push_back({keys.at(p, kv_head), values.at(p, kv_head), p - position});
    }
    return all;
  }
};

Reference reference_of(const CacheSpec& spec, int layer, std::int64_t end) {
  const LayerSpec& shape = spec.layers[index_of(layer)];
  return {known_rows(shape, layer, Side::key, range(0, end)),
          known_rows(shape, layer, Side::value, range(0, end))};
}

// 9 tokens in one step, 4 in the next, which asks.
constexpr std::int64_t kBefore = 9;
constexpr std::int64_t kAsking = 4;

void expect_softmax(const CacheSpec& spec, int query_heads, const std::vector<Rules>& rules) {
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, kBefore);
  Step step = stepped(cache, batch_of(sequence, kBefore, kAsking));
  const LayerSpec& layer = spec.layers[0];
  const Reference reference = reference_of(spec, 0, kBefore + kAsking);
  const Rows q = known_queries(kAsking, query_heads, layer.key_dim);
  const Rows out = attend(step, spec, 0, q);
  const std::int64_t columns = kBefore + kAsking;
  Rows scores(kAsking, query_heads, static_cast<int>(columns));
  Rows probabilities(kAsking, query_heads, static_cast<int>(columns));
  const auto elements = static_cast<std::int64_t>(scores.data.size());
  step.scores(0, q.view(), scores.data.data(), elements).value();
  step.probabilities(0, q.view(), probabilities.data.data(), elements).value();
  for (std::int64_t t = 0; t < kAsking; ++t) {
    for (int h = 0; h < query_heads; ++h) {
      const Rules& rule = rules[index_of(h) % rules.size()];
      const std::vector<Seen> seen =
          reference.seen(kBefore + t, h / (query_heads / layer.kv_heads));
      std::vector<double> weights;
      const auto expected =
          naive_attention(q.at(t, h), seen, layer.key_dim, layer.value_dim, rule, &weights);
      EXPECT_TRUE(near(out.at(t, h), expected)) << "token " << t << " head " << h;
      std::vector<double> logits;
      for (const Seen& one : seen)
        logits.push_back(naive_logit(q.at(t, h), one, layer.key_dim, rule));
      EXPECT_TRUE(near(scores.at(t, h), logits));
      EXPECT_TRUE(near(probabilities.at(t, h), weights));
      for (std::int64_t j = kBefore + t + 1; j < columns; ++j) {
        EXPECT_EQ(scores.at(t, h)[j], -kInfinity) << "not seen";
        EXPECT_EQ(probabilities.at(t, h)[j], 0.0f);
      }
    }
  }
}

CacheSpec layer_spec(int kv_heads, int key_dim, int value_dim) {
  CacheSpec spec = small_spec();
  spec.layers[0].kv_heads = kv_heads;
  spec.layers[0].key_dim = key_dim;
  spec.layers[0].value_dim = value_dim;
  return spec;
}

TEST(Attend, IsSoftmaxForMhaGqaAndMqa) {
  for (const auto& [kv_heads, query_heads] :
       {std::pair(3, 3), std::pair(2, 6), std::pair(1, 4), std::pair(1, 1)}) {
    expect_softmax(layer_spec(kv_heads, 4, 4), query_heads, {{.scale = 0.5}});
  }
}

TEST(Attend, KeysAndValuesMayDifferInSize) {
  expect_softmax(layer_spec(2, 9, 3), 4, {{.scale = 1.0 / 3}});
  expect_softmax(layer_spec(2, 4, 20), 4, {{.scale = 0.5}});
}

TEST(Attend, UsesTheLayersScale) {
  CacheSpec spec = layer_spec(2, 4, 4);
  spec.layers[0].scale = 1.25f;
  expect_softmax(spec, 4, {{.scale = 1.25}});
}

TEST(Attend, CapsLogits) {
  CacheSpec spec = layer_spec(2, 4, 4);
  spec.layers[0].scale = 2.0f;
  spec.layers[0].soft_cap = 1.5f;
  expect_softmax(spec, 4, {{.scale = 2.0, .soft_cap = 1.5}});
}

TEST(Attend, AddsSlopesByDistance) {
  CacheSpec spec = layer_spec(2, 4, 4);
  spec.layers[0].slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
  expect_softmax(spec, 4,
                 {{.scale = 0.5, .slope = 0.5},
                  {.scale = 0.5, .slope = 0.25},
                  {.scale = 0.5, .slope = 0.125},
                  {.scale = 0.5, .slope = 0.0625}});
}

TEST(Attend, SinksTakeWeightAndGiveNoValue) {
  CacheSpec spec = layer_spec(2, 4, 4);
  spec.layers[0].sinks = {0.0f, 2.0f};
  expect_softmax(spec, 2, {{.scale = 0.5, .sink = 0.0}, {.scale = 0.5, .sink = 2.0}});
}

TEST(Attend, AllRulesAtOnce) {
  CacheSpec spec = layer_spec(2, 6, 5);
  spec.layers[0].scale = 0.7f;
  spec.layers[0].soft_cap = 2.0f;
  spec.layers[0].slopes = {0.25f, 0.5f};
  spec.layers[0].sinks = {1.0f, -1.0f};
  const double scale = static_cast<double>(0.7f);
  expect_softmax(spec, 2,
                 {{.scale = scale, .soft_cap = 2.0, .slope = 0.25, .sink = 1.0},
                  {.scale = scale, .soft_cap = 2.0, .slope = 0.5, .sink = -1.0}});
}

TEST(Attend, QueriesComeInEveryDtypeAndStride) {
  CacheSpec spec = layer_spec(2, 4, 4);
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 5);
  Step step = stepped(cache, batch_of(sequence, 5, 3));
  const Rows q = known_queries(3, 4, 4);
  const Rows expected = attend(step, spec, 0, q);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    // [head][token] with a gap after each row, in and out.
    TensorView view{nullptr, dtype, 3, 4, 4, 6, 18};
    std::vector<std::byte> buffer(4 * 18 * 4, std::byte{0xff});
    for (std::int64_t t = 0; t < 3; ++t) {
      for (int h = 0; h < 4; ++h) {
        for (int c = 0; c < 4; ++c) {
          store_element(dtype, buffer.data(), index_of(t * 6 + h * 18 + c), q.at(t, h)[c]);
        }
      }
    }
    view.data = buffer.data();
    std::vector<float> out(4 * 18, -5.0f);
    step.attend(0, view, {out.data(), 3, 4, 4, 6, 18}).value();
    for (std::int64_t t = 0; t < 3; ++t) {
      for (int h = 0; h < 4; ++h) {
        for (int c = 0; c < 6; ++c) {
          EXPECT_EQ(out[index_of(t * 6 + h * 18 + c)], c < 4 ? expected.at(t, h)[c] : -5.0f);
        }
      }
    }
  }
}

TEST(Attend, AnswersTheSameOnManyThreads) {
  CacheSpec spec = layer_spec(2, 4, 4);
  const auto run = [&](int threads) {
    spec.threads = threads;
    Cache cache = Cache::create(spec).value();
    const Sequence a = filled(cache, 70);
    const Sequence b = filled(cache, 9, 1);
    Step step = stepped(cache, batch_of(a, 70, 3).add(b.id(), 9, 2));
    return attend(step, spec, 0, known_queries(5, 4, 4)).data;
  };
  const std::vector<float> alone = run(1);
  EXPECT_EQ(run(3), alone);
  EXPECT_EQ(run(0), alone);
}

TEST(Attend, RunsOnTheCallersExecutor) {
  class Backwards : public Executor {
   public:
    void run(std::size_t count, const std::function<void(std::size_t)>& task) override {
      runs += 1;
      tasks += count;
      for (std::size_t i = count; i-- > 0;) task(i);
    }
    std::size_t runs = 0;
    std::size_t tasks = 0;
  };
  Backwards executor;
  CacheSpec spec = layer_spec(2, 4, 4);
  const auto run = [&](Executor* given) {
    spec.executor = given;
    Cache cache = Cache::create(spec).value();
    const Sequence a = filled(cache, 300);
    const Sequence b = filled(cache, 9, 1);
    Step step = stepped(cache, batch_of(a, 300, 3).add(b.id(), 9, 2));
    return attend(step, spec, 0, known_queries(5, 4, 4)).data;
  };
  const std::vector<float> own = run(nullptr);
  EXPECT_EQ(run(&executor), own);
  EXPECT_GT(executor.runs, 0u);
  EXPECT_GT(executor.tasks, 1u);
}

// Items of the history are then taken by many threads at once, done in any order, and each thread
// is new to what others have prepared. Threads share the history or the heads, evenly or not. Sizes
// that are no multiple of 16 are decoded, the others multiplied by the codec's own kernels.
TEST(Attend, AnswersTheSameHoweverManyThreadsShareIt) {
  Crowd crowd;
  struct Case {
    CodecPair codec;
    int kv_heads;
    int page;
    int dim;
  };
  for (const Case& c : {Case{{"f32", "f32"}, 4, 16, 128},
                        {{"f32", "f32"}, 3, 16, 128},
                        {{"f16", "f16"}, 5, 4, 16},
                        {{"f16", "f16"}, 3, 4, 4},
                        {{"bf16", "bf16"}, 4, 4, 64},
                        {{"fp8_e4m3", "fp8_e4m3"}, 3, 4, 64},
                        {{"fp8_e5m2", "fp8_e5m2"}, 4, 4, 16},
                        {{"int8", "int8"}, 4, 4, 64},
                        {{"int8", "int8"}, 1, 4, 4},
                        {{"tq4", "tq4"}, 4, 4, 64},
                        {{"tq4", "tq4"}, 3, 4, 16},
                        {{"dual4", "tq4"}, 4, 4, 128},
                        {{"dual6", "tq5"}, 3, 4, 64}}) {
    const int kv_heads = c.kv_heads;
    const int page = c.page;
    const int dim = c.dim;
    const int heads = 2 * kv_heads;
    CacheSpec spec = layer_spec(kv_heads, dim, dim);
    spec.page_tokens = page;
    spec.set_codec(c.codec.key, c.codec.value);
    spec.layers[0].sinks.assign(static_cast<std::size_t>(heads), 0.5f);
    const auto run = [&](Executor* given, int threads, std::vector<float>& states) {
      spec.executor = given;
      spec.threads = threads;
      Cache cache = Cache::create(spec).value();
      const Sequence a = filled(cache, 70 * page);
      const Sequence b = filled(cache, 90 * page, 1);
      const Sequence one = filled(cache, 40 * page, 2);
      Step step = stepped(
          cache, batch_of(a, 70 * page, 56).add(b.id(), 90 * page, 3).add(one.id(), 40 * page, 1));
      const Rows q = known_queries(60, heads, dim);
      const auto rows = static_cast<std::size_t>(60 * heads);
      states.assign(rows * static_cast<std::size_t>(dim + 2), 0.0f);
      float* m = states.data() + rows * static_cast<std::size_t>(dim);
      step.attend_state(0, q.view(), {states.data(), m, m + rows, 60, heads, dim}).value();
      return attend(step, spec, 0, q).data;
    };
    std::vector<float> alone_states;
    const std::vector<float> alone = run(nullptr, 1, alone_states);
    std::vector<float> states;
    const std::string label = fmt::format("{}/{}, {} heads of {}, pages of {}", c.codec.key,
                                          c.codec.value, kv_heads, dim, page);
    EXPECT_EQ(run(&crowd, 1, states), alone) << label;
    EXPECT_EQ(states, alone_states) << label;
    for (const int threads : {2, 3, 4, 8, 32}) {
      if (kSlowBuild && (threads == 4 || threads == 8)) continue;
      EXPECT_EQ(run(nullptr, threads, states), alone) << label << ", " << threads << " threads";
      EXPECT_EQ(states, alone_states) << label << ", " << threads << " threads";
    }
  }
  EXPECT_GT(crowd.most, 4u);  // more than one for each sequence
}

// A step keeps how it cut the work of a layer for the next one, which may have another form, be
// asked for by other query heads, or be told of exceptions.
TEST(Attend, LayersOfAllFormsTakeTurnsInAStep) {
  struct Form {
    int kv_heads;
    int dim;
    int query_heads;
  };
  const std::vector<Form> forms = {{4, 64, 8}, {4, 64, 8}, {4, 64, 4}, {3, 64, 6},
                                   {4, 32, 8}, {1, 64, 2}, {4, 64, 8}};
  CacheSpec spec = small_spec(static_cast<int>(forms.size()), "int8");
  spec.page_tokens = 4;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    spec.layers[i].kv_heads = forms[i].kv_heads;
    spec.layers[i].key_dim = spec.layers[i].value_dim = forms[i].dim;
  }
  const auto attend_to = [&](Step& step, std::size_t layer, std::int64_t tokens) {
    const Form& form = forms[layer];
    return attend(step, spec, static_cast<int>(layer),
                  known_queries(tokens, form.query_heads, form.dim))
        .data;
  };
  for (const std::int64_t tokens : {1, 5}) {
    const auto run = [&](int threads, bool alone) {
      spec.threads = threads;
      Cache cache = Cache::create(spec).value();
      const Sequence sequence = filled(cache, 150);
      std::vector<std::vector<float>> found;
      Step step = stepped(cache, batch_of(sequence, 150, tokens));
      for (int round = 0; round < 2; ++round) {
        if (round == 1) step.set_exceptions({0}).value();
        for (std::size_t layer = 0; layer < forms.size(); ++layer) {
          found.push_back(attend_to(step, layer, tokens));
          if (!alone) continue;
          step.drop();
          step = stepped(cache, batch_of(sequence, 150, tokens));
          if (round == 1) step.set_exceptions({0}).value();
        }
      }
      return found;
    };
    const std::vector<std::vector<float>> alone = run(1, true);
    for (const int threads : {1, 2, 3, 8}) {
      EXPECT_EQ(run(threads, false), alone) << threads << " threads, " << tokens << " queries";
    }
  }
}

// What it had done by then is not taken for anything of the next call.
TEST(Attend, IsDoneAgainAfterTheCallersExecutorGaveUp) {
  class GivesUp : public Executor {
   public:
    void run(std::size_t count, const std::function<void(std::size_t)>& task) override {
      for (std::size_t i = 0; i < std::min(count, most); ++i) task(count - 1 - i);
      if (most < count) throw std::runtime_error("no threads");
    }
    std::size_t most = SIZE_MAX;  // tasks, the last first
  };
  CacheSpec spec = layer_spec(4, 64, 64);
  spec.threads = 2;
  const Rows q = known_queries(1, 8, 64);
  const auto step_of = [&](Cache& cache) {
    return stepped(cache, batch_of(filled(cache, 300), 300, 1));
  };
  Cache plain = Cache::create(spec).value();
  Step plain_step = step_of(plain);
  const std::vector<float> expected = attend(plain_step, spec, 0, q).data;
  GivesUp executor;
  spec.executor = &executor;
  Cache cache = Cache::create(spec).value();
  Step step = step_of(cache);
  for (const std::size_t most : {std::size_t{0}, std::size_t{1}}) {
    Rows out(1, 8, 64);
    executor.most = most;
    EXPECT_TRUE(fails(step.attend(0, q.view(), out.out()), ErrorCode::internal));
    executor.most = SIZE_MAX;
    EXPECT_EQ(attend(step, spec, 0, q).data, expected) << "after " << most << " tasks";
  }
}

// --- states --------------------------------------------------------------------------------------

TEST(AttendState, StatesOfTwoHalvesMergeToTheWhole) {
  CacheSpec spec = layer_spec(2, 4, 4);
  spec.layers[0].sinks = {0.5f, 1.0f};
  const Rows q = known_queries(1, 2, 4);
  struct States {
    std::vector<float> o = std::vector<float>(8), m = std::vector<float>(2), l = m;
    StateView view() { return {o.data(), m.data(), l.data(), 1, 2, 4}; }
  };
  // The query stands at 12 in every cache; its own key is in the second half only.
  const auto run = [&](std::int64_t begin, std::int64_t end, States& states) {
    Cache cache = Cache::create(spec).value();
    const Sequence sequence = cache.open().value();
    if (begin + 1 < end) append(cache, sequence, begin, end - begin - 1);
    Step step = stepped(cache, batch_of(sequence, end - 1, 1));
    step.attend_state(0, q.view(), states.view()).value();
    return attend(step, spec, 0, q);
  };
  States first, second, whole;
  run(0, 6, first);
  run(6, 13, second);
  const Rows expected = run(0, 13, whole);
  state_merge(first.o.data(), first.m.data(), first.l.data(), second.o.data(), second.m.data(),
              second.l.data(), 2, 4);
  for (int h = 0; h < 2; ++h) {
    float out[4];
    state_finish(out, first.o.data() + 4 * h, first.m[index_of(h)], first.l[index_of(h)],
                 spec.layers[0].sinks[index_of(h)], 4);
    for (int c = 0; c < 4; ++c) EXPECT_NEAR(out[c], expected.at(0, h)[c], 1e-6);
    state_finish(out, whole.o.data() + 4 * h, whole.m[index_of(h)], whole.l[index_of(h)],
                 spec.layers[0].sinks[index_of(h)], 4);
    for (int c = 0; c < 4; ++c) EXPECT_EQ(out[c], expected.at(0, h)[c]);
  }
}

TEST(AttendState, OfNothingSeenIsEmpty) {
  CacheSpec spec = pattern_spec({Pattern::causal(), Pattern::cross()});
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  Step step = stepped(cache, batch_of(sequence, 0, 1));
  float o[8] = {1, 1, 1, 1, 1, 1, 1, 1}, m[2] = {1, 1}, l[2] = {1, 1};
  step.attend_state(1, known_queries(1, 2, 4).view(), {o, m, l, 1, 2, 4}).value();
  EXPECT_EQ(m[1], -kInfinity);
  EXPECT_EQ(l[0], 0.0f);
  EXPECT_EQ(o[3], 0.0f);
}

// --- MLA and shared stores -----------------------------------------------------------------------

CacheSpec mla_spec(const std::string& codec) {
  CacheSpec spec = CacheSpec::mla(1, 3, 6, 4);
  spec.set_codec(codec, codec);
  spec.page_tokens = 4;
  return spec;
}

TEST(Mla, ValuesAreTheFirstChannelsOfTheLatent) {
  const CacheSpec spec = mla_spec("f32");
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 9);
  Step step = stepped(cache, batch_of(sequence, 9, 2));
  const Rows latent = known_rows(spec.layers[0], 0, Side::key, range(0, 11));
  const Rows q = known_queries(2, 3, 10);
  const Rows out = attend(step, spec, 0, q);
  for (std::int64_t t = 0; t < 2; ++t) {
    std::vector<Seen> seen;
    for (std::int64_t p = 0; p <= 9 + t; ++p) seen.push_back({latent.at(p, 0), latent.at(p, 0)});
    for (int h = 0; h < 3; ++h) {
      EXPECT_TRUE(near(out.at(t, h),
                       naive_attention(q.at(t, h), seen, 10, 6, {.scale = 1.0 / std::sqrt(10.0)})));
    }
  }
  const std::vector<float> values = read_all(sequence, 0, Side::value);
  ASSERT_EQ(values.size(), 9u * 6);
  for (std::int64_t p = 0; p < 9; ++p) {
    EXPECT_TRUE(std::equal(values.begin() + p * 6, values.begin() + p * 6 + 6, latent.at(p, 0)));
  }
}

TEST(Mla, TakesOneLatentAndNoValues) {
  const CacheSpec spec = mla_spec("f32");
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  Step step = cache.begin(batch_of(sequence, 0, 2)).value();
  const Rows latent(2, 1, 10);
  const Rows values(2, 1, 6);
  EXPECT_TRUE(
      fails(step.put(0, latent.view(), values.view()), ErrorCode::mismatch, {"layer 0", "MLA"}));
  EXPECT_TRUE(fails(step.put(0, values.view()), ErrorCode::mismatch, {"keys", "[2][1][6]"}));
  EXPECT_TRUE(succeeds(step.put(0, latent.view())));
}

// int8 keeps one scale for the latent and one for the rotary part.
TEST(Mla, Int8HasAScaleForEachPart) {
  CacheSpec spec = mla_spec("int8");
  spec.layers[0].row_type = DType::f32;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  Step step = cache.begin(batch_of(sequence, 0, 4)).value();
  Rows latent(4, 1, 10);
  for (std::int64_t t = 0; t < 4; ++t) {
    for (int c = 0; c < 10; ++c) {
      const int code = static_cast<int>((t * 10 + c * 7) % 127);
      latent.at(t, 0)[c] = static_cast<float>(code) * (c < 6 ? 1.0f : 0.0078125f);
    }
    latent.at(t, 0)[0] = 127.0f;            // the latent's scale is 1
    latent.at(t, 0)[9] = 0.0078125f * 127;  // the rotary part's is 1/128
  }
  step.put(0, latent.view()).value();
  step.commit().value();
  EXPECT_EQ(read_all(sequence, 0, Side::key), latent.data) << "codes times their scale, exactly";
  const std::vector<RunView> runs = sequence.runs(0).value();
  EXPECT_EQ(runs.at(0).scale_bytes, 2u * 2 * 16) << "two parts of 16 padded slots in f16";
}

TEST(SharedStore, ALayerReadsAnothersKeysWithItsOwnRules) {
  CacheSpec spec = small_spec(2);
  spec.layers[1].kv_of = 0;
  spec.layers[1].scale = 1.5f;
  spec.layers[1].soft_cap = 3.0f;
  spec.layers[1].sinks = {0.5f, 0.5f};
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 6);
  const Batch batch = batch_of(sequence, 6, 1);
  Step step = cache.begin(batch).value();
  const Rows q = known_queries(1, 2, 4);
  Rows out(1, 2, 4);
  EXPECT_TRUE(fails(step.attend(1, q.view(), out.out()), ErrorCode::wrong_state, {"layer 0"}));
  put(step, spec, 0, batch).value();
  EXPECT_TRUE(fails(put(step, spec, 1, batch), ErrorCode::not_supported, {"layer 1", "layer 0"}));
  step.attend(1, q.view(), out.out()).value();
  const Reference reference = reference_of(spec, 0, 7);
  for (int h = 0; h < 2; ++h) {
    EXPECT_TRUE(near(out.at(0, h), naive_attention(q.at(0, h), reference.seen(6, h), 4, 4,
                                                   {.scale = 1.5, .soft_cap = 3.0, .sink = 0.5})));
  }
  step.commit().value();
  EXPECT_EQ(read_all(sequence, 1, Side::key), read_all(sequence, 0, Side::key));
  EXPECT_TRUE(fails(sequence.overwrite(1, 2, q.view(), q.view()), ErrorCode::not_supported,
                    {"layer 1", "layer 0"}));
}

// --- refusals ------------------------------------------------------------------------------------

TEST(Attend, ALayerNotYetPutIsNamed) {
  Cache cache = Cache::create(small_spec(2)).value();
  const Sequence sequence = filled(cache, 2);
  const Batch batch = batch_of(sequence, 2, 1);
  Step step = cache.begin(batch).value();
  put(step, cache.spec(), 0, batch).value();
  const Rows q = known_queries(1, 2, 4);
  Rows out(1, 2, 4);
  float number = 0;
  const auto early = [](const auto& result) {
    return fails(result, ErrorCode::wrong_state, {"layer 1"});
  };
  EXPECT_TRUE(early(step.attend(1, q.view(), out.out())));
  EXPECT_TRUE(early(step.attend_state(1, q.view(), {&number, &number, &number, 1, 2, 4})));
  EXPECT_TRUE(early(step.scores(1, q.view(), &number, 1)));
  EXPECT_TRUE(early(step.probabilities(1, q.view(), &number, 1)));
  EXPECT_TRUE(early(step.gather_size(1, {sequence.id()}, {})));
  EXPECT_TRUE(early(step.mask_columns(1)));
  EXPECT_TRUE(early(step.runs(1, sequence.id())));
  EXPECT_TRUE(succeeds(step.attend(0, q.view(), out.out())));
}

TEST(Attend, ShapesAreChecked) {
  CacheSpec spec = small_spec(2);
  spec.layers[1].query_heads = 4;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 2);
  Step step = stepped(cache, batch_of(sequence, 2, 3));
  const auto ask = [&](int layer, const Rows& q, Rows out) {
    return step.attend(layer, q.view(), out.out());
  };
  EXPECT_TRUE(succeeds(ask(0, Rows(3, 2, 4), Rows(3, 2, 4))));
  EXPECT_TRUE(succeeds(ask(0, Rows(3, 6, 4), Rows(3, 6, 4))));
  EXPECT_TRUE(fails(ask(0, Rows(2, 2, 4), Rows(2, 2, 4)), ErrorCode::mismatch,
                    {"queries", "[2][2][4]", "3 tokens"}));
  EXPECT_TRUE(fails(ask(0, Rows(3, 2, 5), Rows(3, 2, 4)), ErrorCode::mismatch, {"[3][2][5]"}));
  EXPECT_TRUE(fails(ask(0, Rows(3, 3, 4), Rows(3, 3, 4)), ErrorCode::mismatch,
                    {"3 query heads", "multiple of 2"}));
  EXPECT_TRUE(fails(ask(1, Rows(3, 2, 4), Rows(3, 2, 4)), ErrorCode::mismatch,
                    {"2 query heads", "expected 4"}));
  EXPECT_TRUE(fails(ask(0, Rows(3, 2, 4), Rows(3, 2, 3)), ErrorCode::mismatch,
                    {"output", "[3][2][3]", "[3][2][4]"}));
  EXPECT_TRUE(fails(ask(2, Rows(3, 2, 4), Rows(3, 2, 4)), ErrorCode::out_of_range, {"layer 2"}));
  Rows out(3, 2, 4);
  TensorView q = known_queries(3, 2, 4).view();
  q.data = nullptr;
  EXPECT_TRUE(fails(step.attend(0, q, out.out()), ErrorCode::invalid_argument, {"null"}));
  const Rows good = known_queries(3, 2, 4);
  EXPECT_TRUE(fails(step.attend(0, good.view(), {}), ErrorCode::invalid_argument, {"null"}));
  EXPECT_TRUE(fails(step.attend_state(0, good.view(), {}), ErrorCode::invalid_argument, {"null"}));
  TensorView strange = good.view();
  strange.dtype = static_cast<DType>(8);
  EXPECT_TRUE(fails(step.attend(0, strange, out.out()), ErrorCode::mismatch, {"dtype 8"}));
}

TEST(Attend, ABufferOfScoresTooSmallIsNamedWithTheSizeNeeded) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence sequence = filled(cache, 4);
  Step step = stepped(cache, batch_of(sequence, 4, 2));
  const Rows q = known_queries(2, 2, 4);
  std::vector<float> out(24);  // [2][2][6]
  EXPECT_TRUE(
      fails(step.scores(0, q.view(), out.data(), 23), ErrorCode::buffer_too_small, {"24", "23"}));
  EXPECT_TRUE(
      fails(step.probabilities(0, q.view(), nullptr, 24), ErrorCode::buffer_too_small, {"24"}));
  EXPECT_TRUE(succeeds(step.scores(0, q.view(), out.data(), 24)));
}

}  // namespace
}  // namespace quire::test
