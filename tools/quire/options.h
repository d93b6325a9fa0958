// Options that take lists: `--codec f16,int8/f16`. A wrong item is wrong usage.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/assignment.h"
#include "quire/spec.hpp"

namespace quire::tool {

// "a,b" as {"a", "b"}.
std::vector<std::string> split(const std::string& text, char separator);

// Adds an option that replaces `list` by the items given. `parse` turns one into a value and throws
// std::invalid_argument, saying what was found and what is expected, when it cannot.
// Requires: `list` lives as long as the program.
template <typename T, typename Parse>
void add_list(CLI::App& command, const std::string& name, std::vector<T>& list, Parse parse,
              const std::string& help) {
  const auto read = [name, &list, parse](const std::string& text) {
    list.clear();
    try {
      for (const std::string& item : split(text, ',')) list.push_back(parse(item));
    } catch (const std::invalid_argument& error) {
      throw CLI::ValidationError(name, error.what());
    }
  };
  command.add_option_function<std::string>(name, read, help)->type_name("LIST");
}

// Adds an option of one value, which `parse` turns into one as above.
template <typename T, typename Parse>
CLI::Option* add_parsed(CLI::App& command, const std::string& name, T& value, Parse parse,
                        const std::string& help) {
  const auto read = [name, &value, parse](const std::string& text) {
    try {
      value = parse(text);
    } catch (const std::invalid_argument& error) {
      throw CLI::ValidationError(name, error.what());
    }
  };
  return command.add_option_function<std::string>(name, read, help);
}

// A whole number in [least, most].
std::int64_t parse_count(const std::string& text, std::int64_t least, std::int64_t most);

// Bytes: "1000", "64MiB", "2g". Units are powers of 1024, however they are written.
std::uint64_t parse_bytes(const std::string& text);

// What parse_codec of quire/spec.hpp takes: "int8", "int8/f16", "balanced".
CodecPair codec_of(const std::string& text);
std::vector<CodecPair> codecs_of(const std::vector<std::string>& texts);
std::string name_of(const CodecPair& codec);

// The same, or "@path" of a file with a pair for each layer.
model::Assignment assignment_of(const std::string& text);

// Every codec that encodes both sides, and every preset.
std::vector<CodecPair> all_codecs();

}  // namespace quire::tool
