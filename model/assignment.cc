#include "model/assignment.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/error.h"

namespace quire::model {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;
// A thousand layers take 20 KB: what is larger was named by mistake.
constexpr std::size_t kMostBytes = 1 << 20;

Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return refuse("{}: {}", path, std::strerror(errno));
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return refuse("{}: cannot be read", path);
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMostBytes) {
    return refuse("{}: more than {} bytes, too large for codecs of layers", path, kMostBytes);
  }
  return text;
}

}  // namespace

Result<void> Assignment::apply_to(CacheSpec& spec) const {
  if (!layers.empty() && layers.size() != spec.layers.size()) {
    return refuse("codecs of {} layers were given, the model has {}", layers.size(),
                  spec.layers.size());
  }
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].codec = layers.empty() ? all : layers[i];
  }
  return {};
}

Result<Assignment> find_assignment(const std::string& text) {
  if (!text.starts_with('@')) {
    MODEL_TRY(CodecPair pair, parse_codec(text));
    return Assignment{std::move(pair)};
  }
  const std::string path = text.substr(1);
  MODEL_TRY(const std::string content, read_file(path));
  return parse_assignment(content, path);
}

Result<Assignment> parse_assignment(std::string_view json, const std::string& name) {
  Json content;
  try {
    content = Json::parse(json);
  } catch (const Json::parse_error& error) {
    return refuse("{}: not JSON, byte {} of {}", name, error.byte, json.size());
  }
  const auto version = content.find("version");
  if (!content.is_object() || version == content.end()) {
    return refuse("{}: no codecs of layers: an object with \"version\" and \"layers\" is expected",
                  name);
  }
  if (*version != kVersion) {
    return refuse("{}: version {}, only {} is known", name, version->dump(), kVersion);
  }
  const auto layers = content.find("layers");
  if (layers == content.end() || !layers->is_array() || layers->empty()) {
    return refuse("{}: \"layers\" is not a list of codecs, one for each layer", name);
  }
  Assignment assignment;
  for (const Json& layer : *layers) {
    const std::size_t index = assignment.layers.size();
    if (!layer.is_string()) {
      return refuse("{}: layer {} is {}, not a text such as \"dual4/tq3\"", name, index,
                    layer.type_name());
    }
    Result<CodecPair> pair = parse_codec(layer.get<std::string>());
    if (!pair) return refuse("{}: layer {}: {}", name, index, pair.error().text);
    assignment.layers.push_back(std::move(*pair));
  }
  return assignment;
}

}  // namespace quire::model
