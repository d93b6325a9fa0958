#include "property/law.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace quire::test {
namespace {

// The numbers of one token of a story in one layer: the same whenever they are asked for.
void fill_row(std::uint64_t story, std::int64_t token, int layer, int what, float* row, int count) {
  Random random(story * 1000003 + static_cast<std::uint64_t>(token * 64 + layer * 8 + what));
  for (int i = 0; i < count; ++i) row[i] = random.real(-2.0f, 2.0f);
}

std::int64_t next_of(const Sequence& sequence) { return sequence.next_position().value(); }

}  // namespace

void Reference::meet(std::size_t layer, std::int64_t token, const float* output,
                     std::size_t count) {
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

Step run_told(Cache& cache, const std::vector<Told>& told, Reference& reference) {
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
    const std::vector<float> q = tensor(2, layer.query_heads, layer.key_dim);
    const std::size_t row = size_of(layer.query_heads * layer.value_dim);
    std::vector<float> out(told.size() * row);
    EXPECT_TRUE(
        step.attend(index, view(q, layer.query_heads, layer.key_dim),
                    OutputView::dense(out.data(), tokens, layer.query_heads, layer.value_dim))
            .ok());
    for (std::size_t t = 0; t < told.size(); ++t) {
      if (told[t].story == 1) reference.meet(l, told[t].token, out.data() + t * row, row);
    }
  }
  return step;
}

std::vector<Told> tell(const Sequence& sequence, std::int64_t first, std::int64_t count,
                       std::uint64_t story) {
  std::vector<Told> told;
  for (std::int64_t i = first; i < first + count; ++i) {
    told.push_back({sequence.id(), i, story, i});
  }
  return told;
}

void feed_in_steps(const LawCase& c, std::int64_t at_once, Reference& reference, Random& random) {
  Cache cache = Cache::create(c.spec).value();
  const Sequence sequence = cache.open().value();
  for (std::int64_t fed = 0; fed < c.tokens;) {
    std::int64_t wanted = at_once > 0 ? at_once : random.integer(1, 2 * c.spec.page_tokens);
    if (fed == 0 && c.at_first > 0) wanted = c.at_first;
    std::vector<Told> told = tell(sequence, fed, std::min(wanted, c.tokens - fed));
    for (Told& token : told) {
      if (c.gaps) token.position += token.token / 5 * 3;
    }
    Step step = run_told(cache, told, reference);
    ASSERT_TRUE(step.commit().ok());
    fed += static_cast<std::int64_t>(told.size());
  }
  EXPECT_TRUE(sequence.is_exact().value());
}

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
    Step step = run_told(cache, told, reference);
    ASSERT_TRUE(step.commit().ok());
  }
}

void feed_in_crowd(const LawCase& c, Reference& reference, Random& random) {
  constexpr std::size_t kCrowd = 64;
  constexpr std::size_t kLong = 4;
  Cache cache = Cache::create(c.spec).value();
  std::vector<Sequence> sequences;
  for (std::size_t i = 0; i < kCrowd; ++i) sequences.push_back(cache.open().value());
  // Threads help with the last of a batch, where no others are left to begin.
  const std::size_t own = c.at_first > 0 ? kCrowd - 1 - random.index(kLong) : random.index(kCrowd);
  const auto feed = [&](std::size_t first, const auto& count_of) {
    std::vector<Told> told;
    for (std::size_t i = first; i < kCrowd; ++i) {
      const std::vector<Told> part =
          tell(sequences[i], next_of(sequences[i]), count_of(i), i == own ? 1 : 7 + i);
      told.insert(told.end(), part.begin(), part.end());
    }
    Step step = run_told(cache, told, reference);
    ASSERT_TRUE(step.commit().ok());
  };
  if (c.at_first > 0) {
    feed(kCrowd - kLong, [&](std::size_t i) {
      return i == own ? c.at_first : random.integer(c.at_first / 2, c.at_first);
    });
  }
  while (next_of(sequences[own]) < c.tokens && !testing::Test::HasFatalFailure()) {
    const std::int64_t left = c.tokens - next_of(sequences[own]);
    feed(0, [&](std::size_t i) {
      return i == own ? std::min(left, random.integer(1, 9)) : random.integer(1, 2);
    });
  }
}

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
        Step step = run_told(cache, tell(sequence, next, count), reference);
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
          Step step = run_told(cache, tell(sequence, next + done, count, 5), reference);
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
        Step step = run_told(cache, told, reference);
        ASSERT_TRUE(step.commit({right}).ok());
        since_cut += right;
        break;
      }
      case 4: {  // a step that is dropped
        Step step = run_told(cache, tell(sequence, next, random.integer(1, 9), 5), reference);
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
            Step step = run_told(cache, tell(child, next_of(child), 2, 5), other);
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

}  // namespace quire::test
