// quire eval: what codecs cost in quality, on a real model and a real text, next to an f16 cache.
//
// The text is tokenised as a whole and cut into chunks of --context tokens; the rest is dropped. In
// each of the first --chunks the second half is predicted. Columns are explained in
// model/evaluate.h.
#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "commands.h"
#include "model/evaluate.h"
#include "model/tokenizer.h"
#include "model_options.h"
#include "options.h"
#include "plot.h"
#include "print.h"

namespace quire::tool {
namespace {

struct Options {
  ModelChoice model{.path = {}, .weights = "f32"};
  std::string text;
  std::vector<model::NamedCodec> codecs = {{"int8", {{"int8", "int8"}}}};
  std::int64_t context = 2048;
  std::int64_t chunks = 4;
  std::string attention = "quire";
  std::optional<std::string> plot;
  bool json = false;
};

Json json_of(const model::Evaluation& evaluation, const model::Model& model,
             const Options& options) {
  Json rows = Json::array();
  for (const model::EvalRow& row : evaluation.rows) {
    rows.push_back({{"codec", row.codec},
                    {"ppl", row.ppl},
                    {"ppl_delta", row.ppl_delta},
                    {"ppl_delta_se", row.ppl_delta_se},
                    {"kld_mean", row.kld_mean},
                    {"kld_p99", row.kld_p99},
                    {"kld_p999", row.kld_p999},
                    {"top1", row.top1},
                    {"bytes_per_token", row.bytes_per_token},
                    {"bits_per_value", row.bits_per_value},
                    {"tokens_per_second", row.tokens_per_second}});
  }
  return {{"model", model.config().name},
          {"weights", options.model.weights},
          {"attention", options.attention},
          {"context", evaluation.context},
          {"chunks", evaluation.chunks},
          {"predictions", evaluation.predictions},
          {"rows", rows}};
}

void write_plot(const Json& result, const std::string& path) {
  Plot plot{fmt::format("{}, context {}", result["model"].get<std::string>(),
                        result["context"].get<std::int64_t>()),
            "bits per value",
            "mean KL divergence from f16, nats",
            {}};
  for (const Json& row : result["rows"]) {
    plot.points.push_back(
        {row["codec"], row["bits_per_value"].get<double>(), row["kld_mean"].get<double>()});
  }
  std::ofstream file(path, std::ios::binary);
  file << svg_of(plot);
  if (!file.flush()) throw std::runtime_error(fmt::format("{}: cannot be written", path));
}

void print(const Json& result) {
  fmt::print("{}, weights {}, {} attention: {} predictions in {} chunks of {} tokens\n\n",
             result["model"].get<std::string>(), result["weights"].get<std::string>(),
             result["attention"].get<std::string>(),
             grouped(result["predictions"].get<std::int64_t>()),
             result["chunks"].get<std::int64_t>(), grouped(result["context"].get<std::int64_t>()));
  Json rows = result["rows"];
  for (Json& row : rows) {
    for (const char* part : {"ppl_delta", "ppl_delta_se", "top1"}) {
      row[part] = 100 * row[part].get<double>();
    }
  }
  print_table(rows, {{"codec", "codec"},
                     {"ppl", "ppl", 4},
                     {"ppl_delta", "ppl delta %", 3},
                     {"ppl_delta_se", "its error %", 3},
                     {"kld_mean", "KLD mean"},
                     {"kld_p99", "KLD 99 %"},
                     {"kld_p999", "KLD 99.9 %"},
                     {"top1", "top-1 %", 2},
                     {"bytes_per_token", "bytes/token", 0},
                     {"bits_per_value", "bits/value", 3},
                     {"tokens_per_second", "tokens/s", 0}});
}

void run(const Options& options) {
  const std::string text = read_text(options.text);
  if (options.plot) check_writable(*options.plot);
  const model::Model model = options.model.load();
  check_context("eval: --context", model, options.context);
  const auto tokenizer = model::Tokenizer::create(model.vocabulary()).value();
  const std::vector<int> tokens = tokenizer.encode(text).value();
  fmt::print(stderr, "eval: {} tokens, {} chunks of {}\n", grouped(std::ssize(tokens)),
             std::ssize(tokens) / options.context, options.context);
  model::EvalOptions eval;
  eval.codecs = options.codecs;
  eval.context = options.context;
  eval.chunks = options.chunks;
  eval.reference_attention = options.attention == "reference";
  eval.progress = [](std::int64_t chunk, std::int64_t chunks, const std::string& codec) {
    fmt::print(stderr, "eval: chunk {} of {}, {}\n", chunk + 1, chunks, codec);
  };
  const Json result = json_of(model::evaluate(model, tokens, eval).value(), model, options);
  options.json ? print_json(result) : print(result);
  if (options.plot) write_plot(result, *options.plot);
}

}  // namespace

void add_eval(CLI::App& program) {
  CLI::App* eval = program.add_subcommand(
      "eval", "What codecs cost in quality: perplexity and divergence from an f16 cache");
  auto options = std::make_shared<Options>();
  options->model.add_to(*eval);
  eval->add_option("--text", options->text, "Text to predict")->required()->type_name("FILE");
  add_list(
      *eval, "--codec", options->codecs,
      [](const std::string& name) {
        return model::NamedCodec{name, assignment_of(name)};
      },
      "Presets, codecs, key/value pairs or @FILE of quire tune; f16 is always measured; default: "
      "int8");
  // Below two pages, predictions see little but rows of the open one, which no codec changes.
  eval->add_option("--context", options->context, "Tokens of a chunk; default: 2048")
      ->check(CLI::Range(std::int64_t{128}, std::int64_t{1} << 20));
  eval->add_option("--chunks", options->chunks, "Chunks, at most; default: 4")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  eval->add_option("--attention", options->attention,
                   "quire, or reference: in f32 on decoded pages")
      ->check(CLI::IsMember({"quire", "reference"}));
  eval->add_option("--plot", options->plot, "Write quality against bits as SVG")->type_name("FILE");
  eval->add_flag("--json", options->json, "Print one JSON object");
  eval->callback([options] { run(*options); });
}

}  // namespace quire::tool
