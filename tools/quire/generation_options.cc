#include "generation_options.h"

#include "model_options.h"
#include "options.h"

namespace quire::tool {

void CacheChoice::add_to(CLI::App& command) {
  command.add_option_function<std::string>(
      "--codec",
      [this](const std::string& text) {
        try {
          assignment = assignment_of(text);
        } catch (const std::invalid_argument& error) {
          throw CLI::ValidationError("--codec", error.what());
        }
        codec = text;
      },
      "How the cache keeps keys and values: a preset, a codec, a key/value pair, or @FILE of quire "
      "tune; default: f16");
  command
      .add_option("--window", window, "Tokens that a token sees, itself included; older ones go")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  add_parsed(command, "--memory-limit", memory_limit_bytes, parse_bytes,
             "Bytes of the cache, as in 64MiB; default: no limit")
      ->type_name("SIZE");
  command.add_option("--context", context, "Tokens of the history; default: the model's")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
}

Cache CacheChoice::create(const model::Model& model) const {
  CacheSpec spec = model.cache_spec();
  assignment.apply_to(spec).value();
  if (window > 0) {
    for (LayerSpec& layer : spec.layers) layer.pattern = Pattern::window(window);
  }
  if (memory_limit_bytes > 0) spec.memory_limit_bytes = memory_limit_bytes;
  return Cache::create(spec).value();
}

std::int64_t CacheChoice::context_of(const model::Model& model) const {
  if (window == 0) check_context("--context", model, context);
  if (context > 0) return context;
  return window > 0 ? 0 : model.config().context;
}

void add_sampler_options(CLI::App& command, model::SamplerOptions& options) {
  command.add_option("--temperature", options.temperature, "0: always the likeliest token")
      ->check(CLI::Range(0.0, 1e6));
  command.add_option("--top-k", options.top_k, "Draw from the k likeliest; 0: all")
      ->check(CLI::Range(0, 1 << 30));
  command.add_option("--top-p", options.top_p, "Draw from the likeliest that reach p together")
      ->check(CLI::Range(1e-9, 1.0));
  command.add_option("--min-p", options.min_p, "Leave out what is less likely than p of the first")
      ->check(CLI::Range(0.0, 1.0));
  add_parsed(
      command, "--seed", options.seed,
      [](const std::string& text) {
        return static_cast<std::uint64_t>(parse_count(text, 0, INT64_MAX));
      },
      "The same seed gives the same tokens")
      ->type_name("NUMBER");
}

}  // namespace quire::tool
