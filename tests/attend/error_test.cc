// How far attention is from softmax in double on what the pages hold, for every codec and
// instruction set: |out - ref| / |ref| in 2-norms, per query head, with L = scale |q| max |k|.
//
//   f32, f16, fp8   1e-5 + 2e-6 L
//   int8            3e-3 + 3e-5 L
//   bf16            as f32, or where weights are rounded to bf16 (rounds_weights) 2e-3 with logits
//                   of deviation 1, 1e-2 with 10
//   dual6           as int8: operands have 15 bits
//   tq, dual        2e-2 with logits of deviation 1, 2e-1 with 10
//
// Where weights or queries are rounded to 8 bits, a bound is one on the mean square of many heads,
// and a single head may scatter. What rounding can do at its worst is the business of walk_test.cc.
// Numbers are the same in every run, since these are bounds on what is likely and not on what is
// possible. The worst errors are printed, and kept as properties of the tests.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <vector>

#include "attend/history.h"
#include "attend/walk.h"
#include "base/slow_build.h"

namespace quire::test {
namespace {

// Weights rounded to 8 bits are off by 1.6e-3 of themselves in the mean square, and outputs by as
// much of themselves. Where few tokens decide, heads scatter around it: the mean square of many
// heads keeps the bound; with logits of deviation 1, which leave little of it, a single head 1.5
// times it.
double bf16_bound(double deviation) { return deviation <= 1 ? 2e-3 : 1e-2; }
constexpr double kBf16Scatter = 1.5;
constexpr std::size_t kManyHeads = 13;

// Codes of 8 bits, and levels in multiples of a step, move a logit by a part of |q| |k| and so in
// proportion to the deviation of logits, and outputs by about as much as logits.
double planes_bound(double deviation) { return 2e-2 * deviation; }
constexpr double kPlanesScatter = 2;

struct Worst {
  double error = 0;
  double of_bound = 0;  // the largest part of a bound that was used
};

class Errors : public testing::Test {
 protected:
  void TearDown() override {
    for (const auto& [name, worst] : worst_) {
      std::printf("[ worst    ] %-20s %.2e, %.2f of its bound\n", name.c_str(), worst.error,
                  worst.of_bound);
      RecordProperty(name, testing::PrintToString(worst.error));
    }
  }

  void note(const std::string& codec, Isa isa, double error, double bound) {
    Worst& worst = worst_[codec + '_' + name_of(isa)];
    worst.error = std::max(worst.error, error);
    worst.of_bound = std::max(worst.of_bound, error / bound);
  }

  std::map<std::string, Worst> worst_;
};

struct Heads {
  int key_dim, value_dim;
  bool mla;
};

constexpr Heads kHeads[] = {{64, 64, false}, {128, 128, false}, {80, 80, false}, {576, 512, true}};
constexpr int kGroups[] = {1, 3, 4, 8};
constexpr int kPage = 64;

Geometry geometry_of(const Heads& heads, int group, const Codec& codec) {
  return {1,
          group,
          heads.key_dim,
          heads.value_dim,
          heads.mla,
          kPage,
          codec.lossless.value_or(DType::f32),
          codec.name,
          values_beside(codec)};
}

// Codecs without kernels are decoded to f32, which is measured as such.
bool is_measured(const Heads& heads, const Codec& codec) {
  return codec.kernels[0] != nullptr && is_storable(geometry_of(heads, 1, codec));
}

// What one history is asked.
struct Ask {
  std::string name;
  double deviation = 1;  // of logits
  Rules rules;
  Matrix q;
  DType query_type = DType::f32;  // that the numbers of q fit
};

// Whether a codec's kernels have operands of 15 bits and levels that are not rounded.
bool is_fine(const Codec& codec) {
  const std::string name = codec.name;
  return name == "int8" || name == "dual6";
}

// What the mean square of many heads is held to; 0 where each head has its bound alone.
double mean_bound_of(const History& history, const Ask& ask, Isa isa) {
  const LayerStore& store = history.store;
  switch (rounding_of(store, Side::key, true, isa)) {
    case Rounding::bf16:
      return bf16_bound(ask.deviation);
    case Rounding::planes:
      return is_fine(*store.key_codec) && is_fine(*store.value_codec) ? 0
                                                                      : planes_bound(ask.deviation);
    default:
      return 0;
  }
}

double bound_of(const History& history, const Answer& answer, const Ask& ask, Isa isa) {
  switch (rounding_of(history.store, Side::key, true, isa)) {
    case Rounding::none:
      return error_bound(answer.magnitude);
    case Rounding::bf16:
      return (ask.deviation <= 1 ? kBf16Scatter : 1) * mean_bound_of(history, ask, isa);
    case Rounding::planes:
      if (const double mean = mean_bound_of(history, ask, isa); mean > 0)
        return kPlanesScatter * mean;
      [[fallthrough]];
    case Rounding::int8:
      return 3e-3 + 3e-5 * answer.magnitude;
  }
  return 0;
}

// Deviation 100 is for what has a bound in proportion to logits.
bool skips(const Codec& codec, double deviation) {
  const std::string name = codec.name;
  return deviation > 10 && (name == "bf16" || codec.rotate[0] != nullptr);
}

class Attention : public Errors {
 protected:
  // The last tokens of the history ask, few at a time and all at once, on every instruction set.
  void check(const History& history, const Ask& ask) {
    const Geometry& g = history.geometry;
    std::vector<Query> queries;
    std::vector<Answer> answers;
    for (std::int64_t row = 0; row < ask.q.tokens; ++row) {
      queries.push_back(history.causal(history.tokens() - ask.q.tokens + row, row));
      for (int head = 0; head < g.query_heads; ++head) {
        answers.push_back(reference(history, queries.back(), ask.q.at(row, head), head, ask.rules));
      }
    }
    const std::vector<PageSlice> slices = history.slices();
    std::vector<float> scalar;
    for (const Isa isa : isas_found()) {
      SCOPED_TRACE(testing::Message() << ask.name << ", " << g.key_codec << ' ' << name_of(isa)
                                      << ", dim " << g.key_dim << ", group " << g.query_heads);
      States few(ask.q.tokens, g.query_heads, g.value_dim);
      for (std::size_t at = 0, count = 1; at < queries.size(); at += count, count = count % 8 + 1) {
        const std::vector<Query> some(
            queries.begin() + static_cast<std::ptrdiff_t>(at),
            queries.begin() + static_cast<std::ptrdiff_t>(std::min(at + count, queries.size())));
        run_states(make_task(history, ask.rules, slices, some, ask.q.view(), isa), few);
      }
      const States all =
          run_states(make_task(history, ask.rules, slices, queries, ask.q.view(), isa));
      std::vector<float> outs;
      double top = 0;      // largest |logit|
      double squares = 0;  // of errors
      for (std::size_t i = 0; i < answers.size(); ++i) {
        const Answer& answer = answers[i];
        const double bound = bound_of(history, answer, ask, isa);
        for (const States* states : {static_cast<const States*>(&few), &all}) {
          const std::vector<float> out =
              states->finish(static_cast<std::int64_t>(i) / g.query_heads,
                             static_cast<std::int64_t>(i) % g.query_heads);
          const double error = relative_error(out.data(), answer.out);
          EXPECT_LE(error, bound) << "query head " << i << ", L " << answer.magnitude;
          note(g.key_codec, isa, error, bound);
          if (states != &all) continue;
          squares += error * error;
          outs.insert(outs.end(), out.begin(), out.end());
        }
        for (const double logit : answer.logits) {
          if (logit != -HUGE_VAL) top = std::max(top, std::abs(logit));
        }
      }
      const double mean_bound = mean_bound_of(history, ask, isa);
      if (mean_bound > 0 && answers.size() >= kManyHeads) {
        const double mean = std::sqrt(squares / static_cast<double>(answers.size()));
        EXPECT_LE(mean, mean_bound);
        note(std::string(g.key_codec) + "_mean", isa, mean, mean_bound);
      }
      if (g.key_codec != "f32") continue;
      if (isa == Isa::scalar) scalar = outs;
      const std::size_t dim = size_of(g.value_dim);
      for (std::size_t i = 0; i < outs.size(); i += dim) {
        const std::vector<double> expected(scalar.begin() + static_cast<std::ptrdiff_t>(i),
                                           scalar.begin() + static_cast<std::ptrdiff_t>(i + dim));
        EXPECT_LE(relative_error(&outs[i], expected), 1e-6 * (1 + top)) << "against scalar";
      }
    }
  }

  // As many queries as make more than 12 rows.
  static std::int64_t queries_of(int group) { return (13 + group - 1) / group; }
};

TEST_F(Attention, NormalLogits) {
  Random random = Random::fixed(70);
  constexpr std::int64_t kTokens = 280;  // the last page is in rows
  for (const Heads& heads : kHeads) {
    const Matrix keys = random_matrix(random, kTokens, 1, heads.key_dim, DType::bf16);
    const Matrix values = heads.mla
                              ? head_of(keys, heads.value_dim)
                              : random_matrix(random, kTokens, 1, heads.value_dim, DType::bf16);
    for (const Codec* codec : all_codecs()) {
      if (!is_measured(heads, *codec)) continue;
      for (const int group : kGroups) {
        if (kSlowBuild && codec->rotate[0] != nullptr && group != 3) continue;
        const History history(geometry_of(heads, group, *codec), keys, values, counting(kTokens));
        for (const double deviation : {1.0, 10.0, 100.0}) {
          if (skips(*codec, deviation)) continue;
          for (const DType query_type : {DType::f32, DType::bf16}) {
            if (query_type == DType::bf16 && history.geometry.key_codec != "bf16") continue;
            Ask ask{"deviation " + std::to_string(static_cast<int>(deviation)), deviation, {}, {}};
            ask.rules.scale = static_cast<float>(deviation / std::sqrt(heads.key_dim));
            ask.query_type = query_type;
            ask.q = random_matrix(random, queries_of(group), group, heads.key_dim, query_type);
            check(history, ask);
          }
        }
      }
    }
  }
}

// Keys and values of different codecs that rotate.
TEST_F(Attention, EveryPairOfRotatedCodecs) {
  Random random = Random::fixed(74);
  constexpr std::int64_t kTokens = 280;
  constexpr Heads kSizes[] = {{64, 64, false}, {128, 128, false}, {80, 80, false}};
  const auto rotates = [](const Codec& codec) { return codec.rotate[0] != nullptr; };
  for (const Heads& heads : kSizes) {
    const Matrix keys = random_matrix(random, kTokens, 1, heads.key_dim, DType::bf16);
    const Matrix values = random_matrix(random, kTokens, 1, heads.value_dim, DType::bf16);
    for (const Codec* key : all_codecs()) {
      for (const Codec* value : all_codecs()) {
        if (!rotates(*key) || !rotates(*value) || !value->encodes_values || key == value) continue;
        if (kSlowBuild && heads.key_dim != 80) continue;
        Geometry g = geometry_of(heads, 1, *key);
        g.value_codec = value->name;
        Ask ask{std::string("values ") + value->name, 1, {}, {}};
        ask.rules.scale = 1.0f / std::sqrt(static_cast<float>(heads.key_dim));
        ask.q = random_matrix(random, static_cast<std::int64_t>(kManyHeads), 1, heads.key_dim);
        check(History(g, keys, values, counting(kTokens)), ask);
      }
    }
  }
}

// The hot key takes all but 1e-5 of the weight.
TEST_F(Attention, OneHotKey) {
  Random random = Random::fixed(71);
  constexpr std::int64_t kTokens = 200;
  for (const Heads& heads : kHeads) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(heads.key_dim));
    const Matrix direction = random_matrix(random, 1, 1, heads.key_dim, DType::bf16);
    Matrix keys = random_matrix(random, kTokens, 1, heads.key_dim, DType::bf16, 0.1f);
    const double square = std::pow(norm_of(direction.at(0, 0), heads.key_dim), 2);
    for (int c = 0; c < heads.key_dim; ++c) {
      const float hot = static_cast<float>(18.0 / (double{scale} * square));
      keys.at(77, 0)[c] = round_to(DType::bf16, direction.at(0, 0)[c] * hot);
    }
    const Matrix values = heads.mla
                              ? head_of(keys, heads.value_dim)
                              : random_matrix(random, kTokens, 1, heads.value_dim, DType::bf16);
    for (const Codec* codec : all_codecs()) {
      if (!is_measured(heads, *codec)) continue;
      for (const int group : kGroups) {
        if (kSlowBuild && codec->rotate[0] != nullptr && group != 3) continue;
        const History history(geometry_of(heads, group, *codec), keys, values, counting(kTokens));
        Ask ask{"one hot key", 1, {}, Matrix(queries_of(group), group, heads.key_dim)};
        ask.rules.scale = scale;
        for (std::int64_t row = 0; row < ask.q.tokens; ++row) {
          for (int head = 0; head < group; ++head) {
            for (int c = 0; c < heads.key_dim; ++c) {
              ask.q.at(row, head)[c] = direction.at(0, 0)[c] + random.normal(0.01f);
            }
          }
        }
        check(history, ask);
      }
    }
  }
}

TEST_F(Attention, EqualKeys) {
  Random random = Random::fixed(72);
  constexpr std::int64_t kTokens = 200;
  for (const Heads& heads : kHeads) {
    const Matrix one = random_matrix(random, 1, 1, heads.key_dim, DType::bf16);
    Matrix keys(kTokens, 1, heads.key_dim);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      std::copy_n(one.at(0, 0), heads.key_dim, keys.at(t, 0));
    }
    const Matrix values = heads.mla
                              ? head_of(keys, heads.value_dim)
                              : random_matrix(random, kTokens, 1, heads.value_dim, DType::bf16);
    for (const Codec* codec : all_codecs()) {
      if (!is_measured(heads, *codec)) continue;
      const int group = kGroups[random.integer(0, 3)];
      const History history(geometry_of(heads, group, *codec), keys, values, counting(kTokens));
      Ask ask{"equal keys", 1, {}, {}};
      ask.rules.scale = 1.0f / std::sqrt(static_cast<float>(heads.key_dim));
      ask.q = random_matrix(random, queries_of(group), group, heads.key_dim);
      check(history, ask);
    }
  }
}

TEST_F(Attention, LongContext) {
  Random random = Random::fixed(73);
  constexpr std::int64_t kTokens = 16'384;
  const Heads heads{64, 64, false};
  const Matrix keys = random_matrix(random, kTokens, 1, 64, DType::bf16);
  const Matrix values = random_matrix(random, kTokens, 1, 64, DType::bf16);
  for (const Codec* codec : all_codecs()) {
    if (!is_measured(heads, *codec)) continue;
    const History history(geometry_of(heads, 1, *codec), keys, values, counting(kTokens));
    for (const double deviation : {1.0, 10.0}) {
      Ask ask{"many tokens", deviation, {}, {}};
      ask.rules.scale = static_cast<float>(deviation / 8.0);
      ask.q = random_matrix(random, static_cast<std::int64_t>(kManyHeads), 1, 64);
      check(history, ask);
    }
  }
}

}  // namespace
}  // namespace quire::test
