// quire generate: a model goes on with a text; its keys and values lie in a Quire cache.
//
// The text goes to stdout as it comes, one line about the run to stderr; with --json both are one
// object on stdout. Tokens per second count those after the first, whose time is the prompt's.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "commands.h"
#include "generation_options.h"
#include "model/chat.h"
#include "model/generator.h"
#include "model/tokenizer.h"
#include "model_options.h"
#include "print.h"

namespace quire::tool {
namespace {

struct Options {
  ModelChoice model;
  CacheChoice cache;
  model::SamplerOptions sampler;
  std::string prompt;
  std::int64_t most = 128;
  bool is_chat = false;
  bool json = false;
};

const char* name_of(model::Stop stop) {
  switch (stop) {
    case model::Stop::ended:
      return "end";
    case model::Stop::length:
      return "length";
    case model::Stop::memory:
      break;
  }
  return "memory";
}

std::vector<int> encode(const Options& options, const model::Model& model,
                        const model::Tokenizer& tokenizer) {
  const std::string prompt =
      options.prompt != "-"
          ? options.prompt
          : std::string{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  if (!options.is_chat) return tokenizer.encode(prompt, {.bos = true}).value();
  const auto form = model::ChatTemplate::recognise(model.vocabulary().chat_template).value();
  const model::Message message{"user", prompt};
  return form.encode(tokenizer, {&message, 1}, true).value();
}

// The prompt, the answer and what they cost. `on_text` gets the answer as it comes.
Json run(const Options& options, const model::TextFunction& on_text) {
  const model::Model model = options.model.load();
  const auto tokenizer = model::Tokenizer::create(model.vocabulary()).value();
  const std::vector<int> prompt = encode(options, model, tokenizer);
  if (prompt.empty()) throw std::runtime_error("generate: the prompt has no tokens");
  const std::int64_t context = options.cache.context_of(model);
  if (context > 0 && std::ssize(prompt) >= context) {
    throw std::runtime_error(fmt::format("generate: a prompt of {} tokens leaves no room in {}",
                                         prompt.size(), context));
  }
  const std::int64_t most =
      context > 0 ? std::min(options.most, context - std::ssize(prompt)) : options.most;

  Cache cache = options.cache.create(model);
  model::Generator generator(model, tokenizer, cache);
  auto sampler = model::Sampler::create(options.sampler).value();
  const Sequence sequence = cache.open().value();
  const auto start = std::chrono::steady_clock::now();
  generator.feed(sequence, prompt).value();
  const std::chrono::duration<double> fed = std::chrono::steady_clock::now() - start;
  std::string text;
  const model::Generation made = generator
                                     .generate(sequence, sampler, most,
                                               [&](std::string_view part) {
                                                 text += part;
                                                 on_text(part);
                                               })
                                     .value();
  const Stats stats = cache.stats();
  const double later_seconds = made.seconds - made.first_seconds;
  Json speed;
  if (made.tokens.size() > 1) {
    speed = static_cast<double>(made.tokens.size() - 1) / later_seconds;
  }
  return {{"text", text},
          {"stop", name_of(made.stop)},
          {"prompt_tokens", prompt.size()},
          {"tokens", made.tokens.size()},
          {"first_token_seconds", fed.count() + made.first_seconds},
          {"tokens_per_second", speed},
          {"codec", options.cache.codec},
          {"cache_bytes", stats.bytes - stats.bytes_free},
          {"bits_per_value", stats.bits_per_value}};
}

void print_summary(const Json& result) {
  const Json& speed = result["tokens_per_second"];
  fmt::print(stderr,
             "\n{} tokens after a prompt of {} ({}); first after {:.2f} s, then {} per second; "
             "cache {}: {} bytes, {:.2f} bits per value\n",
             result["tokens"].get<std::int64_t>(), result["prompt_tokens"].get<std::int64_t>(),
             result["stop"].get<std::string>(), result["first_token_seconds"].get<double>(),
             speed.is_null() ? "-" : fmt::format("{:.1f}", speed.get<double>()),
             result["codec"].get<std::string>(), grouped(result["cache_bytes"].get<std::int64_t>()),
             result["bits_per_value"].get<double>());
}

void run_and_print(const Options& options) {
  if (options.json) {
    print_json(run(options, [](std::string_view) {}));
    return;
  }
  const Json result = run(options, [](std::string_view part) {
    std::fwrite(part.data(), 1, part.size(), stdout);
    std::fflush(stdout);
  });
  fmt::print("\n");
  std::fflush(stdout);
  print_summary(result);
}

}  // namespace

void add_generate(CLI::App& program) {
  CLI::App* generate =
      program.add_subcommand("generate", "Let a model go on with a text, out of a cache");
  auto options = std::make_shared<Options>();
  generate->add_option("prompt", options->prompt, "The text to go on with; - reads it from stdin")
      ->required();
  options->model.add_to(*generate);
  options->cache.add_to(*generate);
  add_sampler_options(*generate, options->sampler);
  generate->add_option("--max-tokens", options->most, "Tokens to write, at most")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  generate->add_flag("--chat", options->is_chat, "The text is a message to be answered");
  generate->add_flag("--json", options->json, "Print one JSON object when all is written");
  generate->callback([options] { run_and_print(*options); });
}

}  // namespace quire::tool
