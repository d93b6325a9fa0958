// quire tune: which codec the keys and the values of each layer take, within a budget.
//
// The text is tokenised as a whole and cut into chunks of --context tokens; the first --chunks are
// measured (model/tune.h). What was chosen is then evaluated on as many chunks after them, if the
// text has any, and written to a file that --codec @FILE of eval, generate and chat reads.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "commands.h"
#include "model/evaluate.h"
#include "model/tokenizer.h"
#include "model/tune.h"
#include "model_options.h"
#include "print.h"

namespace quire::tool {
namespace {

struct Options {
  ModelChoice model{.path = {}, .weights = "f32"};
  std::string text;
  std::optional<double> bits;
  std::optional<double> kld;
  std::int64_t context = 1024;
  std::int64_t chunks = 2;
  std::string file = "tuned.json";
  bool json = false;
};

// The divergence on the chunks after those tuned on; null where the text has none.
Json measured(const model::Model& model, const std::vector<int>& tokens,
              const model::Tuning& tuning, const Options& options) {
  const auto used = static_cast<std::size_t>(tuning.chunks * options.context);
  const auto rest = std::span(tokens).subspan(used);
  if (std::ssize(rest) < options.context) return nullptr;
  model::EvalOptions eval;
  eval.codecs = {{"tuned", tuning.assignment()}};
  eval.context = options.context;
  eval.chunks = options.chunks;
  eval.progress = [](std::int64_t chunk, std::int64_t chunks, const std::string& codec) {
    fmt::print(stderr, "tune: check, chunk {} of {}, {}\n", chunk + 1, chunks, codec);
  };
  return model::evaluate(model, rest, eval).value().rows.back().kld_mean;
}

Json json_of(const model::Tuning& tuning, const model::Model& model, const Options& options) {
  Json layers = Json::array();
  for (const model::TunedLayer& layer : tuning.layers) {
    layers.push_back({{"layer", layers.size()},
                      {"key", layer.key.codec},
                      {"key_bits", layer.key.bits},
                      {"key_sensitivity", layer.key.sensitivity},
                      {"key_kld", layer.key.kld},
                      {"value", layer.value.codec},
                      {"value_bits", layer.value.bits},
                      {"value_sensitivity", layer.value.sensitivity},
                      {"value_kld", layer.value.kld}});
  }
  return {{"model", model.config().name},
          {"weights", options.model.weights},
          {"context", options.context},
          {"chunks", tuning.chunks},
          {"predictions", tuning.predictions},
          {"bits_per_value", tuning.bits_per_value},
          {"kld_predicted", tuning.kld},
          {"kld_measured", nullptr},
          {"file", options.file},
          {"layers", layers}};
}

// The file that model/assignment.h reads.
void write(const Json& result, const std::string& path) {
  Json codecs = Json::array();
  for (const Json& layer : result["layers"]) {
    codecs.push_back(layer["key"].get<std::string>() + "/" + layer["value"].get<std::string>());
  }
  const Json content = {{"version", 1},
                        {"model", result["model"]},
                        {"bits_per_value", result["bits_per_value"]},
                        {"kld_predicted", result["kld_predicted"]},
                        {"layers", codecs}};
  std::ofstream file(path, std::ios::binary);
  file << content.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  if (!file.flush()) throw std::runtime_error(fmt::format("{}: cannot be written", path));
}

void print(const Json& result) {
  fmt::print("{}, weights {}: {} predictions in {} chunks of {} tokens\n\n",
             result["model"].get<std::string>(), result["weights"].get<std::string>(),
             grouped(result["predictions"].get<std::int64_t>()),
             result["chunks"].get<std::int64_t>(), grouped(result["context"].get<std::int64_t>()));
  print_table(result["layers"], {{"layer", "layer"},
                                 {"key", "keys"},
                                 {"key_bits", "bits", 2},
                                 {"key_sensitivity", "KLD near 4 bits"},
                                 {"key_kld", "KLD"},
                                 {"value", "values"},
                                 {"value_bits", "bits", 2},
                                 {"value_sensitivity", "KLD near 4 bits"},
                                 {"value_kld", "KLD"}});
  const Json& found = result["kld_measured"];
  fmt::print("\n{:.3f} bits per value; KLD {:.3g} predicted, {}\n{}: use it with --codec @{}\n",
             result["bits_per_value"].get<double>(), result["kld_predicted"].get<double>(),
             found.is_null() ? "not measured: the text has no further chunk"
                             : fmt::format("{:.3g} measured on later text", found.get<double>()),
             result["file"].get<std::string>(), result["file"].get<std::string>());
}

void run(const Options& options) {
  const std::string text = read_text(options.text);
  check_writable(options.file);
  const model::Model model = options.model.load();
  check_context("tune: --context", model, options.context);
  const auto tokenizer = model::Tokenizer::create(model.vocabulary()).value();
  const std::vector<int> tokens = tokenizer.encode(text).value();
  model::TuneOptions tune;
  tune.budget = {options.bits, options.kld};
  tune.context = options.context;
  tune.chunks = options.chunks;
  tune.progress = [](const std::string& what, std::int64_t done, std::int64_t all) {
    fmt::print(stderr, "tune: {:3} % {}\n", 100 * done / all, what);
  };
  const model::Tuning tuning = model::tune(model, tokens, tune).value();
  Json result = json_of(tuning, model, options);
  write(result, options.file);
  result["kld_measured"] = measured(model, tokens, tuning, options);
  options.json ? print_json(result) : print(result);
}

}  // namespace

void add_tune(CLI::App& program) {
  CLI::App* tune = program.add_subcommand(
      "tune", "Choose a codec for the keys and the values of each layer, within a budget");
  auto options = std::make_shared<Options>();
  options->model.add_to(*tune);
  tune->add_option("--text", options->text, "Text to measure on")->required()->type_name("FILE");
  CLI::Option_group* budget = tune->add_option_group("budget", "What may be spent");
  budget->add_option("--budget-bits", options->bits, "Sealed bits per value, at most")
      ->check(CLI::Range(0.0, 64.0));
  budget
      ->add_option(
          "--budget-kl", options->kld,
          "Mean KL divergence from an f16 cache in nats, as predicted for this text, at most")
      ->check(CLI::Range(0.0, 1e3));
  budget->require_option(1);
  tune->add_option("--context", options->context, "Tokens of a chunk; default: 1024")
      ->check(CLI::Range(std::int64_t{128}, std::int64_t{1} << 20));
  tune->add_option("--chunks", options->chunks, "Chunks to measure on, at most; default: 2")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  tune->add_option("--out", options->file, "File to write; default: tuned.json")->type_name("FILE");
  tune->add_flag("--json", options->json, "Print one JSON object");
  tune->callback([options] { run(*options); });
}

}  // namespace quire::tool
