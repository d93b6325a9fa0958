#include "model_options.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace quire::tool {
namespace {

constexpr const char* kDefaultFile = "SmolLM2-135M-Instruct.Q4_1.gguf";

std::filesystem::path default_path() {
  if (const char* path = std::getenv("QUIRE_MODEL"); path != nullptr && *path != '\0') return path;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return std::filesystem::path(cache) / "quire" / kDefaultFile;
  }
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home != nullptr ? home : "") / ".cache" / "quire" / kDefaultFile;
}

}  // namespace

void ModelChoice::add_to(CLI::App& command) {
  command
      .add_option("--model", path,
                  "GGUF file; default: $QUIRE_MODEL, or what scripts/fetch_model.py fetches")
      ->type_name("FILE");
  command.add_option("--weights", weights, "How weights are kept and multiplied: f32")
      ->type_name("FORM")
      ->check([](const std::string& text) {
        const Result<model::WeightForm> form = model::parse_weight_form(text);
        return form ? std::string() : form.error().text;
      });
  command.add_option("--threads", threads, "Threads; default: one per core")
      ->check(CLI::Range(1, 1024));
}

model::Model ModelChoice::load() const {
  const std::string file = path.empty() ? default_path().string() : path;
  if (path.empty() && !std::filesystem::exists(file)) {
    throw std::runtime_error(fmt::format(
        "no model at {}: run scripts/fetch_model.py, or give one with --model FILE", file));
  }
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
