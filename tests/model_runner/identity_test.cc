// Greedy text does not depend on how its history came about: forks, undone tokens and tokens that
// were cut and appended again give what a plain run gives, token by token.
//
// For f16 that holds for any cut, for codecs that lose something within the last `rollback` tokens.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/slow_build.h"
#include "model/generator.h"
#include "model_runner/chat_fixture.h"

namespace quire::model::test {
namespace {

using Ids = std::vector<int>;

struct Case {
  std::string codec;
  std::int64_t furthest;  // tokens that a cut may go back
};

// A model with a cache whose pages end often, and what it writes without any cut.
class Runs {
 public:
  Runs(const Model& model, const Tokenizer& tokenizer, const Case& what, int page_tokens,
       Ids prompt, std::int64_t count)
      : cache_(Cache::create(spec(model, what, page_tokens)).value()),
        generator_(model, tokenizer, cache_),
        prompt_(std::move(prompt)) {
    const Sequence sequence = begun();
    plain_ = written(sequence, count);
    sequence.close().value();
  }

  const Ids& prompt() const { return prompt_; }
  const Ids& plain() const { return plain_; }
  Ids plain(std::int64_t begin, std::int64_t end) const {
    return {plain_.begin() + begin, plain_.begin() + end};
  }
  std::int64_t count() const { return std::ssize(plain_); }

  // A new sequence with the prompt.
  Sequence begun() {
    const Sequence sequence = cache_.open().value();
    feed(sequence, prompt_);
    return sequence;
  }
  void feed(const Sequence& sequence, const Ids& ids) { generator_.feed(sequence, ids).value(); }
  // The next tokens. Requires: the sequence was fed last.
  Ids written(const Sequence& sequence, std::int64_t most) {
    Sampler sampler = sampler_of();
    return generator_.generate(sequence, sampler, most).value().tokens;
  }
  // Cuts the last `back` tokens, of which the last is appended again so that the rest can follow.
  void undo(const Sequence& sequence, const Ids& history, std::int64_t back) {
    const std::int64_t end = sequence.next_position().value() - back;
    EXPECT_EQ(sequence.can_resume(end).value(), Resume::exact);
    sequence.truncate(end).value();
    feed(sequence, {history[static_cast<std::size_t>(end)]});
  }
  // Prompt and plain text in one.
  Ids history() const {
    Ids all = prompt_;
    all.insert(all.end(), plain_.begin(), plain_.end());
    return all;
  }

 private:
  static CacheSpec spec(const Model& model, const Case& what, int page_tokens) {
    CacheSpec made = model.cache_spec();
    made.page_tokens = page_tokens;
    made.set_codec(what.codec).value();
    return made;
  }

  Cache cache_;
  Generator generator_;
  Ids prompt_;
  Ids plain_;
};

// Forks at each of `points` tokens of the text; parent and child go on from there in turns.
void check_forks(Runs& runs, const std::vector<std::int64_t>& points) {
  for (const std::int64_t point : points) {
    SCOPED_TRACE(fmt::format("fork after {} tokens", point));
    const Sequence parent = runs.begun();
    EXPECT_EQ(runs.written(parent, point), runs.plain(0, point));
    const Sequence child = parent.fork().value();
    // The parent goes another way first, into the page that both have open.
    runs.feed(parent, {1, 2, 3});
    runs.written(parent, 20);
    runs.feed(child, runs.plain(point, point + 1));
    EXPECT_EQ(runs.written(child, runs.count() - point - 1), runs.plain(point + 1, runs.count()));
    EXPECT_TRUE(child.is_exact().value());
    parent.close().value();
    child.close().value();
  }
}

// Undoes up to `furthest` tokens every now and then, after having written them, right or wrong.
void check_undone(Runs& runs, std::int64_t furthest, std::int64_t stride) {
  const Ids history = runs.history();
  const Sequence sequence = runs.begun();
  Ids text;
  std::int64_t back = 1;
  while (std::ssize(text) < runs.count()) {
    const std::int64_t most = std::min(stride, runs.count() - std::ssize(text));
    const Ids more = runs.written(sequence, most);
    ASSERT_EQ(std::ssize(more), most);
    text.insert(text.end(), more.begin(), more.end());
    back = std::min(back % furthest + 1, std::ssize(text));
    const std::int64_t kept = std::ssize(text) - back;
    // As rejected guesses would be: other tokens, in place of the last of them.
    sequence.truncate(sequence.next_position().value() - 1).value();
    runs.feed(sequence, {3});
    runs.undo(sequence, history, back);
    text.resize(static_cast<std::size_t>(kept + 1));
    // And on to where it was.
    const Ids again = runs.written(sequence, back - 1);
    text.insert(text.end(), again.begin(), again.end());
  }
  EXPECT_EQ(text, runs.plain());
  EXPECT_TRUE(sequence.is_exact().value());
  sequence.close().value();
}

// Cuts `back` tokens off the whole text, appends them again in one piece, and goes on.
void check_appended_again(Runs& runs, std::int64_t back, std::int64_t rest) {
  SCOPED_TRACE(fmt::format("{} tokens appended again", back));
  const Sequence sequence = runs.begun();
  const std::int64_t end = runs.count() - rest;
  EXPECT_EQ(runs.written(sequence, end), runs.plain(0, end));
  const std::int64_t cut = sequence.next_position().value() - back;
  EXPECT_EQ(sequence.can_resume(cut).value(), Resume::exact);
  sequence.truncate(cut).value();
  const Ids history = runs.history();
  runs.feed(sequence, {history.begin() + cut, history.begin() + cut + back});
  EXPECT_EQ(runs.written(sequence, rest), runs.plain(end, runs.count()));
  EXPECT_TRUE(sequence.is_exact().value());
  sequence.close().value();
}

TEST(Identity, OfTheTinyModel) {
  const SmallModel small;
  Ids prompt;
  for (int i = 0; i < 50; ++i) prompt.push_back(i * 37 % 256);
  for (const Case& what : {Case{"f16", 120}, Case{"int8", 8}, Case{"balanced", 8}}) {
    SCOPED_TRACE(what.codec);
    Runs runs(small.model, small.tokenizer, what, 16, prompt, 150);
    ASSERT_EQ(runs.count(), 150);
    check_forks(runs, {1, 13, 14, 15, 100});
    check_undone(runs, what.furthest, 5);
    check_undone(runs, what.furthest, 16);
    for (const std::int64_t back : {std::int64_t{1}, std::int64_t{5}, what.furthest}) {
      for (const std::int64_t rest : {10, 11, 15, 20}) check_appended_again(runs, back, rest);
    }
  }
}

TEST(Identity, OfTheDefaultModel) {
  const auto path = default_model();
  if (!path) GTEST_SKIP() << kNoModel;
  if (quire::test::kSlowBuild) GTEST_SKIP() << "takes minutes in this build";
  const Model model = Model::load(*path, {.weights = WeightForm::packed}).value();
  const Tokenizer tokenizer = Tokenizer::create(model.vocabulary()).value();
  const Ids prompt = tokenizer.encode("Once upon a time there was a small village").value();
  for (const Case& what : {Case{"f16", 30}, Case{"int8", 8}, Case{"balanced", 8}}) {
    SCOPED_TRACE(what.codec);
    Runs runs(model, tokenizer, what, 16, prompt, 40);
    ASSERT_EQ(runs.count(), 40);
    check_forks(runs, {7});
    check_undone(runs, what.furthest, 13);
    check_appended_again(runs, what.furthest, 4);
  }
}

}  // namespace
}  // namespace quire::model::test
