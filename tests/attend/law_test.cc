// The law, at the level of the walk: a query's bits depend on its place in its history alone, on
// every instruction set.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "attend/block_walk.h"
#include "attend/history.h"
#include "attend/walk.h"

namespace quire::test {
namespace {

struct LawCase {
  Geometry geometry;
  Rules rules;
};

// Heads whose values are whole tiles and heads whose values are not; latents whose parts the int8
// kernel takes, and others.
std::vector<LawCase> law_cases() {
  std::vector<LawCase> all;
  for (const Codec* codec : all_codecs()) {
    const std::string name = codec->name;
    const DType row_type = codec->lossless.value_or(DType::f16);
    Rules rules;
    rules.scale = 0.2f;
    const std::string beside = values_beside(*codec);
    const auto add = [&](const Geometry& g, const Rules& r) {
      if (is_storable(g)) all.push_back({g, r});
    };
    add({2, 4, 20, 16, false, 16, row_type, name, beside}, rules);
    add({1, 13, 36, 32, false, 48, DType::bf16, name, beside}, rules);
    add({1, 3, 20, 14, true, 16, row_type, name, name}, Rules{});
    add({1, 5, 48, 32, true, 32, DType::f32, name, name}, rules);
    rules.soft_cap = 20.0f;
    rules.slopes = {0.1f, 0.2f, 0.3f, 0.4f};
    add({2, 4, 20, 12, false, 5, DType::f32, name, beside}, rules);
  }
  return all;
}

std::string describe(const Geometry& g, Isa isa) {
  return std::string(name_of(isa)) + ", " + g.key_codec + ", rows " + name_of(g.row_type) +
         ", dims " + std::to_string(g.key_dim) + " and " + std::to_string(g.value_dim) +
         (g.mla ? ", mla" : "");
}

// All tokens of a history as queries, windows that begin inside a page on every third.
std::vector<Query> all_queries(const History& history) {
  std::vector<Query> queries;
  for (std::int64_t t = 0; t < history.tokens(); ++t) {
    queries.push_back(history.causal(t, t));
    if (t % 3 == 0) queries.back().first_position = queries.back().position - 40;
  }
  return queries;
}

// States of all queries, `count` of them at a time.
States in_parts(const History& history, const Rules& rules, const std::vector<PageSlice>& slices,
                const std::vector<Query>& queries, const Matrix& q, Isa isa,
                const std::function<std::size_t()>& count) {
  States states(q.tokens, q.heads, history.store.value_dim);
  for (std::size_t at = 0; at < queries.size();) {
    const std::size_t take = std::min(queries.size() - at, count());
    const std::vector<Query> some(queries.begin() + static_cast<std::ptrdiff_t>(at),
                                  queries.begin() + static_cast<std::ptrdiff_t>(at + take));
    run_states(make_task(history, rules, slices, some, q.view(), isa), states);
    at += take;
  }
  return states;
}

TEST(Law, OneAtATimeOrAllTogether) {
  Random random(50);
  constexpr std::int64_t kTokens = 210;
  for (const LawCase& c : law_cases()) {
    const History history = random_history(random, c.geometry, kTokens);
    const Matrix q = random_matrix(random, kTokens, c.geometry.query_heads, c.geometry.key_dim);
    const std::vector<PageSlice> slices = history.slices();
    const std::vector<Query> queries = all_queries(history);
    std::vector<Query> mixed = queries;
    random.shuffle(mixed);
    for (const Isa isa : isas_found()) {
      SCOPED_TRACE(describe(c.geometry, isa));
      const States together =
          run_states(make_task(history, c.rules, slices, queries, q.view(), isa));
      const auto parts = [&](const std::vector<Query>& asked,
                             const std::function<std::size_t()>& count) {
        return in_parts(history, c.rules, slices, asked, q, isa, count);
      };
      EXPECT_TRUE(parts(queries, [] { return 1; }) == together);
      EXPECT_TRUE(parts(queries, [] { return 8; }) == together);
      EXPECT_TRUE(parts(mixed, [&] { return size_of(random.integer(1, 100)); }) == together);
    }
  }
}

// Enough queries that the walk takes them in several blocks.
TEST(Law, MoreQueriesThanABlock) {
  Random random(51);
  constexpr std::int64_t kTokens = 512;
  for (const Codec* codec : all_codecs()) {
    const Geometry g{1, 2, 32, 32, false, 64, DType::f16, codec->name, values_beside(*codec)};
    const History history = random_history(random, g, kTokens);
    const Matrix q = random_matrix(random, kTokens, 2, 32);
    const std::vector<PageSlice> slices = history.slices();
    const std::vector<Query> queries = all_queries(history);
    for (const Isa isa : isas_found()) {
      SCOPED_TRACE(describe(g, isa));
      const AttendTask task = make_task(history, Rules{}, slices, queries, q.view(), isa);
      ASSERT_LT(block_queries(task), queries.size());
      const States together = run_states(task);
      const auto parts = [&](std::size_t count) {
        return in_parts(history, Rules{}, slices, queries, q, isa, [&] { return count; });
      };
      EXPECT_TRUE(parts(1) == together);
      EXPECT_TRUE(parts(8) == together);
    }
  }
}

// Kernels take rows in blocks of several sizes, and pages are expanded from some number of rows on.
// Rows are the query heads of a group, or queries.
TEST(Law, AnyNumberOfRowsAtOnce) {
  Random random(57);
  constexpr int kRows = 13;
  for (const Codec* codec : all_codecs()) {
    for (const DType row_type : {DType::f32, DType::f16, DType::bf16}) {
      const Geometry g{1, kRows, 40, 32, false, 32, row_type, codec->name, values_beside(*codec)};
      if (!is_storable(g)) continue;
      const History history = random_history(random, g, 100);
      const Matrix q = random_matrix(random, kRows, kRows, g.key_dim);
      const std::vector<PageSlice> slices = history.slices();
      std::vector<Query> queries;
      for (std::int64_t row = 0; row < kRows; ++row) {
        queries.push_back(history.causal(random.integer(70, 99), row));
      }
      for (const Isa isa : isas_found()) {
        SCOPED_TRACE(describe(g, isa));
        AttendTask task = make_task(history, Rules{}, slices, queries, q.view(), isa);
        const States all = run_states(task);  // expanded
        task.many_rows = kRows * kRows + 1;
        EXPECT_TRUE(run_states(task) == all);
        const auto same = [&](const States& found, std::int64_t row, std::int64_t head) {
          const std::size_t a = size_of(row * found.heads + head);
          const std::size_t b = size_of(row * kRows + head);
          const std::size_t dim = size_of(g.value_dim);
          return found.m[a] == all.m[b] && found.l[a] == all.l[b] &&
                 std::equal(found.o.data() + a * dim, found.o.data() + (a + 1) * dim,
                            all.o.data() + b * dim);
        };
        for (std::int64_t rows = 1; rows <= kRows; ++rows) {
          TensorView heads = q.view();
          heads.heads = rows;
          const std::vector<Query> first{queries[0]};
          const States of_heads =
              run_states(make_task(history, Rules{}, slices, first, heads, isa));
          TensorView one_head = q.view();
          one_head.heads = 1;
          const std::vector<Query> some(queries.begin(), queries.begin() + rows);
          const States of_queries =
              run_states(make_task(history, Rules{}, slices, some, one_head, isa));
          for (std::int64_t i = 0; i < rows; ++i) {
            EXPECT_TRUE(same(of_heads, 0, i)) << rows << " heads, head " << i;
            EXPECT_TRUE(same(of_queries, i, 0)) << rows << " queries, query " << i;
          }
        }
      }
    }
  }
}

TEST(Law, HeadsOneAtATimeOrAllTogether) {
  Random random(58);
  for (const Codec* codec : all_codecs()) {
    const Geometry g{5, 10, 20, 16, false, 16, DType::f16, codec->name, values_beside(*codec)};
    if (!is_storable(g)) continue;
    const History history = random_history(random, g, 90);
    const Matrix q = random_matrix(random, 90, 10, 20);
    const std::vector<PageSlice> slices = history.slices();
    const std::vector<Query> queries = all_queries(history);
    for (const Isa isa : isas_found()) {
      const AttendTask task = make_task(history, Rules{}, slices, queries, q.view(), isa);
      const States together = run_states(task);
      for (const int count : {1, 2, 3}) {
        States parts(90, 10, 16);
        for (int head = 0; head < 5; head += count) {
          attend_states(task, {head, std::min(5, head + count)}, parts.view());
        }
        EXPECT_TRUE(parts == together) << describe(g, isa) << ", " << count << " heads at a time";
      }
    }
  }
}

TEST(Law, SlicesOfOnePageAreOneUnit) {
  Random random(52);
  for (const LawCase& c : law_cases()) {
    const History history = random_history(random, c.geometry, 150);
    const Matrix q = random_matrix(random, 150, c.geometry.query_heads, c.geometry.key_dim);
    const std::vector<Query> queries = all_queries(history);
    const std::vector<PageSlice> whole = history.slices();
    std::vector<PageSlice> pieces = whole;
    while (pieces.size() == whole.size()) pieces = cut(random, whole);
    for (const Isa isa : isas_found()) {
      SCOPED_TRACE(describe(c.geometry, isa));
      const States expected =
          run_states(make_task(history, c.rules, whole, queries, q.view(), isa));
      EXPECT_TRUE(run_states(make_task(history, c.rules, pieces, queries, q.view(), isa)) ==
                  expected);
      // A query alone reads fewer tiles of a page.
      EXPECT_TRUE(in_parts(history, c.rules, pieces, queries, q, isa, [] { return 1; }) ==
                  expected);
    }
  }
}

// What one query sees of a slice, another one does not, nor the rest of it.
TEST(Law, QueriesOfOneCallMaySeeDifferentSlices) {
  Random random(59);
  for (const LawCase& c : law_cases()) {
    const History history = random_history(random, c.geometry, 150);
    const History copy = history;
    const Matrix q = random_matrix(random, 20, c.geometry.query_heads, c.geometry.key_dim);
    for (int round = 0; round < 4; ++round) {
      std::vector<Query> queries;
      for (std::int64_t row = 0, t = random.integer(0, 9); row < 20 && t < 150; ++row) {
        queries.push_back(history.causal(t, row));
        queries.back().first_position = queries.back().position - 4;
        t += random.integer(5, 20);
      }
      for (const std::vector<PageSlice>& pieces :
           {history.slices(), halves(history, history), halves(history, copy)}) {
        for (const Isa isa : isas_found()) {
          SCOPED_TRACE(describe(c.geometry, isa));
          States together(20, c.geometry.query_heads, history.store.value_dim);
          run_states(make_task(history, c.rules, pieces, queries, q.view(), isa), together);
          EXPECT_TRUE(in_parts(history, c.rules, pieces, queries, q, isa, [] { return 1; }) ==
                      together);
        }
      }
    }
  }
}

TEST(Law, APlaceOfSeveralPagesIsOneUnit) {
  Random random(58);
  for (const LawCase& c : law_cases()) {
    const History history = random_history(random, c.geometry, 150);
    const History copy = history;
    const Matrix q = random_matrix(random, 150, c.geometry.query_heads, c.geometry.key_dim);
    const std::vector<Query> queries = all_queries(history);
    const std::vector<PageSlice> pieces = halves(history, copy);
    for (const Isa isa : isas_found()) {
      SCOPED_TRACE(describe(c.geometry, isa));
      const States together =
          run_states(make_task(history, c.rules, pieces, queries, q.view(), isa));
      EXPECT_TRUE(in_parts(history, c.rules, pieces, queries, q, isa, [] { return 1; }) ==
                  together);
      EXPECT_TRUE(in_parts(history, c.rules, pieces, queries, q, isa,
                           [&] { return size_of(random.integer(1, 40)); }) == together);
      // One maximum, whichever pages the slots come from; sums are added up in another order, and
      // weights of two pages have codes of their own.
      const States whole =
          run_states(make_task(history, c.rules, history.slices(), queries, q.view(), isa));
      EXPECT_EQ(together.m, whole.m);
      for (const Query& query : queries) {
        for (int head = 0; head < q.heads; ++head) {
          const std::vector<float> expected = whole.finish(query.row, head);
          EXPECT_LE(relative_error(together.finish(query.row, head).data(),
                                   {expected.begin(), expected.end()}),
                    2e-2);
        }
      }
    }
  }
}

TEST(Law, WhatNobodySeesDoesNotMatter) {
  Random random(53);
  for (const LawCase& c : law_cases()) {
    const History history = random_history(random, c.geometry, 600);
    const Matrix q = random_matrix(random, 1, c.geometry.query_heads, c.geometry.key_dim);
    const std::vector<PageSlice> slices = history.slices();
    Query query = history.causal(500, 0);
    query.first_position = 333;
    const std::vector<Query> queries{query};

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
    for (const Isa isa : isas_found()) {
      SCOPED_TRACE(describe(c.geometry, isa));
      EXPECT_TRUE(run_states(make_task(history, c.rules, fewer, queries, q.view(), isa)) ==
                  run_states(make_task(history, c.rules, slices, queries, q.view(), isa)));
    }
  }
}

// What a walk keeps from run to run is worth as much in the next: items with whole pages, with
// places of several slices and with what only some queries see, in any order, with or without a
// word on what follows, and for heads of which the output holds no others.
TEST(Law, AWalkGoesFromItemToItem) {
  constexpr std::size_t kOrder[] = {0, 1, 2, 3, 4, 2, 0, 4, 1, 1, 3};
  Random random(58);
  for (const Codec* codec : all_codecs()) {
    const Geometry g{2, 4, 20, 16, false, 8, DType::f16, codec->name, values_beside(*codec)};
    if (!is_storable(g)) continue;
    const History history = random_history(random, g, 8 * kItemPages * 4 + 5);
    const Matrix q = random_matrix(random, 3, 4, 20);
    std::vector<Query> queries;
    for (int row = 0; row < 3; ++row) {
      queries.push_back(history.causal(history.tokens() - 3 + row, row));
    }
    queries[1].end_ordinal = 8 * kItemPages * 2 + 20;  // sees less than the others
    std::vector<PageSlice> slices = history.slices();
    const auto middle = static_cast<std::ptrdiff_t>(slices.size() / 2);
    const std::vector<PageSlice> parts =
        cut(random, {slices.begin() + middle, slices.begin() + middle + 5});
    slices.erase(slices.begin() + middle, slices.begin() + middle + 5);
    slices.insert(slices.begin() + middle, parts.begin(), parts.end());
    const std::vector<WorkItem> items = cut_items(slices, history.store);
    ASSERT_EQ(items.size(), 5u);
    for (const Isa isa : isas_found()) {
      const AttendTask task = make_task(history, Rules{}, slices, queries, q.view(), isa);
      for (const HeadRange heads : {HeadRange{0, 2}, HeadRange{1, 2}}) {
        const std::int64_t first = heads.begin * 2;
        WalkRoom room;
        BlockWalk walk(task, heads, room);
        for (const std::size_t i : kOrder) {
          States found(3, 4 - first, 16);
          States alone(3, 4 - first, 16);
          const std::size_t next = random.integer(0, 2) == 0 ? 0 : (i + 1) % items.size();
          const auto one = static_cast<int>(random.integer(heads.begin, heads.end - 1));
          const HeadRange some = random.integer(0, 1) == 0 ? heads : HeadRange{one, one + 1};
          walk.run(items[i], some, found.view(), first,
                   {next == 0 ? nullptr : &items[next].front(), one});
          WalkRoom own;
          BlockWalk(task, some, own).run(items[i], some, alone.view(), first);
          EXPECT_TRUE(found == alone) << describe(g, isa) << ", item " << i;
        }
      }
    }
  }
}

// A work item is kItemPages places of the history, counted from its beginning.
TEST(Law, WorkItemsMergeInOrder) {
  Random random(56);
  for (const Codec* codec : all_codecs()) {
    for (const int page : {5, 16}) {
      const Geometry g{2, 4, 20, 16, false, page, DType::f16, codec->name, values_beside(*codec)};
      if (!is_storable(g)) continue;
      const std::int64_t item_tokens = page * kItemPages;
      const History history = random_history(random, g, item_tokens * 3 + 7);
      const Matrix q = random_matrix(random, 1, 4, 20);
      Query query = history.causal(history.tokens() - 1, 0);
      query.first_position = page * 2 + 1;
      const std::vector<Query> queries{query};
      const std::vector<PageSlice> slices = history.slices();
      for (const Isa isa : isas_found()) {
        const States whole =
            run_states(make_task(history, Rules{}, slices, queries, q.view(), isa));
        States merged(1, 4, 16);
        state_clear(merged.o.data(), merged.m.data(), merged.l.data(), 4, 16);
        for (std::int64_t begin = 0; begin < history.tokens(); begin += item_tokens) {
          std::vector<PageSlice> item;
          for (const PageSlice& slice : slices) {
            if (slice.ordinal / item_tokens == begin / item_tokens) item.push_back(slice);
          }
          const States one = run_states(make_task(history, Rules{}, item, queries, q.view(), isa));
          state_merge(merged.o.data(), merged.m.data(), merged.l.data(), one.o.data(), one.m.data(),
                      one.l.data(), 4, 16);
        }
        EXPECT_TRUE(merged == whole) << describe(g, isa) << ", page " << page;
      }
    }
  }
}

TEST(Law, LosslessCodecsReadLikeRows) {
  Random random(54);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const std::string name = name_of(dtype);
    for (const Geometry& g : {Geometry{2, 4, 20, 16, false, 16, dtype, name, name},
                              Geometry{2, 6, 64, 80, false, 48, dtype, name, name},
                              Geometry{2, 4, 20, 12, false, 16, dtype, name, name},
                              Geometry{1, 4, 20, 14, true, 16, dtype, name, name},
                              Geometry{1, 4, 48, 32, true, 16, dtype, name, name}}) {
      const History history = random_history(random, g, 400);
      // One query at a time, and enough of them to expand pages.
      for (const std::int64_t count : {1, 16}) {
        const Matrix q = random_matrix(random, count, g.query_heads, g.key_dim);
        std::vector<Query> sealed;
        std::vector<Query> exact;
        for (std::int64_t row = 0; row < count; ++row) {
          const std::int64_t ordinal = random.integer(300, 399);
          sealed.push_back(history.causal(ordinal, row));
          exact.push_back(history.causal(ordinal, row, 1000));
        }
        const std::vector<PageSlice> slices = history.slices();
        for (const Isa isa : isas_found()) {
          EXPECT_TRUE(run_states(make_task(history, Rules{}, slices, sealed, q.view(), isa)) ==
                      run_states(make_task(history, Rules{}, slices, exact, q.view(), isa)))
              << describe(g, isa) << ", " << count << " queries";
        }
      }
    }
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
    for (const Isa isa : isas_found()) {
      SCOPED_TRACE(describe(c.geometry, isa));
      std::vector<float> together(size_of(100 * heads * 100));
      std::vector<float> alone(together.size());
      for (int head = 0; head < history.store.heads; ++head) {
        attend_logits(make_task(history, c.rules, slices, queries, q.view(), isa), head,
                      together.data(), 100);
        for (const Query& query : queries) {
          const std::vector<Query> one{query};
          attend_logits(make_task(history, c.rules, pieces, one, q.view(), isa), head, alone.data(),
                        100);
        }
      }
      EXPECT_TRUE(alone == together);
      // Up to the order in which dot product, scale and log2 e are multiplied.
      const States states = run_states(make_task(history, c.rules, slices, queries, q.view(), isa));
      int wrong = 0;
      for (std::size_t i = 0; i < states.m.size(); ++i) {
        const auto line = together.begin() + static_cast<std::ptrdiff_t>(i * 100);
        const float expected = *std::max_element(line, line + 100) * kLog2E;
        if (std::abs(states.m[i] - expected) > 3e-7f * std::abs(expected)) ++wrong;
      }
      EXPECT_EQ(wrong, 0) << "of " << states.m.size();
    }
  }
}

}  // namespace
}  // namespace quire::test
