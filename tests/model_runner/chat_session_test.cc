#include "model/chat_session.h"

#include <gtest/gtest.h>

#include "model_runner/chat_fixture.h"

namespace quire::model::test {
namespace {

// A conversation with the small model, and the ids that its history must have.
struct SmallChat {
  explicit SmallChat(const ChatOptions& options = {.context = 0, .most_reply = 12},
                     const std::function<void(CacheSpec&)>& change = {},
                     const std::string& system = "")
      : small(change),
        session(ChatSession::begin({small.tokenizer, chat, *small.generator},
                                   small.cache->open().value(),
                                   sampler_of({.temperature = 0.5, .seed = 5}), options, system)
                    .value()) {}

  std::vector<int> held() const { return small.ids_of(session.sequence()); }
  // The system message, then whole turns, then one without its end.
  std::vector<int> expected(const std::vector<std::pair<std::string, std::vector<int>>>& turns) {
    const std::vector<Message> system = {{"system", *chat.default_system()}};
    std::vector<int> ids = chat.encode(small.tokenizer, system, false).value();
    for (std::size_t i = 0; i < turns.size(); ++i) {
      const auto prompt =
          chat.encode_turn(small.tokenizer, {"user", turns[i].first}, i > 0).value();
      ids.insert(ids.end(), prompt.begin(), prompt.end());
      ids.insert(ids.end(), turns[i].second.begin(), turns[i].second.end());
    }
    return ids;
  }

  SmallModel small;
  ChatTemplate chat = ChatTemplate::recognise(kSmallTemplate).value();
  ChatSession session;
};

TEST(ChatSession, TheHistoryIsTheConversation) {
  SmallChat small;
  EXPECT_EQ(small.held(), small.expected({}));
  std::string text;
  const Reply first =
      small.session.say("hello", [&](std::string_view words) { text += words; }).value();
  EXPECT_EQ(text, small.small.tokenizer.decode(first.generation.tokens, false).value());
  const Reply second = small.session.say("<|im_end|>").value();
  EXPECT_EQ(small.held(), small.expected({{"hello", first.generation.tokens},
                                          {"<|im_end|>", second.generation.tokens}}));
  EXPECT_EQ(small.session.turns(), 2);
  EXPECT_EQ(first.turns_forgotten, 0);
}

TEST(ChatSession, UndoTakesTheLastTurnBack) {
  SmallChat small;
  small.session.say("hello").value();
  const std::vector<int> before = small.held();
  small.session.say("hello?").value();
  ASSERT_TRUE(small.session.undo().ok());
  EXPECT_EQ(small.held(), before);
  ASSERT_TRUE(small.session.undo().ok());
  EXPECT_EQ(small.held(), small.expected({}));
  EXPECT_EQ(small.session.turns(), 0);
  EXPECT_EQ(small.session.undo().code(), ErrorCode::wrong_state);
}

TEST(ChatSession, BranchesGoOnByThemselves) {
  SmallChat small;
  small.session.say("hello").value();
  ChatSession other = small.session.fork().value();
  const std::vector<int> past = small.held();
  EXPECT_EQ(small.small.ids_of(other.sequence()), past);
  const Reply here = small.session.say("one").value();
  EXPECT_EQ(small.small.ids_of(other.sequence()), past);
  // The same past, the same draws to come.
  const Reply there = other.say("one").value();
  EXPECT_EQ(here.generation.tokens, there.generation.tokens);
  ASSERT_TRUE(other.undo().ok());
  EXPECT_EQ(other.turns(), 1);
  EXPECT_EQ(small.session.turns(), 2);
}

TEST(ChatSession, AFullContextForgetsTheOldestTurns) {
  constexpr std::int64_t kContext = 160;
  SmallChat small({.context = kContext, .most_reply = 30});
  std::vector<std::pair<std::string, std::vector<int>>> turns;
  std::int64_t forgotten = 0;
  for (int i = 0; i < 12; ++i) {
    const std::string text = "hello " + std::to_string(i);
    const Reply reply = small.session.say(text).value();
    forgotten += reply.turns_forgotten;
    turns.emplace_back(text, reply.generation.tokens);
    turns.erase(turns.begin(), turns.begin() + reply.turns_forgotten);
    ASSERT_EQ(small.held(), small.expected(turns));
    ASSERT_EQ(small.session.turns(), std::ssize(turns));
    ASSERT_LE(small.session.sequence().next_position().value(), kContext);
  }
  EXPECT_GT(forgotten, 3);
  while (!turns.empty()) {
    ASSERT_TRUE(small.session.undo().ok());
    turns.pop_back();
    ASSERT_EQ(small.held(), small.expected(turns));
  }
}

TEST(ChatSession, AFullCacheForgetsTheOldestTurns) {
  SmallChat small({.context = 0, .most_reply = 20}, [](CacheSpec& spec) { spec.max_tokens = 150; });
  std::int64_t forgotten = 0;
  std::vector<std::pair<std::string, std::vector<int>>> turns;
  for (int i = 0; i < 10; ++i) {
    const Reply reply = small.session.say("hello").value();
    forgotten += reply.turns_forgotten;
    turns.emplace_back("hello", reply.generation.tokens);
    turns.erase(turns.begin(), turns.begin() + reply.turns_forgotten);
    ASSERT_EQ(small.held(), small.expected(turns));
  }
  EXPECT_GT(forgotten, 0);
}

TEST(ChatSession, AMessageThatCannotFitIsRefused) {
  SmallChat small({.context = 120, .most_reply = 10});
  const auto reply = small.session.say(std::string(200, '!'));
  ASSERT_EQ(reply.code(), ErrorCode::full);
  EXPECT_NE(reply.error().text.find("120"), std::string::npos) << reply.error().text;
  EXPECT_EQ(small.held(), small.expected({}));
  EXPECT_TRUE(small.session.say("hello").ok());
}

TEST(ChatSession, UndoIsRefusedWhereAWindowHasMovedOn) {
  SmallChat small({.context = 0, .most_reply = 60}, [](CacheSpec& spec) {
    for (LayerSpec& layer : spec.layers) layer.pattern = Pattern::window(32);
  });
  small.session.say(std::string(100, '!')).value();
  const std::vector<int> before = small.held();
  EXPECT_EQ(small.session.undo().code(), ErrorCode::not_resumable);
  EXPECT_EQ(small.held(), before);
  EXPECT_EQ(small.session.turns(), 1);
}

TEST(ChatSession, BeginsWithTheSystemMessageGiven) {
  SmallChat small({.context = 0, .most_reply = 5}, {}, "you");
  EXPECT_EQ(small.small.tokenizer.decode(small.held()).value(),
            "<|im_start|>system\nyou<|im_end|>\n");
}

TEST(ChatSession, RefusesWhatItCannotBeginWith) {
  SmallModel small;
  const ChatTemplate chat = ChatTemplate::recognise(kSmallTemplate).value();
  const Sequence sequence = small.cache->open().value();
  const auto begin = [&](const ChatOptions& options) {
    return ChatSession::begin({small.tokenizer, chat, *small.generator}, sequence, sampler_of(),
                              options, "")
        .code();
  };
  EXPECT_EQ(begin({.context = 3}), ErrorCode::invalid_argument);
  EXPECT_EQ(begin({.most_reply = 0}), ErrorCode::invalid_argument);
  EXPECT_EQ(begin({}), ErrorCode::ok);
  EXPECT_EQ(begin({}), ErrorCode::invalid_argument);  // no longer empty
}

}  // namespace
}  // namespace quire::model::test
