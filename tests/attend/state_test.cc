// States: what merging and finishing promise, alone and against softmax in double.
#include "quire/state.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "attend/history.h"

namespace quire::test {
namespace {

// One state of `dim` values.
struct State {
  std::vector<float> o;
  float m = 0;
  float l = 0;

  explicit State(std::int64_t dim) : o(size_of(dim), -77.0f) {
    state_clear(o.data(), &m, &l, 1, dim);
  }
  void merge(const State& other) {
    state_merge(o.data(), &m, &l, other.o.data(), &other.m, &other.l, 1,
                static_cast<std::int64_t>(o.size()));
  }
  std::vector<float> finish(float sink = -kInf) const {
    std::vector<float> out(o.size(), -77.0f);
    state_finish(out.data(), o.data(), m, l, sink, static_cast<std::int64_t>(o.size()));
    return out;
  }
};

struct Example {
  std::vector<float> logits;               // natural
  std::vector<std::vector<float>> values;  // [token][dim]
};

Example random_example(Random& random, int tokens, int dim, float spread) {
  Example example;
  for (int t = 0; t < tokens; ++t) {
    example.logits.push_back(random.normal(spread));
    auto& value = example.values.emplace_back();
    for (int c = 0; c < dim; ++c) value.push_back(random.normal());
  }
  return example;
}

State state_of(const Example& example, std::size_t begin, std::size_t end) {
  State state(static_cast<std::int64_t>(example.values[0].size()));
  for (std::size_t t = begin; t < end; ++t) {
    State one(static_cast<std::int64_t>(state.o.size()));
    one.o = example.values[t];
    one.m = example.logits[t] * kLog2E;
    one.l = 1.0f;
    state.merge(one);
  }
  return state;
}

std::vector<double> softmax_of(const Example& example, double sink = -HUGE_VAL) {
  double top = sink;
  for (const float s : example.logits) top = std::max(top, double{s});
  double sum = std::exp(sink - top);
  std::vector<double> out(example.values[0].size(), 0.0);
  for (std::size_t t = 0; t < example.logits.size(); ++t) {
    const double p = std::exp(double{example.logits[t]} - top);
    sum += p;
    for (std::size_t c = 0; c < out.size(); ++c) out[c] += p * double{example.values[t][c]};
  }
  for (double& x : out) x /= sum;
  return out;
}

TEST(State, MergingPartsIsTheWhole) {
  Random random(1);
  for (const float spread : {0.5f, 5.0f, 50.0f}) {
    const Example example = random_example(random, 40, 7, spread);
    const std::vector<double> expected = softmax_of(example);
    for (const std::size_t cut : {0u, 1u, 13u, 39u, 40u}) {
      State state = state_of(example, 0, cut);
      state.merge(state_of(example, cut, 40));
      EXPECT_LE(relative_error(state.finish().data(), expected), error_bound(spread * 4))
          << "cut " << cut << " spread " << spread;
    }
  }
}

TEST(State, MergingIsAssociativeWithinRounding) {
  Random random(2);
  const Example example = random_example(random, 30, 5, 8.0f);
  const State a = state_of(example, 0, 10);
  const State b = state_of(example, 10, 20);
  const State c = state_of(example, 20, 30);
  State left = a;
  left.merge(b);
  left.merge(c);
  State right = b;
  right.merge(c);
  State outer = a;
  outer.merge(right);
  EXPECT_EQ(left.m, outer.m);
  EXPECT_NEAR(left.l, outer.l, 5e-6f * left.l);
  const std::vector<float> one = left.finish();
  const std::vector<float> other = outer.finish();
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], other[i], 5e-6f);
}

TEST(State, EmptyIsNeutralOnBothSides) {
  Random random(3);
  const State some = state_of(random_example(random, 9, 6, 2.0f), 0, 9);
  State left(6);
  left.merge(some);
  State right = some;
  right.merge(State(6));
  for (const State* state : {&left, &right}) {
    EXPECT_EQ(state->o, some.o);
    EXPECT_EQ(state->m, some.m);
    EXPECT_EQ(state->l, some.l);
  }
}

TEST(State, TwoEmptyStatesStayEmpty) {
  State state(3);
  state.merge(State(3));
  EXPECT_EQ(state.m, -kInf);
  EXPECT_EQ(state.l, 0.0f);
  EXPECT_EQ(state.o, std::vector<float>(3, 0.0f));
}

TEST(State, FinishingAnEmptyStateGivesZeros) {
  for (const float sink : {-kInf, -1e30f, 0.0f, 1e30f, kInf}) {
    EXPECT_EQ(State(4).finish(sink), std::vector<float>(4, 0.0f)) << "sink " << sink;
  }
}

TEST(State, MergesManyStatesAtOnce) {
  Random random(4);
  const Example example = random_example(random, 12, 2, 3.0f);
  std::vector<float> o, m, l, o2, m2, l2;
  for (std::size_t i = 0; i < 3; ++i) {
    const State a = state_of(example, i * 4, i * 4 + 2);
    const State b = i == 1 ? State(2) : state_of(example, i * 4 + 2, i * 4 + 4);
    o.insert(o.end(), a.o.begin(), a.o.end());
    m.push_back(a.m);
    l.push_back(a.l);
    o2.insert(o2.end(), b.o.begin(), b.o.end());
    m2.push_back(b.m);
    l2.push_back(b.l);
  }
  state_merge(o.data(), m.data(), l.data(), o2.data(), m2.data(), l2.data(), 3, 2);
  for (std::size_t i = 0; i < 3; ++i) {
    State expected = state_of(example, i * 4, i * 4 + 2);
    if (i != 1) expected.merge(state_of(example, i * 4 + 2, i * 4 + 4));
    EXPECT_EQ(m[i], expected.m);
    EXPECT_EQ(l[i], expected.l);
    EXPECT_EQ(o[2 * i], expected.o[0]);
    EXPECT_EQ(o[2 * i + 1], expected.o[1]);
  }
}

TEST(State, SinkTakesWeightAndGivesNoValue) {
  Random random(5);
  const Example example = random_example(random, 20, 4, 3.0f);
  const State state = state_of(example, 0, 20);
  for (const float sink : {-60.0f, -3.0f, 0.0f, 4.0f, 12.0f, 60.0f}) {
    EXPECT_LE(relative_error(state.finish(sink).data(), softmax_of(example, double{sink})), 2e-5)
        << "sink " << sink;
  }
  EXPECT_EQ(state.finish(-kInf), state.finish(-1e30f));
}

TEST(State, SinksFarFromTheLogitsDoNotOverflow) {
  State state(2);
  state.o = {3.0f, -1.0f};
  state.m = 0.0f;
  state.l = 2.0f;
  EXPECT_EQ(state.finish(1e30f), (std::vector<float>{0.0f, -0.0f}));
  EXPECT_EQ(state.finish(3e38f), (std::vector<float>{0.0f, -0.0f}));
  EXPECT_EQ(state.finish(-3e38f), (std::vector<float>{1.5f, -0.5f}));
  state.m = -1e5f;
  EXPECT_EQ(state.finish(0.0f), (std::vector<float>{0.0f, -0.0f}));
  state.m = 1e5f;
  EXPECT_EQ(state.finish(0.0f), (std::vector<float>{1.5f, -0.5f}));
}

TEST(State, LogitsFarApartMergeWithoutOverflow) {
  State low(1);
  low.o = {5.0f};
  low.m = -3e4f;
  low.l = 1.0f;
  State high(1);
  high.o = {7.0f};
  high.m = 3e4f;
  high.l = 1.0f;
  State a = low;
  a.merge(high);
  State b = high;
  b.merge(low);
  EXPECT_EQ(a.finish(), std::vector<float>{7.0f});
  EXPECT_EQ(b.finish(), std::vector<float>{7.0f});
}

TEST(State, FinishMayWriteOverItsInput) {
  State state(2);
  state.o = {3.0f, -1.0f};
  state.m = 0.0f;
  state.l = 2.0f;
  state_finish(state.o.data(), state.o.data(), state.m, state.l, -kInf, 2);
  EXPECT_EQ(state.o, (std::vector<float>{1.5f, -0.5f}));
}

}  // namespace
}  // namespace quire::test
