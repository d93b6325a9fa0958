// Many threads on one cache. Run under ThreadSanitizer, these tests show that steps, reads and
// edits of different sequences need no care from the caller.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "cache/fixture.h"

namespace quire::test {
namespace {

constexpr int kThreads = 4;

void on_threads(int count, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
}

CacheSpec shared_spec(const std::string& codec, int threads) {
  CacheSpec spec = pattern_spec({Pattern::causal(), Pattern::window(6)}, codec);
  for (LayerSpec& layer : spec.layers) layer.rotation = Rotation::none();
  spec.threads = threads;
  return spec;
}

// What an owner does with its sequence, and all that it got from it.
std::vector<float> work(Cache& cache, int tag, int rounds) {
  const Sequence sequence = cache.open().value();
  std::vector<float> outputs;
  std::int64_t end = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t count = 1 + (round * 7 + tag) % 9;
    const Batch batch = batch_of(sequence, end, count);
    Step step = cache.begin(batch).value();
    for (int layer = 0; layer < 2; ++layer) {
      put(step, cache.spec(), layer, batch, tag).value();
      const Rows out = attend(step, cache.spec(), layer, known_queries(count, 4, 4, tag));
      outputs.insert(outputs.end(), out.data.begin(), out.data.end());
    }
    if (round % 5 == 3) {
      step.drop();
      continue;
    }
    const std::int64_t taken = round % 3 == 0 ? count : (count + 1) / 2;
    step.commit({taken}).value();
    end += taken;
    if (round % 4 == 1) {
      const Sequence fork = sequence.fork().value();
      append(cache, fork, end, 5, tag + 50);
      fork.close().value();
    }
    if (round % 6 == 5) {
      sequence.truncate(end - 1).value();
      --end;
    }
  }
  const std::vector<float> keys = read_all(sequence, 0, Side::key);
  outputs.insert(outputs.end(), keys.begin(), keys.end());
  sequence.close().value();
  return outputs;
}

TEST(Threads, OwnersOfDifferentSequencesWorkAtOnceAndGetWhatTheyWouldGetAlone) {
  for (const int executor_threads : {1, 3}) {
    const CacheSpec spec = shared_spec("int8", executor_threads);
    Cache cache = Cache::create(spec).value();
    std::vector<std::vector<float>> found(kThreads);
    on_threads(kThreads, [&](int i) { found[index_of(i)] = work(cache, i, 60); });
    for (int i = 0; i < kThreads; ++i) {
      Cache alone = Cache::create(spec).value();
      EXPECT_EQ(found[index_of(i)], work(alone, i, 60)) << "thread " << i;
    }
    EXPECT_EQ(cache.stats().pages_used, 0);
  }
}

// Reads everything that can be read of a sequence that nobody changes.
void read_everything(const Cache& cache, const Sequence& sequence, std::int64_t length, int tag) {
  EXPECT_EQ(sequence.length().value(), length);
  EXPECT_TRUE(holds(cache, sequence, 0, range(0, length), tag));
  const Gathered size = sequence.gather_size(0, {}).value();
  std::vector<float> keys(index_of(size.key_elements));
  std::vector<float> values(index_of(size.value_elements));
  sequence.gather(0, {}, keys.data(), size.key_elements, values.data(), size.value_elements)
      .value();
  EXPECT_EQ(keys, known_rows(cache.spec().layers[0], 0, Side::key, range(0, length), tag).data);
  std::int64_t seen = 0;
  sequence.for_each(1, Side::value, [&](std::int64_t, const float*) { ++seen; }).value();
  EXPECT_GT(seen, 0);
  EXPECT_FALSE(sequence.runs(0).value().empty());
  EXPECT_NE(sequence.can_resume(length).value(), Resume::no);
  EXPECT_EQ(static_cast<std::int64_t>(sequence.tokens().value().size()), length);
}

TEST(Threads, ForksAreReadWhileTheirParentsGoOn) {
  Cache cache = Cache::create(shared_spec("f32", 2)).value();
  struct Published {
    Sequence fork;
    std::int64_t length;
    int tag;
  };
  std::mutex mutex;
  std::vector<Published> published;
  std::atomic<int> owners_left = 2;
  on_threads(kThreads, [&](int i) {
    if (i < 2) {
      const Sequence sequence = cache.open().value();
      for (std::int64_t end = 0; end < 60;) {
        const std::int64_t count = 1 + end % 5;
        append(cache, sequence, end, count, i);
        end += count;
        const Sequence fork = sequence.fork().value();
        const std::lock_guard lock(mutex);
        published.push_back({fork, end, i});
      }
      --owners_left;
      return;
    }
    for (std::size_t next = 0; owners_left > 0; ++next) {
      Published one;
      {
        const std::lock_guard lock(mutex);
        if (published.empty()) continue;
        one = published[next % published.size()];
      }
      read_everything(cache, one.fork, one.length, one.tag);
      const Stats stats = cache.stats();
      EXPECT_EQ(stats.bytes,
                stats.bytes_sealed + stats.bytes_rows + stats.bytes_tables + stats.bytes_free);
      EXPECT_FALSE(cache.json().empty());
      EXPECT_FALSE(cache.text().empty());
    }
  });
}

TEST(Threads, ASequenceIsReadWhileItsOwnerAppends) {
  Cache cache = Cache::create(shared_spec("f32", 1)).value();
  const Sequence sequence = filled(cache, 1);
  std::atomic<bool> done = false;
  on_threads(3, [&](int i) {
    if (i == 0) {
      append_singly(cache, sequence, 1, 150);
      sequence.truncate(145).value();
      append(cache, sequence, 145, 20);
      done = true;
      return;
    }
    while (!done) {
      // Whatever state is read, it is one that was committed.
      std::vector<float> keys(200 * 8);
      const std::int64_t tokens =
          sequence.read(0, Side::key, {}, keys.data(), static_cast<std::int64_t>(keys.size()))
              .value();
      keys.resize(index_of(tokens * 8));
      EXPECT_EQ(keys, known_rows(cache.spec().layers[0], 0, Side::key, range(0, tokens)).data);
      EXPECT_GE(sequence.next_position().value(), 1);
    }
  });
  EXPECT_TRUE(holds(cache, sequence, 0, range(0, 165)));
}

// Edits of a fork while its parent's step fills the page that both show.
TEST(Threads, ForksAreEditedWhileTheirParentsStepIsOpen) {
  Cache cache = Cache::create(shared_spec("int8", 1)).value();
  const Sequence parent = filled(cache, 2);
  const Rows row(1, 2, 4);
  for (std::int64_t end = 2; end < 120; end += 3) {
    const Batch batch = batch_of(parent, end, 3);
    Step step = cache.begin(batch).value();
    const Sequence fork = parent.fork().value();
    on_threads(2, [&](int i) {
      if (i == 0) {
        put_all(step, cache.spec(), batch);
        attend(step, cache.spec(), 0, known_queries(3, 2, 4));
        step.commit().value();
        return;
      }
      fork.overwrite(0, end - 1, row.view(), row.view()).value();
      fork.remove(end - 2, end - 1).value();
      append(cache, fork, end - 1, 2, 1);
      EXPECT_EQ(fork.length().value(), end + 1);
      fork.close().value();
    });
  }
  EXPECT_EQ(parent.length().value(), 122);
}

TEST(Threads, ClonesAreMadeAndClosedWhileTheCacheWorks) {
  Cache cache = Cache::create(shared_spec("f32", 1)).value();
  const Sequence sequence = filled(cache, 5);
  std::atomic<bool> done = false;
  on_threads(3, [&](int i) {
    if (i == 0) {
      append_singly(cache, sequence, 5, 80);
      done = true;
      return;
    }
    while (!done) {
      Cache clone = cache.clone().value();
      const Sequence copy = clone.find(sequence.id()).value();
      const std::int64_t length = copy.length().value();
      EXPECT_TRUE(holds(clone, copy, 0, range(0, length)));
      append(clone, copy, length, 3);
      Step step = stepped(clone, batch_of(copy, length + 3, 2));
      if (i == 1) {
        clone.close();
        EXPECT_FALSE(step.is_open());
      }
    }
  });
  EXPECT_TRUE(holds(cache, sequence, 0, range(0, 85)));
  EXPECT_EQ(cache.stats().pages_shared, 0);
}

TEST(Threads, ClosingACacheInTheMiddleOfStepsIsAnErrorForThem) {
  for (int round = 0; round < 25; ++round) {
    Cache cache = Cache::create(shared_spec("int8", 1)).value();
    std::vector<Sequence> sequences;
    for (int i = 0; i < 3; ++i) sequences.push_back(filled(cache, 2));
    std::atomic<int> committed = 0;
    on_threads(4, [&](int i) {
      if (i == 3) {
        while (committed < 3 + round) std::this_thread::yield();
        cache.close();
        return;
      }
      for (std::int64_t end = 2;; ++end) {
        const Batch batch = batch_of(sequences[index_of(i)], end, 1);
        Result<Step> step = cache.begin(batch);
        if (!step.ok()) {
          EXPECT_EQ(step.code(), ErrorCode::unknown_sequence) << step.error().text;
          return;
        }
        for (int layer = 0; layer < 2; ++layer) {
          const Result<void> result = put(*step, cache.spec(), layer, batch);
          if (!result.ok()) {
            EXPECT_EQ(result.code(), ErrorCode::wrong_state) << result.error().text;
          }
        }
        const Result<std::vector<Committed>> result = step->commit();
        if (!result.ok()) {
          EXPECT_EQ(result.code(), ErrorCode::wrong_state) << result.error().text;
        }
        ++committed;
      }
    });
    EXPECT_EQ(cache.stats().pages_used, 0);
    EXPECT_EQ(cache.stats().open_steps, 0);
  }
}

TEST(Threads, HousekeepingRunsBesideSteps) {
  Cache cache = Cache::create(shared_spec("int8", 2)).value();
  std::atomic<int> owners_left = 2;
  on_threads(4, [&](int i) {
    if (i < 2) {
      work(cache, i, 80);
      --owners_left;
      return;
    }
    while (owners_left > 0) {
      if (i == 2) {
        cache.shrink();
        cache.compact().value();
        cache.enforce_memory_limit(1 << 24).value();
      } else {
        cache.reserve({.sequences = 1, .tokens = 16}).value();
        const Sequence mine = filled(cache, 9);
        cache.plan(batch_of(mine, 9, 3)).value();
        cache.copy_prefix(mine.id(), mine.id(), 4).value();
        mine.keep_last(2).value();
        mine.close().value();
      }
    }
  });
  EXPECT_EQ(cache.stats().pages_used, 0);
}

}  // namespace
}  // namespace quire::test
