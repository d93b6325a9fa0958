#include "model_options.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "default_model.h"

namespace quire::tool {

void ModelChoice::add_to(CLI::App& command) {
  command
      .add_option("--model", path,
                  "GGUF file; default: $QUIRE_MODEL, or SmolLM2-135M-Instruct, which is fetched "
                  "if it is not in the cache folder")
      ->type_name("FILE");
  command
      .add_option("--weights", weights,
                  fmt::format("f32: exact, by BLAS; packed: coded as in the file, with activations "
                              "in 8 bits; default: {}",
                              weights))
      ->type_name("FORM")
      ->check([](const std::string& text) {
        const Result<model::WeightForm> form = model::parse_weight_form(text);
        return form ? std::string() : form.error().text;
      });
  command.add_option("--threads", threads, "Threads; default: one per core")
      ->check(CLI::Range(1, 1024));
}

model::Model ModelChoice::load() const {
  const std::string file = path.empty() ? default_model() : path;
  const model::ModelOptions options{model::parse_weight_form(weights).value(), threads};
  return model::Model::load(file, options).value();
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(fmt::format("{}: {}", path, std::strerror(errno)));
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) throw std::runtime_error(fmt::format("{}: cannot be read", path));
  return text;
}

}  // namespace quire::tool
