#include "options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
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

CodecPair parse_codec(const std::string& text) {
  const std::vector<std::string> known = codec_names();
  const std::vector<std::string> names = split(text, '/');
  for (const std::string& name : names) {
    if (names.size() > 2 || std::find(known.begin(), known.end(), name) == known.end()) {
      throw std::invalid_argument(
          fmt::format("\"{}\" is neither a codec nor a pair of keys' and values' codec; codecs: {}",
                      text, fmt::join(known, " ")));
    }
  }
  return {names.front(), names.back()};
}

std::string name_of(const CodecPair& codec) {
  return codec.key == codec.value ? codec.key : codec.key + "/" + codec.value;
}

}  // namespace quire::tool
