#include "options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>

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

std::uint64_t parse_bytes(const std::string& text) {
  std::uint64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(stop, text.data() + text.size());
  for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (unit.ends_with('b')) unit.pop_back();
  if (unit.ends_with('i') && unit.size() > 1) unit.pop_back();
  const std::size_t power = unit.empty() ? 0 : std::string_view(" kmgt").find(unit);
  if (error != std::errc() || number == 0 || unit.size() > 1 || power > 4 ||
      number > UINT64_MAX >> (10 * power)) {
    throw std::invalid_argument(fmt::format(
        "\"{}\" is not a size: a whole number of bytes, KiB, MiB, GiB or TiB, as in 64MiB", text));
  }
  return number << (10 * power);
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
  // Keys of which no preset speaks.
  for (const std::string& name : codec_names()) {
    const bool known = std::any_of(codecs.begin(), codecs.end(),
                                   [&](const CodecPair& codec) { return codec.key == name; });
    if (!known) codecs.push_back(codec_of(name + "/tq4"));
  }
  return codecs;
}

std::string name_of(const CodecPair& codec) {
  return codec.key == codec.value ? codec.key : codec.key + "/" + codec.value;
}

}  // namespace quire::tool
