// The law, at the level of the walk: a query's bits depend on its place in its history alone.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "attend/history.h"
#include "attend/walk.h"

namespace quire::test {
namespace {

struct LawCase {
  Geometry geometry;
  Rules rules;
};

std::vector<LawCase> law_cases() {
  std::vector<LawCase> all;
  for (const Codec* codec : all_codecs()) {
    const DType row_type = codec->lossless.value_or(DType::f16);
    Geometry g{2, 4, 20, 12, false, 16, row_type, codec->name, codec->name};
    Rules rules;
    rules.scale = 0.2f;
    all.push_back({g, rules});
    rules.soft_cap = 20.0f;
    rules.slopes = {0.1f, 0.2f, 0.3f, 0.4f};
    g.page_tokens = 5;
    all.push_back({g, rules});
    all.push_back({{1, 3, 20, 14, true, 16, row_type, codec->name, codec->name}, Rules{}});
  }
  return all;
}

// All tokens of a history as queries, windows on every third.
std::vector<Query> all_queries(const History& history) {
  std::vector<Query> queries;
  for (std::int64_t t = 0; t < history.tokens(); ++t) {
    queries.push_back(history.causal(t, t));
    if (t % 3 == 0) queries.back().first_position = queries.back().position - 40;
  }
  return queries;
}

// Cuts slices at random places.
std::vector<PageSlice> cut(Random& random, const std::vector<PageSlice>& slices) {
  std::vector<PageSlice> result;
  for (PageSlice rest : slices) {
    while (rest.count > 1 && random.integer(0, 2) > 0) {
      PageSlice first = rest;
      first.count = static_cast<int>(random.integer(1, rest.count - 1));
      result.push_back(first);
      rest.first += first.count;
      rest.ordinal += first.count;
      rest.count -= first.count;
    }
    result.push_back(rest);
  }
  return result;
}

TEST(Law, OneAtATimeOrAllTogether) {
  Random random(50);
  for (const LawCase& c : law_cases()) {
    SCOPED_TRACE(c.geometry.key_codec);
    const History history = random_history(random, c.geometry, 330);
    const Matrix q = random_matrix(random, 330, c.geometry.query_heads, c.geometry.key_dim);
    const std::vector<PageSlice> slices = history.slices();
    std::vector<Query> queries = all_queries(history);
    const States together = run_states(make_task(history, c.rules, slices, queries, q.view()));

    States alone(330, c.geometry.query_heads, c.geometry.value_dim);
    for (const Query& query : queries) {
      const std::vector<Query> one{query};
      run_states(make_task(history, c.rules, slices, one, q.view()), alone);
    }
    EXPECT_EQ(alone, together);

    // In another order, a few at a time.
    random.shuffle(queries);
    States mixed(330, c.geometry.query_heads, c.geometry.value_dim);
    for (std::size_t at = 0; at < queries.size();) {
      const std::size_t count =
          std::min(queries.size() - at, static_cast<std::size_t>(random.integer(1, 100)));
      const std::vector<Query> some(queries.begin() + static_cast<std::ptrdiff_t>(at),
                                    queries.begin() + static_cast<std::ptrdiff_t>(at + count));
      run_states(make_task(history, c.rules, slices, some, q.view()), mixed);
      at += count;
    }
    EXPECT_EQ(mixed, together);
  }
}

// Enough queries that the walk takes them in several blocks.
TEST(Law, MoreQueriesThanABlock) {
  Random random(51);
  const Geometry g{1, 8, 64, 64, false, 64, DType::f16, "f16", "f16"};
  const History history = random_history(random, g, 600);
  const Matrix q = random_matrix(random, 600, 8, 64);
  const std::vector<PageSlice> slices = history.slices();
  const std::vector<Query> queries = all_queries(history);
  const States together = run_states(make_task(history, Rules{}, slices, queries, q.view()));
  States alone(600, 8, 64);
  for (const Query& query : queries) {
    const std::vector<Query> one{query};
    run_states(make_task(history, Rules{}, slices, one, q.view()), alone);
  }
  EXPECT_EQ(alone, together);
}

TEST(Law, SlicesOfOnePageAreOneUnit) {
  Random random(52);
  for (const LawCase& c : law_cases()) {
    SCOPED_TRACE(c.geometry.key_codec);
    const History history = random_history(random, c.geometry, 300);
    const Matrix q = random_matrix(random, 300, c.geometry.query_heads, c.geometry.key_dim);
    const std::vector<Query> queries = all_queries(history);
    const std::vector<PageSlice> whole = history.slices();
    const std::vector<PageSlice> pieces = cut(random, whole);
    ASSERT_GT(pieces.size(), whole.size());
    EXPECT_EQ(run_states(make_task(history, c.rules, pieces, queries, q.view())),
              run_states(make_task(history, c.rules, whole, queries, q.view())));
  }
}

TEST(Law, WhatNobodySeesDoesNotMatter) {
  Random random(53);
  for (const LawCase& c : law_cases()) {
    SCOPED_TRACE(c.geometry.key_codec);
    const History history = random_history(random, c.geometry, 600);
    const Matrix q = random_matrix(random, 1, c.geometry.query_heads, c.geometry.key_dim);
    const std::vector<PageSlice> slices = history.slices();
    Query query = history.causal(500, 0);
    query.first_position = 333;
    const std::vector<Query> queries{query};
    const States expected = run_states(make_task(history, c.rules, slices, queries, q.view()));

    // Evicted slots, later tokens and rows that were let go.
    std::vector<PageSlice> fewer;
    for (PageSlice slice : slices) {
      if (slice.ordinal + slice.count <= 333 || slice.ordinal > 500) continue;
      if (slice.ordinal < 333) {
        const int gone = static_cast<int>(333 - slice.ordinal);
        slice.first += gone;
        slice.ordinal += gone;
        slice.count -= gone;
      }
      if (slice.page_end <= query.sealed_below) {
        slice.rows = nullptr;
      } else {
        slice.sealed = nullptr;
      }
      fewer.push_back(slice);
    }
    EXPECT_EQ(run_states(make_task(history, c.rules, fewer, queries, q.view())), expected);
  }
}

// A work item is kItemPages places of the history, counted from its beginning.
TEST(Law, WorkItemsMergeInOrder) {
  Random random(56);
  for (const int page : {5, 16}) {
    const Geometry g{2, 4, 20, 12, false, page, DType::f16, "f16", "int8"};
    const std::int64_t item_tokens = page * kItemPages;
    const History history = random_history(random, g, item_tokens * 3 + 7);
    const Matrix q = random_matrix(random, 1, 4, 20);
    Query query = history.causal(history.tokens() - 1, 0);
    query.first_position = page * 2 + 1;
    const std::vector<Query> queries{query};
    const std::vector<PageSlice> slices = history.slices();
    const States whole = run_states(make_task(history, Rules{}, slices, queries, q.view()));

    States merged(1, 4, 12);
    state_clear(merged.o.data(), merged.m.data(), merged.l.data(), 4, 12);
    for (std::int64_t begin = 0; begin < history.tokens(); begin += item_tokens) {
      std::vector<PageSlice> item;
      for (const PageSlice& slice : slices) {
        if (slice.ordinal / item_tokens == begin / item_tokens) item.push_back(slice);
      }
      const States one = run_states(make_task(history, Rules{}, item, queries, q.view()));
      state_merge(merged.o.data(), merged.m.data(), merged.l.data(), one.o.data(), one.m.data(),
                  one.l.data(), 4, 12);
    }
    EXPECT_EQ(merged, whole) << "page " << page;
  }
}

TEST(Law, LosslessCodecsReadLikeRows) {
  Random random(54);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const Geometry g{2, 4, 20, 12, false, 16, dtype, name_of(dtype), name_of(dtype)};
    const History history = random_history(random, g, 400);
    const Matrix q = random_matrix(random, 1, 4, 20);
    std::vector<Query> sealed{history.causal(399, 0)};
    std::vector<Query> exact{history.causal(399, 0, 1000)};
    const std::vector<PageSlice> slices = history.slices();
    EXPECT_EQ(run_states(make_task(history, Rules{}, slices, sealed, q.view())),
              run_states(make_task(history, Rules{}, slices, exact, q.view())));
  }
}

// Logits of a query head are the same numbers whoever else asks, and those attention uses.
TEST(Law, LogitsToo) {
  Random random(55);
  for (const LawCase& c : law_cases()) {
    const History history = random_history(random, c.geometry, 100);
    const int heads = c.geometry.query_heads;
    const Matrix q = random_matrix(random, 100, heads, c.geometry.key_dim);
    const std::vector<Query> queries = all_queries(history);
    const std::vector<PageSlice> slices = history.slices();
    const std::vector<PageSlice> pieces = cut(random, slices);
    std::vector<float> together(size_of(100 * heads * 100));
    std::vector<float> alone(together.size());
    for (int head = 0; head < history.store.heads; ++head) {
      attend_logits(make_task(history, c.rules, slices, queries, q.view()), head, together.data(),
                    100);
      for (const Query& query : queries) {
        const std::vector<Query> one{query};
        attend_logits(make_task(history, c.rules, pieces, one, q.view()), head, alone.data(), 100);
      }
    }
    EXPECT_EQ(alone, together);
    const States states = run_states(make_task(history, c.rules, slices, queries, q.view()));
    for (std::size_t i = 0; i < states.m.size(); ++i) {
      const auto line = together.begin() + static_cast<std::ptrdiff_t>(i * 100);
      EXPECT_EQ(states.m[i], *std::max_element(line, line + 100) * kLog2E);
    }
  }
}

}  // namespace
}  // namespace quire::test
