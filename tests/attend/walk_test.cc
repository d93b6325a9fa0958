// Attention over pages on every instruction set, against softmax over plain matrices in double.
//
// The bound on |out - ref| / |ref| is 1e-5 + 2e-6 L with L = scale |q| max |k|: a logit as large
// as L carries f32 rounding in proportion to it. Kernels that round queries and weights first add
// what that rounding can do; tests/attend/error_test.cc holds them to what it does.
#include "attend/walk.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attend/history.h"

namespace quire::test {
namespace {

struct Kind {
  const char* name;
  int kv_heads, query_heads, key_dim, value_dim;
  bool mla;
};

constexpr Kind kKinds[] = {
    {"MHA", 2, 2, 16, 16, false},
    {"GQA", 2, 6, 24, 24, false},
    {"MQA", 1, 4, 16, 16, false},
    {"K wider than V", 2, 4, 24, 10, false},
    {"V wider than K", 2, 2, 7, 33, false},
    {"whole tiles of V", 2, 8, 20, 48, false},
    {"whole blocks", 1, 3, 64, 32, false},
    {"MLA", 1, 5, 26, 20, true},
    {"MLA of odd parts", 1, 2, 27, 14, true},
};

Geometry geometry_of(const Kind& kind, DType row_type, const std::string& key_codec,
                     const std::string& value_codec, int page_tokens = 16) {
  return {kind.kv_heads, kind.query_heads, kind.key_dim, kind.value_dim, kind.mla,
          page_tokens,   row_type,         key_codec,    value_codec};
}

// Some queries of a history: random ones, the first and the last.
std::vector<Query> some_queries(Random& random, const History& history, int count,
                                std::int64_t exact_tail = 0) {
  std::vector<Query> queries;
  queries.push_back(history.causal(0, 0, exact_tail));
  queries.push_back(history.causal(history.tokens() - 1, 1, exact_tail));
  while (static_cast<int>(queries.size()) < count) {
    queries.push_back(history.causal(random.integer(0, history.tokens() - 1),
                                     static_cast<std::int64_t>(queries.size()), exact_tail));
  }
  return queries;
}

// Checks output, logits and probabilities of one query head.
void check_head(const History& history, const Rules& rules, const Query& query, int head,
                const float* q, const Answer& answer, const std::vector<float>& out, float* line,
                std::int64_t columns, Isa isa) {
  const std::vector<double> rounding = logit_rounding(history, query, q, head, answer, rules, isa);
  const float sink = rules.sinks.empty() ? -kInf : rules.sinks[size_of(head)];
  double logits_off = 0;
  double bias = 0;
  for (std::int64_t t = 0; t < history.tokens(); ++t) {
    const double expected = answer.logits[size_of(t)];
    if (expected == -HUGE_VAL) {
      EXPECT_EQ(line[t], -kInf);
      continue;
    }
    if (!rules.slopes.empty()) {
      bias = std::abs(rules.slopes[size_of(head)] *
                      static_cast<double>(history.positions[size_of(t)] - query.position));
    }
    const double off = rounding[size_of(t)];
    EXPECT_NEAR(line[t], expected, 1e-6 + 2e-6 * answer.magnitude + 2e-7 * bias + off) << t;
    logits_off = std::max(logits_off, off);
  }
  for (std::int64_t t = history.tokens(); t < columns; ++t) EXPECT_EQ(line[t], -kInf);

  EXPECT_LE(relative_error(out.data(), answer.out),
            output_bound(history, query, head, answer, rounding, isa))
      << "L " << answer.magnitude;

  logits_to_probabilities(line, columns, sink);
  double sum = 0;
  double expected_sum = 0;
  double worst = 0;
  for (std::int64_t t = 0; t < columns; ++t) {
    const double expected = t < history.tokens() ? answer.probabilities[size_of(t)] : 0.0;
    worst = std::max(worst, std::abs(double{line[t]} - expected));
    sum += double{line[t]};
    expected_sum += expected;
  }
  const double bound = error_bound(answer.magnitude) + std::expm1(2 * logits_off);
  EXPECT_LE(worst, bound);
  // Without a sink the sum is 1 whatever the logits; with one it is what the sink leaves.
  EXPECT_NEAR(sum, expected_sum, rules.sinks.empty() ? 1e-5 : bound);
}

// Checks every query head on every instruction set.
void check(const History& history, const Rules& rules, const std::vector<PageSlice>& slices,
           const std::vector<Query>& queries, const Matrix& q) {
  std::vector<Answer> answers;
  for (const Query& query : queries) {
    for (int head = 0; head < q.heads; ++head) {
      answers.push_back(reference(history, query, q.at(query.row, head), head, rules));
    }
  }
  const std::int64_t columns = history.tokens() + 3;
  for (const Isa isa : isas_found()) {
    const AttendTask task = make_task(history, rules, slices, queries, q.view(), isa);
    const States states = run_states(task);
    std::vector<float> logits(size_of(q.tokens * q.heads * columns), 55.0f);
    for (int head = 0; head < history.store.heads; ++head) {
      attend_logits(task, head, logits.data(), columns);
    }
    auto answer = answers.begin();
    for (const Query& query : queries) {
      for (int head = 0; head < q.heads; ++head) {
        SCOPED_TRACE(testing::Message()
                     << name_of(isa) << ", query " << query.row << ", head " << head);
        const float sink = rules.sinks.empty() ? -kInf : rules.sinks[size_of(head)];
        check_head(history, rules, query, head, q.at(query.row, head), *answer++,
                   states.finish(query.row, head, sink),
                   logits.data() + (query.row * q.heads + head) * columns, columns, isa);
      }
    }
  }
}

TEST(Attend, EveryKindOfHeadsAndRowType) {
  Random random(30);
  for (const Kind& kind : kKinds) {
    for (const DType row_type : {DType::f32, DType::f16, DType::bf16}) {
      SCOPED_TRACE(std::string(kind.name) + ' ' + name_of(row_type));
      const Geometry g = geometry_of(kind, row_type, name_of(row_type), name_of(row_type));
      const History history = random_history(random, g, 83);
      const Matrix q = random_matrix(random, 6, kind.query_heads, kind.key_dim);
      Rules rules;
      rules.scale = 1.0f / std::sqrt(static_cast<float>(kind.key_dim));
      check(history, rules, history.slices(), some_queries(random, history, 6), q);
    }
  }
}

TEST(Attend, EveryCodecOnBothSides) {
  Random random(31);
  for (const Kind& kind : kKinds) {
    for (const Codec* key : all_codecs()) {
      for (const Codec* value : all_codecs()) {
        if (kind.mla && key != value) continue;
        const Geometry g = geometry_of(kind, DType::f32, key->name, value->name);
        if (!is_storable(g)) continue;
        SCOPED_TRACE(std::string(kind.name) + ' ' + key->name + ' ' + value->name);
        const History history = random_history(random, g, 70);
        const Matrix q = random_matrix(random, 3, kind.query_heads, kind.key_dim);
        Rules rules;
        rules.scale = 0.3f;
        check(history, rules, history.slices(), some_queries(random, history, 3), q);
      }
    }
  }
}

TEST(Attend, ExactTailReadsRowsWhereItSaysSo) {
  Random random(32);
  const Geometry g = geometry_of(kKinds[1], DType::f16, "fp8_e5m2", "int8");
  const History history = random_history(random, g, 100);
  const Matrix q = random_matrix(random, 8, 6, 24);
  for (const std::int64_t exact_tail : {0, 1, 16, 33, 1000}) {
    check(history, Rules{}, history.slices(), some_queries(random, history, 8, exact_tail), q);
  }
}

TEST(Attend, PagesOfAnySize) {
  Random random(33);
  for (const int page : {1, 3, 5, 17, 24, 64, 256}) {
    SCOPED_TRACE(page);
    const Geometry g = geometry_of(kKinds[3], DType::f32, "int8", "f16", page);
    const History history = random_history(random, g, 150);
    const Matrix q = random_matrix(random, 4, 4, 24);
    check(history, Rules{}, history.slices(), some_queries(random, history, 4), q);
  }
}

TEST(Attend, ScaleCapSlopesAndSinks) {
  Random random(34);
  const Geometry g = geometry_of(kKinds[1], DType::f32, "f32", "f32");
  History history = random_history(random, g, 90);
  for (std::size_t t = 40; t < 90; ++t) history.positions[t] += 100;  // a gap
  const Matrix q = random_matrix(random, 6, 6, 24, DType::f32, 2.0f);
  for (const float scale : {-0.3f, 0.0f, 0.05f, 0.2f, 1.0f}) {
    for (const float cap : {0.0f, 5.0f, 30.0f}) {
      for (const bool sloped : {false, true}) {
        for (const bool sunk : {false, true}) {
          Rules rules;
          rules.scale = scale;
          rules.soft_cap = cap;
          if (sloped) rules.slopes = {0.5f, 0.25f, 0.125f, 0.01f, -0.02f, 0.0f};
          if (sunk) rules.sinks = {0.0f, -2.0f, 3.0f, 12.0f, -50.0f, 1.0f};
          SCOPED_TRACE(testing::Message() << scale << ' ' << cap << ' ' << sloped << ' ' << sunk);
          check(history, rules, history.slices(), some_queries(random, history, 6), q);
        }
      }
    }
  }
}

TEST(Attend, WindowsStartAtAPosition) {
  Random random(35);
  const Geometry g = geometry_of(kKinds[0], DType::f32, "f16", "f16");
  History history = random_history(random, g, 120);
  for (std::size_t t = 0; t < 120; ++t) {
    history.positions[t] = static_cast<std::int64_t>(t / 3 * 4);  // equal ones and gaps
  }
  const Matrix q = random_matrix(random, 8, 2, 16);
  for (const std::int64_t window : {1, 5, 16, 50, 1000}) {
    SCOPED_TRACE(window);
    std::vector<Query> queries = some_queries(random, history, 8);
    for (Query& query : queries) query.first_position = query.position - window + 1;
    check(history, Rules{}, history.slices(), queries, q);
  }
}

TEST(Attend, QueriesMaySeeBehindThemselves) {
  Random random(36);
  const Geometry g = geometry_of(kKinds[0], DType::f32, "f32", "f32");
  const History history = random_history(random, g, 60);
  const Matrix q = random_matrix(random, 4, 2, 16);
  std::vector<Query> queries;
  for (std::int64_t row = 0; row < 4; ++row) {
    queries.push_back(history.causal(10 + row, row));
    queries.back().end_ordinal = 50;  // a span
  }
  check(history, Rules{}, history.slices(), queries, q);
}

TEST(Attend, QueriesThatSeeNothingGetZeros) {
  Random random(37);
  const Geometry g = geometry_of(kKinds[1], DType::f32, "f32", "f32");
  const History history = random_history(random, g, 50);
  const Matrix q = random_matrix(random, 4, 6, 24);
  std::vector<Query> queries;
  for (std::int64_t row = 0; row < 4; ++row) queries.push_back(history.causal(20, row));
  queries[0].end_ordinal = 0;
  queries[1].first_position = 1000;
  queries[2].first_position = 21;  // above its own end
  const std::vector<PageSlice> slices = history.slices();
  const std::vector<PageSlice> none;
  for (const Isa isa : isas_found()) {
    const AttendTask task = make_task(history, Rules{}, slices, queries, q.view(), isa);
    const States states = run_states(task);
    const States empty = run_states(make_task(history, Rules{}, none, queries, q.view(), isa));
    std::vector<float> line(size_of(4 * 6 * 50));
    for (int head = 0; head < 2; ++head) attend_logits(task, head, line.data(), 50);
    for (std::int64_t row = 0; row < 4; ++row) {
      for (int head = 0; head < 6; ++head) {
        for (const float sink : {-kInf, 2.0f}) {
          const std::vector<float> zeros(24, 0.0f);
          EXPECT_EQ(empty.finish(row, head, sink), zeros);
          if (row < 3) {
            EXPECT_EQ(states.finish(row, head, sink), zeros);
          }
        }
        if (row == 3) continue;
        float* at = line.data() + (row * 6 + head) * 50;
        EXPECT_TRUE(std::all_of(at, at + 50, [](float s) { return s == -kInf; }));
        logits_to_probabilities(at, 50, head % 2 == 0 ? -kInf : 1.0f);
        EXPECT_TRUE(std::all_of(at, at + 50, [](float p) { return p == 0.0f; }));
      }
    }
    EXPECT_GT(states.l[size_of(3 * 6)], 0.0f);
  }
}

TEST(Attend, LargeLogits) {
  Random random(38);
  const Geometry g = geometry_of(kKinds[0], DType::f32, "f32", "f32");
  const History history = random_history(random, g, 100);
  const Matrix q = random_matrix(random, 6, 2, 16);
  for (const float scale : {1000.0f, 1e4f, -1e4f}) {
    Rules rules;
    rules.scale = std::abs(scale);
    Matrix signed_q = q;
    for (float& x : signed_q.data) x = std::copysign(x, x * scale);
    const std::vector<Query> queries = some_queries(random, history, 6);
    const std::vector<PageSlice> slices = history.slices();
    for (const Isa isa : isas_found()) {
      const States states =
          run_states(make_task(history, rules, slices, queries, signed_q.view(), isa));
      for (const Query& query : queries) {
        for (int head = 0; head < 2; ++head) {
          const Answer answer =
              reference(history, query, signed_q.at(query.row, head), head, rules);
          EXPECT_LE(relative_error(states.finish(query.row, head).data(), answer.out),
                    error_bound(answer.magnitude));
        }
      }
    }
  }
}

// Beyond what the distance of neighbouring numbers leaves of an exponent.
TEST(Attend, HugeLogits) {
  const Geometry g = geometry_of(kKinds[0], DType::f32, "f32", "f32");
  for (const float key : {1e6f, 1.3e6f, 1e12f, -1e12f}) {
    Matrix keys(20, 2, 16);
    Matrix values(20, 2, 16);
    for (std::int64_t t = 0; t < 20; ++t) {
      std::fill_n(keys.at(t, 0), 32, key);
      std::fill_n(values.at(t, 0), 32, static_cast<float>(t));
    }
    const History history(g, keys, values, counting(20));
    Matrix q(1, 2, 16);
    std::fill(q.data.begin(), q.data.end(), 1.234567e6f);
    const std::vector<Query> queries{history.causal(19, 0)};
    const std::vector<PageSlice> slices = history.slices();
    for (const Isa isa : isas_found()) {
      Rules rules;
      rules.scale = 0.25f;
      const States states = run_states(make_task(history, rules, slices, queries, q.view(), isa));
      EXPECT_EQ(states.l[0], 20.0f) << name_of(isa) << ' ' << key;
      for (const float out : states.finish(0, 0)) EXPECT_EQ(out, 9.5f);
    }
  }
}

TEST(Attend, OneHotKeyGivesItsValue) {
  Random random(39);
  const Geometry g = geometry_of(kKinds[0], DType::f32, "f32", "f32");
  Matrix keys = random_matrix(random, 100, 2, 16, DType::f32, 0.01f);
  for (int h = 0; h < 2; ++h) keys.at(37, h)[3] = 100.0f;
  const Matrix values = random_matrix(random, 100, 2, 16);
  const History history(g, keys, values, counting(100));
  Matrix q(1, 2, 16);
  q.at(0, 0)[3] = q.at(0, 1)[3] = 2.0f;
  const std::vector<Query> queries{history.causal(99, 0)};
  const std::vector<PageSlice> slices = history.slices();
  for (const Isa isa : isas_found()) {
    const States states = run_states(make_task(history, Rules{}, slices, queries, q.view(), isa));
    for (int h = 0; h < 2; ++h) {
      const std::vector<float> out = states.finish(0, h);
      for (int c = 0; c < 16; ++c) EXPECT_EQ(out[size_of(c)], values.at(37, h)[c]);
    }
  }
}

TEST(Attend, EqualKeysGiveTheMean) {
  const Geometry g = geometry_of(kKinds[0], DType::f32, "f32", "f32");
  Matrix keys(64, 2, 16);
  std::fill(keys.data.begin(), keys.data.end(), 0.5f);
  Matrix values(64, 2, 16);
  for (std::int64_t t = 0; t < 64; ++t) {
    for (int h = 0; h < 2; ++h) {
      for (int c = 0; c < 16; ++c) values.at(t, h)[c] = static_cast<float>(t + c);
    }
  }
  const History history(g, keys, values, counting(64));
  Matrix q(1, 2, 16);
  std::fill(q.data.begin(), q.data.end(), 0.7f);
  const std::vector<Query> queries{history.causal(63, 0)};
  const std::vector<PageSlice> slices = history.slices();
  for (const Isa isa : isas_found()) {
    const States states = run_states(make_task(history, Rules{}, slices, queries, q.view(), isa));
    EXPECT_EQ(states.l[0], 64.0f);
    for (int c = 0; c < 16; ++c) {
      EXPECT_EQ(states.finish(0, 0)[size_of(c)], 31.5f + static_cast<float>(c));
    }
  }
}

TEST(Attend, LongContextOfSeveralWorkItems) {
  Random random(40);
  const Geometry g = geometry_of(kKinds[1], DType::f16, "f16", "int8");
  ASSERT_GT(3000 / g.page_tokens / kItemPages, 10);
  const History history = random_history(random, g, 3000);
  const Matrix q = random_matrix(random, 5, 6, 24);
  Rules rules;
  rules.scale = 0.2f;
  check(history, rules, history.slices(), some_queries(random, history, 5), q);
  std::vector<Query> queries = some_queries(random, history, 5);
  for (Query& query : queries) query.first_position = query.position - 700;
  check(history, rules, history.slices(), queries, q);
}

TEST(Attend, QueriesOfAnyTypeAndStride) {
  Random random(41);
  const Geometry g = geometry_of(kKinds[1], DType::f32, "f32", "f32");
  const History history = random_history(random, g, 40);
  const std::vector<Query> queries = some_queries(random, history, 4);
  const std::vector<PageSlice> slices = history.slices();
  const Matrix plain = random_matrix(random, 4, 6, 24);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    Matrix rounded = plain;
    for (float& x : rounded.data) x = round_to(dtype, x);
    const States expected =
        run_states(make_task(history, Rules{}, slices, queries, rounded.view()));
    struct Strides {
      std::int64_t token, head, base;
    };
    for (const Strides& s : {Strides{6 * 24, 24, 0}, Strides{24, 4 * 24, 0},
                             Strides{6 * 27 + 5, 27, 1}, Strides{-6 * 24, 24, 3 * 6 * 24}}) {
      std::vector<std::byte> memory(4 * (6 * 27 + 40) * bytes_of(dtype));
      const auto element = static_cast<std::int64_t>(bytes_of(dtype));
      std::byte* base = memory.data() + s.base * element;
      for (std::int64_t t = 0; t < 4; ++t) {
        for (int h = 0; h < 6; ++h) {
          for (int c = 0; c < 24; ++c) {
            store_element(dtype, base + (t * s.token + h * s.head) * element, size_of(c),
                          plain.at(t, h)[c]);
          }
        }
      }
      const TensorView view{base, dtype, 4, 6, 24, s.token, s.head};
      EXPECT_EQ(run_states(make_task(history, Rules{}, slices, queries, view)), expected)
          << name_of(dtype) << ' ' << s.token << ' ' << s.head;
    }
  }
}

// One query in a few, and one in as many as make the walk expand pages. Some queries see less than
// the broken one, some more.
TEST(Attend, ABrokenQueryHarmsItselfAlone) {
  Random random(42);
  for (const Codec* codec : all_codecs()) {
    const Geometry g = geometry_of(kKinds[0], DType::f32, codec->name, values_beside(*codec));
    if (!is_storable(g)) continue;
    const History history = random_history(random, g, 100);
    const History copy = history;
    // Pages as they are, cut in two, and places of two pages.
    std::size_t cuts = 0;
    for (const std::int64_t count : {3, 14, 3, 14, 3, 14}) {
      const std::vector<PageSlice> slices = cuts < 2   ? history.slices()
                                            : cuts < 4 ? halves(history, history)
                                                       : halves(history, copy);
      ++cuts;
      std::vector<Query> queries;
      for (std::int64_t row = 0; row < count; ++row) {
        queries.push_back(history.causal(row == 1 ? 60 : random.integer(20, 99), row));
      }
      queries.back() = history.causal(99, count - 1);  // sees pages that the broken one does not
      const Matrix q = random_matrix(random, count, 2, 16);
      for (const Isa isa : isas_found()) {
        const States clean =
            run_states(make_task(history, Rules{}, slices, queries, q.view(), isa));
        for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf}) {
          SCOPED_TRACE(testing::Message() << codec->name << ' ' << name_of(isa) << ", " << count
                                          << " queries, " << wrong);
          Matrix broken_q = q;
          broken_q.at(1, 0)[2] = wrong;
          const States broken =
              run_states(make_task(history, Rules{}, slices, queries, broken_q.view(), isa));
          for (std::int64_t row = 0; row < count; ++row) {
            for (int head = 0; head < 2; ++head) {
              const std::vector<float> out = broken.finish(row, head);
              if (row == 1 && head == 0) {
                EXPECT_TRUE(std::none_of(out.begin(), out.end(), [](float x) {
                  return std::isfinite(x);
                })) << out[0];
              } else {
                EXPECT_EQ(out, clean.finish(row, head)) << row << ' ' << head;
              }
            }
          }
        }
      }
    }
  }
}

// Keys of one sign make all logits of such a query the same infinity, which is what tokens that are
// not seen have.
TEST(Attend, AnInfiniteQueryDoesNotLookEmpty) {
  Random random(44);
  for (const Codec* codec : all_codecs()) {
    const Geometry g = geometry_of(kKinds[0], DType::f32, codec->name, values_beside(*codec));
    if (!is_storable(g)) continue;
    Matrix keys = random_matrix(random, 40, 2, 16);
    for (float& x : keys.data) x = std::abs(x) + 0.1f;
    const History history(g, keys, random_matrix(random, 40, 2, 16), counting(40));
    const std::vector<Query> queries{history.causal(39, 0)};
    const std::vector<PageSlice> slices = history.slices();
    for (const float wrong : {kInf, -kInf}) {
      Matrix q = random_matrix(random, 1, 2, 16);
      q.at(0, 0)[2] = wrong;
      for (const Isa isa : isas_found()) {
        const States states =
            run_states(make_task(history, Rules{}, slices, queries, q.view(), isa));
        EXPECT_FALSE(std::isfinite(states.finish(0, 0)[0]))
            << codec->name << ' ' << name_of(isa) << ' ' << wrong;
      }
    }
  }
}

TEST(Probabilities, FarLogitsAndSinksDoNotOverflow) {
  std::vector<float> line{1e30f, -1e30f, -kInf, 1e30f};
  logits_to_probabilities(line.data(), 4, -kInf);
  EXPECT_EQ(line, (std::vector<float>{0.5f, 0.0f, 0.0f, 0.5f}));
  line = {0.0f, -kInf, 3.0f};
  logits_to_probabilities(line.data(), 3, 1e30f);
  EXPECT_EQ(line, (std::vector<float>{0.0f, 0.0f, 0.0f}));
  line = {2.0f, 2.0f};
  logits_to_probabilities(line.data(), 2, 2.0f);
  EXPECT_FLOAT_EQ(line[0], 1.0f / 3);
}

TEST(Probabilities, SumToOneOrToLessWithASink) {
  Random random(43);
  for (const int columns : {1, 7, 5000}) {
    std::vector<float> plain(size_of(columns));
    for (float& s : plain) s = random.normal(3.0f);
    std::vector<float> sunk = plain;
    logits_to_probabilities(plain.data(), columns, -kInf);
    logits_to_probabilities(sunk.data(), columns, 4.0f);
    double sum = 0;
    double sunk_sum = 0;
    for (const float p : plain) sum += double{p};
    for (const float p : sunk) sunk_sum += double{p};
    EXPECT_NEAR(sum, 1.0, 1e-6);
    EXPECT_LT(sunk_sum, 1.0 - 1e-5);
  }
}

}  // namespace
}  // namespace quire::test
