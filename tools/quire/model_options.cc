#include "model_options.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>

#include "default_model.h"
#include "model/tokenizer_utf8.h"
#include "print.h"

namespace quire::tool {

void ModelChoice::add_to(CLI::App& command) {
  command
      .add_option("--model", path,
                  "GGUF file; default: $QUIRE_MODEL, or SmolLM2-135M-Instruct, which is fetched "
                  "if it is not in the cache folder")
      ->type_name("FILE")
      ->check([](const std::string& file) {
        return std::string(file.empty() ? "the name of the model is empty" : "");
      });
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
  command.add_option("--threads", threads, "Threads; default: one per usable core")
      ->check(CLI::Range(1, 1024));
}

model::Model ModelChoice::load() const {
  const std::string file = path.empty() ? default_model() : path;
  const model::ModelOptions options{model::parse_weight_form(weights).value(), threads};
  return model::Model::load(file, options).value();
}

void check_context(const std::string& what, const model::Model& model, std::int64_t tokens) {
  if (tokens <= model.config().context) return;
  throw std::runtime_error(fmt::format("{}: {} tokens, the model's context is {}", what,
                                       grouped(tokens), grouped(model.config().context)));
}

std::string read_text(const std::string& path) {
  if (path.empty()) throw std::runtime_error("the name of the text is empty");
  if (std::filesystem::is_directory(path)) {
    throw std::runtime_error(fmt::format("{}: is a folder", path));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(fmt::format("{}: {}", path, std::strerror(errno)));
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) throw std::runtime_error(fmt::format("{}: cannot be read", path));
  check_utf8(path, text);
  return text;
}

void check_utf8(const std::string& what, const std::string& text) {
  for (std::string_view rest = text; !rest.empty();) {
    const model::Utf8Front front = model::utf8_front(rest);
    if (front.kind != model::Utf8::whole) {
      throw std::runtime_error(
          fmt::format("{}: not UTF-8 at byte {}", what, text.size() - rest.size() + 1));
    }
    rest.remove_prefix(front.bytes);
  }
}

void check_writable(const std::string& path) {
  if (path.empty()) throw std::runtime_error("the name of the file to write is empty");
  const bool is_new = !std::filesystem::exists(path);
  if (!std::ofstream(path, std::ios::app)) {
    throw std::runtime_error(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  }
  if (is_new) std::filesystem::remove(path);
}

}  // namespace quire::tool
