// quire chat: a conversation with a model whose history lies in a Quire cache.
//
// Lines come from the terminal, with editing and history, or from a pipe. What the model says goes
// to stdout, everything else to stderr. A line that begins with "/" is a command:
//
//     /fork      go on in a second branch that shares the past; /branch N goes to another
//     /undo      forget the last turn
//     /stats     what the cache holds
#include <editline/readline.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "commands.h"
#include "draft_options.h"
#include "generation_options.h"
#include "model/chat_session.h"
#include "model_options.h"
#include "options.h"
#include "print.h"

namespace quire::tool {
namespace {

constexpr const char* kHelp =
    "/fork      go on in a new branch that shares the past of this one\n"
    "/branch N  go to branch N\n"
    "/undo      forget the last message and its answer\n"
    "/stats     what the cache holds, and how fast the last answer was\n"
    "/quit      end; so does the end of input\n";

struct Options {
  ModelChoice model;
  CacheChoice cache;
  DraftChoice draft;
  model::SamplerOptions sampler;
  model::ChatOptions chat;
  std::string system;
};

// Where lines come from.
class Input {
 public:
  Input() : is_terminal_(isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0) {
    if (is_terminal_) using_history();
  }
  bool is_terminal() const { return is_terminal_; }

  // Nothing at the end of input.
  std::optional<std::string> line(const std::string& prompt) {
    std::string text;
    if (!is_terminal_) {
      if (!std::getline(std::cin, text)) return std::nullopt;
      if (!text.empty() && text.back() == '\r') text.pop_back();
      return text;
    }
    const std::unique_ptr<char, decltype(&std::free)> read(readline(prompt.c_str()), std::free);
    if (!read) return std::nullopt;
    text = read.get();
    if (!text.empty()) add_history(read.get());
    return text;
  }

 private:
  bool is_terminal_;
};

const char* why(model::Stop stop) {
  switch (stop) {
    case model::Stop::ended:
      return "the model ended it";
    case model::Stop::length:
      return "cut off: as long as it may be";
    case model::Stop::memory:
      break;
  }
  return "cut off: the cache is full";
}

class Chat {
 public:
  explicit Chat(const Options& options)
      : options_(options),
        model_(options.model.load()),
        tokenizer_(model::Tokenizer::create(model_.vocabulary()).value()),
        template_(model::ChatTemplate::recognise(model_.vocabulary().chat_template).value()),
        cache_(options.cache.create(model_)),
        generator_(model_, tokenizer_, cache_, options.draft.draft()) {
    model::ChatOptions chat = options.chat;
    chat.context = options.cache.context_of(model_);
    branches_.push_back(model::ChatSession::begin(
                            {tokenizer_, template_, generator_}, cache_.open().value(),
                            model::Sampler::create(options.sampler).value(), chat, options.system)
                            .value());
  }

  void run() {
    Input input;
    fmt::print(stderr, "{}, cache {}. /help lists what else there is.\n", model_.config().name,
               options_.cache.codec);
    for (;;) {
      const std::string prompt = branches_.size() > 1 ? fmt::format("{}> ", branch_) : "> ";
      const std::optional<std::string> line = input.line(prompt);
      if (!line || *line == "/quit") break;
      if (line->find_first_not_of(" \t\r") == std::string::npos) continue;
      line->front() == '/' ? command(*line) : say(*line);
    }
    if (input.is_terminal()) fmt::print(stderr, "\n");
  }

 private:
  model::ChatSession& current() { return branches_[branch_]; }

  // A refused message or command is told; the conversation goes on.
  template <typename T>
  bool is_done(const Result<T>& result) {
    if (!result) fmt::print(stderr, "{}\n", result.error().text);
    return result.ok();
  }

  void say(const std::string& text) {
    try {
      check_utf8("the message", text);
    } catch (const std::runtime_error& error) {
      return fmt::print(stderr, "{}\n", error.what());
    }
    bool is_begun = false;
    auto reply = current().say(text, [&](std::string_view words) {
      is_begun = true;
      std::fwrite(words.data(), 1, words.size(), stdout);
      std::fflush(stdout);
    });
    if (reply || is_begun) fmt::print("\n");
    std::fflush(stdout);
    if (!is_done(reply)) return;
    if (reply->turns_forgotten > 0) {
      fmt::print(stderr, "forgotten to make room: {} of the oldest turns\n",
                 reply->turns_forgotten);
    }
    if (reply->generation.stop != model::Stop::ended) {
      fmt::print(stderr, "{}\n", why(reply->generation.stop));
    }
    last_ = std::move(*reply);
  }

  void command(const std::string& line) {
    const std::vector<std::string> words = split(line, ' ');
    const std::string& name = words.front();
    if (name == "/fork" && words.size() == 1) {
      auto forked = current().fork();
      if (!is_done(forked)) return;
      branches_.push_back(std::move(*forked));
      branch_ = branches_.size() - 1;
      fmt::print(stderr, "branch {}\n", branch_);
    } else if (name == "/branch" && words.size() == 2) {
      try {
        branch_ = static_cast<std::size_t>(parse_count(words[1], 0, std::ssize(branches_) - 1));
      } catch (const std::invalid_argument& error) {
        fmt::print(stderr, "/branch: {}\n", error.what());
      }
    } else if (name == "/undo" && words.size() == 1) {
      if (is_done(current().undo())) fmt::print(stderr, "turns left: {}\n", current().turns());
    } else if (name == "/stats" && words.size() == 1) {
      print_stats();
    } else {
      fmt::print(stderr, "{}{}", name == "/help" ? "" : line + ": not understood\n", kHelp);
    }
  }

  void print_stats() {
    Json rows = Json::array();
    for (std::size_t i = 0; i < branches_.size(); ++i) {
      const Sequence& sequence = branches_[i].sequence();
      rows.push_back({{"branch", fmt::format("{}{}", i, i == branch_ ? " *" : "")},
                      {"turns", branches_[i].turns()},
                      {"tokens", sequence.length().value()},
                      {"next", sequence.next_position().value()},
                      {"exact", sequence.is_exact().value() ? "yes" : "no"}});
    }
    print_table(rows, {{"branch", "branch"},
                       {"turns", "turns"},
                       {"tokens", "tokens held"},
                       {"next", "next position"},
                       {"exact", "exact"}});
    const Stats stats = cache_.stats();
    fmt::print(
        "\ncache: {} bytes in use, {} of codes and {} of rows; {:.2f} bits per value; {} pages, "
        "{} shared\n",
        grouped(static_cast<std::int64_t>(stats.bytes - stats.bytes_free)),
        grouped(static_cast<std::int64_t>(stats.bytes_sealed)),
        grouped(static_cast<std::int64_t>(stats.bytes_rows)), stats.bits_per_value,
        stats.pages_used, stats.pages_shared);
    if (last_) {
      const model::Generation& answer = last_->generation;
      fmt::print(
          "last answer: {} tokens after a prompt of {}, {:.2f} s to the first, {:.1f} per "
          "second, {}\n",
          answer.tokens.size(), last_->prompt_tokens, last_->prompt_seconds + answer.first_seconds,
          answer.seconds > 0 ? static_cast<double>(answer.tokens.size()) / answer.seconds : 0,
          why(answer.stop));
      if (answer.drafted > 0) {
        fmt::print("{} of {} guesses right\n", answer.accepted, answer.drafted);
      }
    }
    std::fflush(stdout);
  }

  const Options& options_;
  model::Model model_;
  model::Tokenizer tokenizer_;
  model::ChatTemplate template_;
  Cache cache_;
  model::Generator generator_;
  std::vector<model::ChatSession> branches_;
  std::size_t branch_ = 0;
  std::optional<model::Reply> last_;
};

}  // namespace

void add_chat(CLI::App& program) {
  CLI::App* chat = program.add_subcommand("chat", "Talk to a model; its history lies in a cache");
  auto options = std::make_shared<Options>();
  options->sampler = {.temperature = 0.7, .top_k = 40, .top_p = 0.9};
  options->model.add_to(*chat);
  options->cache.add_to(*chat);
  options->draft.add_to(*chat);
  add_sampler_options(*chat, options->sampler);
  chat->add_option("--system", options->system, "What the model is told first; default: its own")
      ->type_name("TEXT");
  chat->add_option("--max-tokens", options->chat.most_reply, "Tokens of an answer, at most")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  chat->callback([options] { Chat(*options).run(); });
}

}  // namespace quire::tool
