// Putting many tokens at once: the same bytes as one by one, on any number of threads, and the
// error of the first value or norm that does not fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/numbers.h"
#include "base/seed.h"
#include "fixture.h"
#include "quire/executor.hpp"

namespace quire::test {
namespace {

// Rows of one side of a layer, in the caller's type, [token][head][dim] or [head][token][dim].
struct Source {
  DType dtype;
  Layout layout;
  std::int64_t tokens;
  int heads;
  int dim;
  std::vector<std::byte> data;

  Source(DType type, Layout order, std::int64_t t, int h, int d)
      : dtype(type),
        layout(order),
        tokens(t),
        heads(h),
        dim(d),
        data(index_of(t * h * d) * bytes_of(type)) {}
  TensorView view() const {
    return TensorView::dense(data.data(), dtype, tokens, heads, dim, layout);
  }
  std::size_t at(std::int64_t token, int head, int channel) const {
    const TensorView v = view();
    return index_of(token * v.token_stride + head * v.head_stride + channel);
  }
  void set(std::size_t index, float value) { store_element(dtype, data.data(), index, value); }
  float get(std::size_t index) const { return load_element(dtype, data.data(), index); }
  void fill(std::mt19937_64& random) {
    std::normal_distribution<float> gauss;
    for (std::size_t i = 0; i < index_of(tokens * heads * dim); ++i) set(i, gauss(random));
  }
};

// Everything that is lent of a layer, as bytes.
std::string bytes_of_runs(const std::vector<RunView>& runs) {
  std::string all;
  for (const RunView& run : runs) {
    all += run.layout;
    const auto* data = reinterpret_cast<const char*>(run.data);
    if (run.layout.starts_with("rows")) {
      const std::size_t row = run.data_bytes / index_of(run.page_slots);
      all.append(data + row * index_of(run.first_slot),
                 row * index_of(run.last_slot - run.first_slot));
    } else {
      all.append(data, run.data_bytes);
      all.append(reinterpret_cast<const char*>(run.scales), run.scale_bytes);
    }
  }
  return all;
}

std::string bytes_of_runs(const Step& step, int layer, SequenceId id) {
  return bytes_of_runs(step.runs(layer, id).value());
}

struct Shape {
  const char* codec;
  DType dtype;
  Layout layout;
  int page_tokens;
  bool mla;
};

CacheSpec spec_of(const Shape& shape, int threads) {
  CacheSpec spec = CacheSpec::uniform({.layers = 1, .kv_heads = 4, .head_dim = 64});
  spec.set_codec(shape.codec).value();
  if (shape.mla) {
    spec.layers[0].mla = true;
    spec.layers[0].kv_heads = 1;
    spec.layers[0].query_heads = 4;
    spec.layers[0].key_dim = 320;
    spec.layers[0].value_dim = 256;
  }
  spec.page_tokens = shape.page_tokens;
  spec.exact_tail = 2 * shape.page_tokens;  // so that rows are looked at too
  spec.threads = threads;
  return spec;
}

Result<void> put_sources(Step& step, const Source& keys, const Source& values, bool mla) {
  return mla ? step.put(0, keys.view()) : step.put(0, keys.view(), values.view());
}

// Two sequences whose tokens take turns in runs of different lengths.
struct Mixed {
  Batch batch;
  std::vector<std::int64_t> order;  // rows of the batch, first sequence first
};

Mixed mixed_batch(SequenceId a, SequenceId b, std::int64_t tokens, std::mt19937_64& random) {
  Mixed mixed;
  std::vector<std::int64_t> rows[2];
  int who = static_cast<int>(random() % 2);
  for (std::int64_t t = 0; t < tokens;) {
    // Both take part: the second run is the other's.
    who = rows[0].empty() != rows[1].empty() ? 1 - who : static_cast<int>(random() % 2);
    const auto run =
        std::min<std::int64_t>(tokens - t, 1 + static_cast<std::int64_t>(random() % 200));
    mixed.batch.add(who == 0 ? a : b, static_cast<std::int64_t>(rows[who].size()), run);
    for (std::int64_t i = 0; i < run; ++i) rows[who].push_back(t + i);
    t += run;
  }
  if (mixed.batch.tokens[0].sequence == b) std::swap(rows[0], rows[1]);
  mixed.order = rows[0];
  mixed.order.insert(mixed.order.end(), rows[1].begin(), rows[1].end());
  return mixed;
}

const Shape kShapes[] = {
    {"f16", DType::f16, Layout::token_major, 64, false},
    {"f16", DType::f32, Layout::head_major, 24, false},
    {"bf16", DType::bf16, Layout::token_major, 64, false},
    {"int8", DType::f16, Layout::token_major, 64, false},
    {"int8", DType::bf16, Layout::head_major, 256, false},
    {"f32", DType::f32, Layout::token_major, 16, false},
    {"fp8_e4m3", DType::f16, Layout::token_major, 64, false},
    {"fp8_e5m2", DType::f32, Layout::token_major, 7, false},
    {"int8", DType::f16, Layout::token_major, 64, true},
    {"f16", DType::bf16, Layout::token_major, 64, true},
    {"tq4", DType::f16, Layout::token_major, 64, false},
    {"tq3/tq6", DType::f32, Layout::head_major, 24, false},
    {"balanced", DType::f16, Layout::token_major, 64, false},
    {"q8_0/q4_0", DType::bf16, Layout::token_major, 64, false},
};

TEST(Put, ThreadsAndStepsMakeNoDifferenceToTheBytes) {
  std::mt19937_64 random(announce_seed());
  constexpr std::int64_t kTokens = 900;
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(std::string(shape.codec) + " from " + name_of(shape.dtype) + ", pages of " +
                 std::to_string(shape.page_tokens) + (shape.mla ? ", MLA" : ""));
    const LayerSpec layer = spec_of(shape, 1).layers[0];
    Source keys(shape.dtype, shape.layout, kTokens, layer.kv_heads, layer.key_dim);
    Source values(shape.dtype, shape.layout, kTokens, layer.kv_heads, layer.value_dim);
    keys.fill(random);
    values.fill(random);
    const std::uint64_t seed = random();
    std::string expected;
    for (const int threads : {1, 2, 5}) {
      Cache cache = Cache::create(spec_of(shape, threads)).value();
      Sequence a = cache.open().value();
      Sequence b = cache.open().value();
      std::mt19937_64 same(seed);
      const Mixed mixed = mixed_batch(a.id(), b.id(), kTokens, same);
      Step step = cache.begin(mixed.batch).value();
      ASSERT_TRUE(succeeds(put_sources(step, keys, values, shape.mla)));
      const std::string found = bytes_of_runs(step, 0, a.id()) + bytes_of_runs(step, 0, b.id());
      if (expected.empty()) expected = found;
      ASSERT_TRUE(found == expected) << threads << " threads";
      if (threads > 1) continue;
      // The same tokens, a few at a time: never enough for threads.
      Cache slow = Cache::create(spec_of(shape, 1)).value();
      Sequence c = slow.open().value();
      Sequence d = slow.open().value();
      for (std::int64_t t = 0; t < kTokens;) {
        const auto count =
            std::min<std::int64_t>(kTokens - t, 1 + static_cast<std::int64_t>(same() % 40));
        Batch batch;
        for (std::int64_t i = t; i < t + count; ++i) {
          Token token = mixed.batch.tokens[index_of(i)];
          token.sequence = token.sequence == a.id() ? c.id() : d.id();
          batch.tokens.push_back(token);
        }
        TensorView k = keys.view();
        TensorView v = values.view();
        for (TensorView* view : {&k, &v}) {
          const auto skip = index_of(t * view->token_stride) * bytes_of(shape.dtype);
          view->data = static_cast<const std::byte*>(view->data) + skip;
          view->tokens = count;
        }
        Step small = slow.begin(batch).value();
        ASSERT_TRUE(succeeds(shape.mla ? small.put(0, k) : small.put(0, k, v)));
        small.commit().value();
        t += count;
      }
      step.commit().value();
      for (const Side side : {Side::key, Side::value}) {
        ASSERT_EQ(read_all(a, 0, side), read_all(c, 0, side));
        ASSERT_EQ(read_all(b, 0, side), read_all(d, 0, side));
      }
    }
  }
}

TEST(Put, CrossEntriesAreTheSameOnAnyNumberOfThreads) {
  std::mt19937_64 random(announce_seed());
  constexpr std::int64_t kLength = 700;
  for (const char* codec : {"f16", "int8", "bf16"}) {
    Source keys(DType::f16, Layout::token_major, kLength, 4, 64);
    Source values(DType::f16, Layout::token_major, kLength, 4, 64);
    keys.fill(random);
    values.fill(random);
    std::string expected;
    for (const int threads : {1, 3}) {
      CacheSpec spec = spec_of({codec, DType::f16, Layout::token_major, 64, false}, threads);
      spec.layers.push_back(spec.layers[0]);
      spec.layers[0].pattern.kind = Pattern::Kind::cross;
      Cache cache = Cache::create(spec).value();
      Sequence sequence = cache.open().value();
      Batch batch = batch_of(sequence, 0, 1);
      batch.cross.push_back({sequence.id(), kLength, 0, 1});
      Step step = cache.begin(batch).value();
      ASSERT_TRUE(succeeds(step.put(0, keys.view(), values.view())));
      const std::string found = bytes_of_runs(step, 0, sequence.id());
      if (expected.empty()) expected = found;
      EXPECT_TRUE(found == expected) << codec;
    }
  }
}

// The first refused value: sequences in the order they appear, then tokens, keys before values,
// heads, channels.
TEST(Put, NamesTheFirstValueThatDoesNotFit) {
  std::mt19937_64 random(announce_seed());
  constexpr std::int64_t kTokens = 700;
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.codec);
    const LayerSpec layer = spec_of(shape, 1).layers[0];
    Source keys(shape.dtype, shape.layout, kTokens, layer.kv_heads, layer.key_dim);
    Source values(shape.dtype, shape.layout, kTokens, layer.kv_heads, layer.value_dim);
    keys.fill(random);
    values.fill(random);
    for (int attempt = 0; attempt < 8; ++attempt) {
      Cache cache = Cache::create(spec_of(shape, 1 + attempt % 3)).value();
      Sequence a = cache.open().value();
      Sequence b = cache.open().value();
      const Mixed mixed = mixed_batch(a.id(), b.id(), kTokens, random);
      Source bad_keys = keys;
      Source bad_values = values;
      const int bad = 1 + static_cast<int>(random() % 4);
      for (int i = 0; i < bad; ++i) {
        Source& side = !shape.mla && random() % 2 == 0 ? bad_values : bad_keys;
        const float what = random() % 2 == 0 ? kInfinity : -kInfinity;
        side.set(random() % index_of(kTokens * side.heads * side.dim), what);
      }
      std::string expected;
      for (const std::int64_t row : mixed.order) {
        for (const Source* side : {&bad_keys, &bad_values}) {
          if (shape.mla && side == &bad_values) continue;
          for (int h = 0; h < side->heads && expected.empty(); ++h) {
            for (int c = 0; c < side->dim && expected.empty(); ++c) {
              const float x = side->get(side->at(row, h, c));
              if (std::isfinite(x)) continue;
              expected = std::string("put: layer 0 ") + (side == &bad_keys ? "key" : "value") +
                         " of token " + std::to_string(row) + ", head " + std::to_string(h) +
                         ", channel " + std::to_string(c) + ": " + (x > 0 ? "inf" : "-inf") +
                         " does not fit ";
            }
          }
        }
        if (!expected.empty()) break;
      }
      Step step = cache.begin(mixed.batch).value();
      const Result<void> refused = put_sources(step, bad_keys, bad_values, shape.mla);
      ASSERT_TRUE(fails(refused, ErrorCode::non_finite, {expected}));
      EXPECT_TRUE(fails(step.commit(), ErrorCode::wrong_state, {"was not put"}));
      // The step is as it was: the right rows are taken.
      ASSERT_TRUE(succeeds(put_sources(step, keys, values, shape.mla)));
      if (attempt > 0) continue;
      Cache other = Cache::create(spec_of(shape, 1)).value();
      Sequence c = other.open().value();
      Sequence d = other.open().value();
      Batch batch = mixed.batch;
      for (Token& token : batch.tokens) token.sequence = token.sequence == a.id() ? c.id() : d.id();
      Step fresh = other.begin(batch).value();
      ASSERT_TRUE(succeeds(put_sources(fresh, keys, values, shape.mla)));
      EXPECT_TRUE(bytes_of_runs(step, 0, a.id()) == bytes_of_runs(fresh, 0, c.id()));
      EXPECT_TRUE(bytes_of_runs(step, 0, b.id()) == bytes_of_runs(fresh, 0, d.id()));
    }
  }
}

// A codec that keeps a scale per token takes no row whose scale would not fit, however small its
// elements are.
TEST(Put, ANormThatDoesNotFitIsRefusedAndNothingChanges) {
  constexpr float kEven = 8188;  // 64 of them have the norm 65504: the largest that fits f16
  for (const char* codec : {"tq4", "tq2", "dual4/tq4", "dual4/f16", "f16/tq6"}) {
    SCOPED_TRACE(codec);
    for (const std::int64_t tokens : {std::int64_t{3}, std::int64_t{700}}) {
      CacheSpec spec = spec_of({codec, DType::f32, Layout::token_major, 64, false}, 2);
      spec.layers.push_back(spec.layers[0]);
      Cache cache = Cache::create(spec).value();
      Sequence sequence = cache.open().value();
      std::mt19937_64 random(7);
      Source good(DType::f32, Layout::token_major, tokens, 4, 64);
      good.fill(random);
      // The largest that fits, once spread out and once in one channel.
      for (int c = 0; c < 64; ++c) good.set(good.at(tokens - 1, 1, c), c % 2 == 0 ? kEven : -kEven);
      for (int c = 0; c < 64; ++c) good.set(good.at(tokens - 2, 3, c), c == 5 ? -65504.0f : 0.0f);
      Source bad = good;
      bad.set(bad.at(tokens - 1, 1, 40), 8192);
      const CodecPair pair = parse_codec(codec).value();
      const std::string at = " of token " + std::to_string(tokens - 1) + ", head 1: a norm of 655";

      Step step = cache.begin(batch_of(sequence, 0, tokens)).value();
      ASSERT_TRUE(succeeds(step.put(0, good.view(), good.view())));
      const std::string before = bytes_of_runs(step, 0, sequence.id());
      for (const Side side : {Side::key, Side::value}) {
        const bool is_key = side == Side::key;
        const std::string& name = is_key ? pair.key : pair.value;
        if (name == "f16") continue;  // takes any norm
        const Result<void> refused =
            step.put(1, is_key ? bad.view() : good.view(), is_key ? good.view() : bad.view());
        ASSERT_TRUE(fails(refused, ErrorCode::non_finite,
                          {"put: layer 1 " + std::string(is_key ? "key" : "value") + at,
                           name + " codes", "65504"}));
        EXPECT_TRUE(fails(step.commit(), ErrorCode::wrong_state, {"layer 1"}));
        EXPECT_TRUE(bytes_of_runs(step, 0, sequence.id()) == before);
      }
      ASSERT_TRUE(succeeds(step.put(1, good.view(), good.view())));
      EXPECT_TRUE(bytes_of_runs(step, 1, sequence.id()).size() == before.size());
      ASSERT_TRUE(succeeds(step.commit()));

      const Snapshot committed = snapshot(cache);
      const auto last = [&](const Source& source) {
        TensorView view = source.view();
        view.data = source.data.data() + source.at(tokens - 1, 0, 0) * bytes_of(DType::f32);
        view.tokens = 1;
        return view;
      };
      const bool key_refused = pair.key != "f16";
      EXPECT_TRUE(fails(
          sequence.overwrite(1, 0, last(key_refused ? bad : good), last(key_refused ? good : bad)),
          ErrorCode::non_finite, {"overwrite: layer 1", "head 1: a norm of 655"}));
      EXPECT_TRUE(snapshot(cache) == committed);
    }
  }
}

// Layers, too, have signs of their own.
TEST(Put, TheSeedChoosesTheBytesAndNotTheAnswer) {
  constexpr std::int64_t kTokens = 256;
  const auto history = [&](const char* codec, std::uint64_t seed, std::vector<float>& out) {
    CacheSpec spec = spec_of({codec, DType::f32, Layout::token_major, 64, false}, 1);
    spec.seed = seed;
    spec.exact_tail = 0;
    spec.layers.push_back(spec.layers[0]);
    Cache cache = Cache::create(spec).value();
    Sequence sequence = cache.open().value();
    std::mt19937_64 random(3);
    Source keys(DType::f32, Layout::token_major, kTokens + 1, 4, 64);
    Source values = keys;
    keys.fill(random);
    values.fill(random);
    Step step = cache.begin(batch_of(sequence, 0, kTokens + 1)).value();
    for (int layer = 0; layer < 2; ++layer) step.put(layer, keys.view(), values.view()).value();
    Source q(DType::f32, Layout::token_major, kTokens + 1, 4, 64);
    q.fill(random);
    out.resize(index_of((kTokens + 1) * 4 * 64));
    step.attend(0, q.view(), OutputView::dense(out.data(), kTokens + 1, 4, 64)).value();
    out.erase(out.begin(), out.end() - 4 * 64);  // the last token sees four sealed pages
    step.commit().value();
    const std::string first = bytes_of_runs(sequence.runs(0).value());
    EXPECT_EQ(first == bytes_of_runs(sequence.runs(1).value()), codec == std::string("int8"))
        << "layers rotate differently";
    return first;
  };
  std::vector<float> exact;
  history("int8", 1, exact);
  for (const char* codec : {"tq4", "dual4/tq4", "int8"}) {
    SCOPED_TRACE(codec);
    const bool rotates = codec != std::string("int8");
    std::vector<float> out;
    std::vector<float> again;
    const std::string bytes = history(codec, 1, out);
    EXPECT_TRUE(history(codec, 1, again) == bytes) << "the same seed";
    EXPECT_EQ(out, again);
    for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{2}, ~std::uint64_t{0}}) {
      EXPECT_EQ(history(codec, seed, again) != bytes, rotates) << seed;
      double error = 0;
      double norm = 0;
      for (std::size_t i = 0; i < exact.size(); ++i) {
        const double difference = static_cast<double>(again[i]) - static_cast<double>(exact[i]);
        error += difference * difference;
        norm += static_cast<double>(exact[i]) * static_cast<double>(exact[i]);
      }
      EXPECT_LT(std::sqrt(error / norm), 0.25) << seed;
    }
  }
}

class Counting : public Executor {
 public:
  int runs = 0;
  void run(std::size_t count, const std::function<void(std::size_t)>& task) override {
    ++runs;
    for (std::size_t i = count; i-- > 0;) task(i);
  }
};

TEST(Put, UsesTheExecutorWhereThereIsEnoughToDo) {
  Counting executor;
  CacheSpec spec = spec_of(kShapes[0], 1);
  spec.executor = &executor;
  Cache cache = Cache::create(spec).value();
  Sequence sequence = cache.open().value();
  std::mt19937_64 random(1);
  Source keys(DType::f16, Layout::token_major, 1024, 4, 64);
  Source values = keys;
  keys.fill(random);
  values.fill(random);
  TensorView few = keys.view();
  few.tokens = 3;
  Step small = cache.begin(batch_of(sequence, 0, 3)).value();
  ASSERT_TRUE(succeeds(small.put(0, few, few)));
  EXPECT_EQ(executor.runs, 0);
  small.commit().value();
  Step large = cache.begin(batch_of(sequence, 3, 1024)).value();
  ASSERT_TRUE(succeeds(large.put(0, keys.view(), values.view())));
  EXPECT_EQ(executor.runs, 1);
}

}  // namespace
}  // namespace quire::test
