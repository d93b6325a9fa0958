// How facts are shown: a subcommand makes one JSON object and prints it as it is, or as tables.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace quire::tool {

using Json = nlohmann::ordered_json;  // members stay in the order they were added

struct Column {
  std::string field;  // of each row
  std::string title;  // with the unit
  int decimals = -1;  // of fractions; -1: three significant digits
};

// Prints an array of objects with a line per row. Numbers stand right, text left; integers are
// grouped by thousands; a field that is missing or null is shown as "-".
void print_table(const Json& rows, const std::vector<Column>& columns);

// Prints the object on stdout.
void print_json(const Json& object);

// 1234567 as "1,234,567".
std::string grouped(std::int64_t number);

}  // namespace quire::tool
