// Turned slices: attention over keys rotated for other positions than their tokens have now equals
// attention over keys rotated anew.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "attend/history.h"
#include "attend/rope.h"
#include "attend/walk.h"

namespace quire::test {
namespace {

constexpr int kDim = 20;
constexpr int kTokens = 100;

std::vector<Rope> ropes() {
  std::vector<Rope> all;
  for (const Rope::Pairs pairs : {Rope::Pairs::halves, Rope::Pairs::interleaved}) {
    Rope rope;
    rope.pairs = pairs;
    all.push_back(rope);
    rope.offset = 8;
    rope.size = 12;
    all.push_back(rope);
    rope.frequency_scale = 0.5;
    rope.factors = {1.0, 1.0, 2.0, 3.0, 8.0, 8.0};
    all.push_back(rope);
  }
  return all;
}

// Rotation for a position, in double, from what spec.hpp says.
void rotate(const Rope& rope, float* x, std::int64_t position) {
  const int size = rope.size == 0 ? kDim : rope.size;
  for (int i = 0; i < size / 2; ++i) {
    double angle =
        static_cast<double>(position) * rope.frequency_scale * std::pow(rope.base, -2.0 * i / size);
    if (!rope.factors.empty()) angle /= rope.factors[size_of(i)];
    const bool halves = rope.pairs == Rope::Pairs::halves;
    float& a = x[rope.offset + (halves ? i : 2 * i)];
    float& b = x[rope.offset + (halves ? i + size / 2 : 2 * i + 1)];
    const double first = double{a} * std::cos(angle) - double{b} * std::sin(angle);
    const double second = double{a} * std::sin(angle) + double{b} * std::cos(angle);
    a = static_cast<float>(first);
    b = static_cast<float>(second);
  }
}

Matrix rotated(const Rope& rope, Matrix keys, const std::vector<std::int64_t>& positions) {
  for (std::int64_t t = 0; t < keys.tokens; ++t) {
    for (int h = 0; h < keys.heads; ++h) rotate(rope, keys.at(t, h), positions[size_of(t)]);
  }
  return keys;
}

struct Moved {
  History history;                   // keys rotated for 0, 1, 2, ...
  std::vector<PageSlice> slices;     // tokens [10, 25) and [50, 60) gone, later ones moved down
  std::vector<std::int64_t> tokens;  // ordinals that are left
  std::vector<std::int64_t> now;     // their positions now
  Matrix keys, values;               // rotated anew for those
};

Moved make_moved(Random& random, const Rope& rope, bool mla, const std::string& codec = "f32") {
  const int value_dim = mla ? 8 : codec == "f32" ? 6 : 16;
  const Geometry g{mla ? 1 : 2, 4,     kDim,
                   value_dim,   mla,   16,
                   DType::f32,  codec, values_beside(*find_codec(codec))};
  const Matrix base = random_matrix(random, kTokens, g.kv_heads, kDim);
  const Matrix keys = rotated(rope, base, counting(kTokens));
  const Matrix values =
      mla ? head_of(keys, g.value_dim) : random_matrix(random, kTokens, g.kv_heads, g.value_dim);
  Moved moved{History(g, keys, values, counting(kTokens)), {}, {}, {}, {}, {}};

  const auto add = [&](const PageSlice& page, std::int64_t begin, std::int64_t end,
                       std::int64_t turn) {
    begin = std::max(begin, page.ordinal);
    end = std::min(end, page.ordinal + page.count);
    if (begin >= end) return;
    PageSlice slice = page;
    slice.first = static_cast<int>(begin - page.ordinal);
    slice.count = static_cast<int>(end - begin);
    slice.ordinal = begin;
    slice.turn = turn;
    moved.slices.push_back(slice);
    for (std::int64_t t = begin; t < end; ++t) {
      moved.tokens.push_back(t);
      moved.now.push_back(t + turn);
    }
  };
  for (const PageSlice& page : moved.history.slices()) {
    add(page, 0, 10, 0);
    add(page, 25, 50, -15);
    add(page, 60, kTokens, -25);
  }

  const auto left = static_cast<std::int64_t>(moved.tokens.size());
  Matrix plain(left, g.kv_heads, kDim);
  moved.values = Matrix(left, g.kv_heads, g.value_dim);
  for (std::int64_t i = 0; i < left; ++i) {
    for (int h = 0; h < g.kv_heads; ++h) {
      const std::int64_t t = moved.tokens[size_of(i)];
      std::copy_n(base.at(t, h), kDim, plain.at(i, h));
      std::copy_n(values.at(t, h), g.value_dim, moved.values.at(i, h));
    }
  }
  moved.keys = rotated(rope, plain, moved.now);
  return moved;
}

TEST(Turn, TurnedSlicesReadLikeKeysRotatedAnew) {
  Random random(60);
  for (const Rope& rope : ropes()) {
    for (const bool mla : {false, true}) {
      // The values of a latent are its first channels, which no rotation may touch.
      if (mla && rope.offset == 0) continue;
      const Moved moved = make_moved(random, rope, mla);
      const RopeTurner turner(rope, kDim);
      Rules rules;
      rules.scale = 0.25f;
      rules.slopes = {0.0f, 0.01f, 0.1f, 0.0f};
      Matrix q = random_matrix(random, 5, 4, kDim);
      std::vector<Query> queries;
      for (std::int64_t row = 0; row < 5; ++row) {
        const std::size_t at = size_of(random.integer(0, 74));
        Query query = moved.history.causal(moved.tokens[at], row);
        query.position = moved.now[at];
        if (row == 4) query.first_position = query.position - 20;
        queries.push_back(query);
        for (int head = 0; head < 4; ++head) rotate(rope, q.at(row, head), query.position);
      }
      for (const Isa isa : isas_found()) {
        AttendTask task = make_task(moved.history, rules, moved.slices, queries, q.view(), isa);
        task.math.rope = &turner;
        const States states = run_states(task);
        std::vector<float> logits(size_of(5 * 4 * moved.keys.tokens));
        for (int head = 0; head < moved.history.store.heads; ++head) {
          attend_logits(task, head, logits.data(), moved.keys.tokens);
        }
        for (const Query& query : queries) {
          const auto sees = [&](std::int64_t i) {
            return moved.tokens[size_of(i)] < query.end_ordinal &&
                   moved.now[size_of(i)] >= query.first_position;
          };
          for (int head = 0; head < 4; ++head) {
            const Answer answer = reference(moved.keys, moved.values, moved.now, sees,
                                            q.at(query.row, head), head, 4, query.position, rules);
            EXPECT_LE(relative_error(states.finish(query.row, head).data(), answer.out),
                      error_bound(answer.magnitude));
            for (std::int64_t i = 0; i < moved.keys.tokens; ++i) {
              const float logit = logits[size_of((query.row * 4 + head) * moved.keys.tokens + i)];
              if (!sees(i)) {
                EXPECT_EQ(logit, -kInf);
              } else {
                EXPECT_NEAR(logit, answer.logits[size_of(i)], 1e-5);
              }
            }
          }
        }
      }
    }
  }
}

TEST(Turn, ReadSliceTurnsKeysAndNothingElse) {
  Random random(61);
  for (const Rope& rope : ropes()) {
    const Moved moved = make_moved(random, rope, false);
    const RopeTurner turner(rope, kDim);
    std::int64_t i = 0;
    for (const PageSlice& slice : moved.slices) {
      std::vector<float> keys(size_of(slice.count * kDim));
      std::vector<float> values(size_of(slice.count * 6));
      read_slice(moved.history.store, &turner, Side::key, 1, slice, 0, slice.first, slice.count,
                 keys.data());
      read_slice(moved.history.store, &turner, Side::value, 1, slice, 0, slice.first, slice.count,
                 values.data());
      for (int t = 0; t < slice.count; ++t, ++i) {
        for (int c = 0; c < kDim; ++c) {
          EXPECT_NEAR(keys[size_of(t * kDim + c)], moved.keys.at(i, 1)[c], 5e-6);
        }
        for (int c = 0; c < 6; ++c) {
          EXPECT_EQ(values[size_of(t * 6 + c)], moved.values.at(i, 1)[c]);
        }
      }
    }
  }
}

TEST(Turn, ReadSliceTakesTheFormItsReaderSees) {
  Random random(62);
  const Geometry g{2, 2, 8, 6, false, 16, DType::f16, "fp8_e4m3", "int8"};
  const History history = random_history(random, g, 32);
  const PageSlice page = history.slices()[0];
  std::vector<float> row(8);
  for (const int slot : {0, 7, 15}) {
    read_slice(history.store, nullptr, Side::key, 1, page, 15, slot, 1, row.data());
    EXPECT_TRUE(std::equal(row.begin(), row.end(), history.keys.at(slot, 1)));
    read_slice(history.store, nullptr, Side::key, 1, page, 16, slot, 1, row.data());
    EXPECT_TRUE(std::equal(row.begin(), row.end(), history.coded_keys.at(slot, 1)));
    read_slice(history.store, nullptr, Side::value, 0, page, 16, slot, 1, row.data());
    EXPECT_TRUE(std::equal(row.begin(), row.begin() + 6, history.coded_values.at(slot, 0)));
  }
}

TEST(Turn, LayersWithoutRotationIgnoreTurns) {
  Random random(63);
  const Geometry g{1, 2, kDim, 6, false, 16, DType::f32, "f32", "f32"};
  const History history = random_history(random, g, 50);
  const Matrix q = random_matrix(random, 1, 2, kDim);
  const std::vector<Query> queries{history.causal(49, 0)};
  const std::vector<PageSlice> here = history.slices();
  std::vector<PageSlice> there = here;
  for (PageSlice& slice : there) slice.turn = -7;
  for (const Isa isa : isas_found()) {
    EXPECT_TRUE(run_states(make_task(history, Rules{}, there, queries, q.view(), isa)) ==
                run_states(make_task(history, Rules{}, here, queries, q.view(), isa)));
  }
  std::vector<float> a(kDim), b(kDim);
  read_slice(history.store, nullptr, Side::key, 0, here[1], 0, 3, 1, a.data());
  read_slice(history.store, nullptr, Side::key, 0, there[1], 0, 3, 1, b.data());
  EXPECT_EQ(a, b);
}

// Nor on how the slices of a page are cut.
TEST(Turn, BitsDoNotDependOnOtherQueriesOrTurns) {
  Random random(64);
  for (const Codec* codec : all_codecs()) {
    for (const Rope& rope : ropes()) {
      if (rope.offset == 0 && codec != all_codecs()[0]) continue;
      if (codec->takes != nullptr && !codec->takes({Side::key, 16, kDim})) continue;
      const Moved moved = make_moved(random, rope, false, codec->name);
      const std::vector<PageSlice> pieces = cut(random, moved.slices);
      const RopeTurner turner(rope, kDim);
      const Matrix q = random_matrix(random, 75, 4, kDim);
      std::vector<Query> queries;
      for (std::size_t i = 0; i < moved.tokens.size(); ++i) {
        queries.push_back(moved.history.causal(moved.tokens[i], static_cast<std::int64_t>(i)));
        queries.back().position = moved.now[i];
        if (i % 3 == 0) queries.back().first_position = moved.now[i] - 30;
      }
      for (const Isa isa : isas_found()) {
        SCOPED_TRACE(std::string(codec->name) + ' ' + name_of(isa));
        AttendTask task = make_task(moved.history, Rules{}, moved.slices, queries, q.view(), isa);
        task.math.rope = &turner;
        const States together = run_states(task);
        States alone(75, 4, moved.history.store.value_dim);
        States cut_finer = alone;
        for (const Query& query : queries) {
          const std::vector<Query> one{query};
          task.queries = one;
          task.slices = moved.slices;
          run_states(task, alone);
          task.slices = pieces;
          run_states(task, cut_finer);
        }
        EXPECT_TRUE(alone == together);
        EXPECT_TRUE(cut_finer == together);
      }
    }
  }
}

}  // namespace
}  // namespace quire::test
