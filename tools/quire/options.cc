#include "options.h"

#include <fmt/format.h>

#include <charconv>

namespace quire::tool {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> items;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(separator, begin);
    items.push_back(text.substr(begin, end == std::string::npos ? end : end - begin));
  }
  return items;
}

std::int64_t parse_count(const std::string& text, std::int64_t least, std::int64_t most) {
  std::int64_t count = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, count);
  if (error != std::errc() || stop != end || count < least || count > most) {
    throw std::invalid_argument(
        fmt::format("\"{}\" is not a whole number from {} to {}", text, least, most));
  }
  return count;
}

CodecPair codec_of(const std::string& text) {
  Result<CodecPair> codec = parse_codec(text);
  if (!codec) throw std::invalid_argument(codec.error().text);
  return *codec;
}

model::Assignment assignment_of(const std::string& text) {
  Result<model::Assignment> assignment = model::find_assignment(text);
  if (!assignment) throw std::invalid_argument(assignment.error().text);
  return *std::move(assignment);
}

std::vector<CodecPair> codecs_of(const std::vector<std::string>& texts) {
  std::vector<CodecPair> codecs;
  for (const std::string& text : texts) codecs.push_back(codec_of(text));
  return codecs;
}

std::vector<CodecPair> all_codecs() {
  std::vector<CodecPair> codecs;
  for (const std::string& name : codec_names()) {
    if (const Result<CodecPair> codec = parse_codec(name)) codecs.push_back(*codec);
  }
  for (const CodecPreset& preset : codec_presets()) codecs.push_back(preset.codec);
  return codecs;
}

std::string name_of(const CodecPair& codec) {
  return codec.key == codec.value ? codec.key : codec.key + "/" + codec.value;
}

}  // namespace quire::tool
