// quire generate: a model goes on with a text; its keys and values lie in a Quire cache.
//
// The text goes to stdout as it comes, one line about the run to stderr; with --json both are one
// object on stdout. Tokens per second count those after the first, whose time is the prompt's.
//
// --memory-report adds what the process has in memory. The cache's part is measured by emptying the
// cache at the end.
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
#include "draft_options.h"
#include "generation_options.h"
#include "model/chat.h"
#include "model/generator.h"
#include "model/resident.h"
#include "model/tokenizer.h"
#include "model_options.h"
#include "print.h"

namespace quire::tool {
namespace {

struct Options {
  ModelChoice model;
  CacheChoice cache;
  DraftChoice draft;
  model::SamplerOptions sampler;
  std::string prompt;
  std::int64_t most = 128;
  bool is_chat = false;
  bool memory_report = false;
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
  std::string prompt = options.prompt;
  if (prompt == "-") {
    prompt.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
    if (std::ferror(stdin) != 0) throw std::runtime_error("generate: stdin cannot be read");
  }
  check_utf8("generate: the prompt", prompt);
  if (!options.is_chat) return tokenizer.encode(prompt, {.bos = true}).value();
  const auto form = model::ChatTemplate::recognise(model.vocabulary().chat_template).value();
  const model::Message message{"user", prompt};
  return form.encode(tokenizer, {&message, 1}, true).value();
}

// What the process has in memory beside the cache, at most, and of the cache. Empties the cache.
Json memory_report(Cache& cache) {
  const model::CacheMemory memory = model::empty_and_measure(cache).value();
  const model::Resident rest = model::resident_memory().value();
  return {{"peak_bytes", rest.peak_bytes},
          {"without_cache_bytes", rest.anonymous_bytes + rest.file_bytes},
          {"cache_stats_bytes", memory.stats_bytes},
          {"cache_resident_bytes", memory.resident_bytes}};
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
  model::Generator generator(model, tokenizer, cache, options.draft.draft());
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
  Json result = {{"text", text},
                 {"stop", name_of(made.stop)},
                 {"prompt_tokens", prompt.size()},
                 {"tokens", made.tokens.size()},
                 {"drafted", made.drafted},
                 {"accepted", made.accepted},
                 {"first_token_seconds", fed.count() + made.first_seconds},
                 {"tokens_per_second", speed},
                 {"codec", options.cache.codec},
                 {"cache_bytes", stats.bytes - stats.bytes_free},
                 {"bits_per_value", stats.bits_per_value}};
  if (options.memory_report) result["memory"] = memory_report(cache);
  return result;
}

void print_memory(const Json& memory) {
  const auto bytes = [&](const char* name) { return grouped(memory[name].get<std::int64_t>()); };
  fmt::print(stderr,
             "memory: {} bytes at most; the cache {} by its stats, {} as measured; without it {}\n",
             bytes("peak_bytes"), bytes("cache_stats_bytes"), bytes("cache_resident_bytes"),
             bytes("without_cache_bytes"));
}

void print_summary(const Json& result) {
  const Json& speed = result["tokens_per_second"];
  const auto drafted = result["drafted"].get<std::int64_t>();
  const std::string draft = drafted == 0
                                ? ""
                                : fmt::format("{} of {} guesses right; ",
                                              result["accepted"].get<std::int64_t>(), drafted);
  fmt::print(stderr,
             "\n{} tokens after a prompt of {} ({}); first after {:.2f} s, then {} per second; {}"
             "cache {}: {} bytes, {:.2f} bits per value\n",
             result["tokens"].get<std::int64_t>(), result["prompt_tokens"].get<std::int64_t>(),
             result["stop"].get<std::string>(), result["first_token_seconds"].get<double>(),
             speed.is_null() ? "-" : fmt::format("{:.1f}", speed.get<double>()), draft,
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
  if (options.memory_report) print_memory(result["memory"]);
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
  options->draft.add_to(*generate);
  add_sampler_options(*generate, options->sampler);
  generate->add_option("--max-tokens", options->most, "Tokens to write, at most; default: 128")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  generate->add_flag("--chat", options->is_chat, "The text is a message to be answered");
  generate->add_flag("--memory-report", options->memory_report,
                     "Tell what the process had in memory, and the cache's part of it");
  generate->add_flag("--json", options->json, "Print one JSON object when all is written");
  generate->callback([options] { run_and_print(*options); });
}

}  // namespace quire::tool
