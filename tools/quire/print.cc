#include "print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace quire::tool {
namespace {

struct Cell {
  std::string text;
  bool is_number = false;
};

Cell cell_of(const Json& row, const Column& column) {
  const auto found = row.find(column.field);
  if (found == row.end() || found->is_null()) return {"-", true};
  const Json& value = *found;
  if (value.is_string()) return {value.get<std::string>(), false};
  if (value.is_boolean()) return {value.get<bool>() ? "yes" : "no", false};
  if (value.is_number_integer()) return {grouped(value.get<std::int64_t>()), true};
  if (value.is_number()) {
    const double number = value.get<double>();
    return {column.decimals < 0 ? fmt::format("{:.3g}", number)
                                : fmt::format("{:.{}f}", number, column.decimals),
            true};
  }
  std::string joined;
  for (const Json& item : value) {
    if (!joined.empty()) joined += ' ';
    joined += item.get<std::string>();
  }
  return {joined, false};
}

}  // namespace

std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  const std::size_t first = number < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

void print_table(const Json& rows, const std::vector<Column>& columns) {
  std::vector<std::vector<Cell>> cells(columns.size());
  std::vector<std::size_t> widths;
  std::vector<bool> right;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    widths.push_back(columns[c].title.size());
    right.push_back(true);
    for (const Json& row : rows) {
      cells[c].push_back(cell_of(row, columns[c]));
      widths[c] = std::max(widths[c], cells[c].back().text.size());
      right[c] = right[c] && cells[c].back().is_number;
    }
  }
  const auto print_line = [&](auto&& text_of) {
    std::string line;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      if (c > 0) line += "  ";
      line += right[c] ? fmt::format("{:>{}}", text_of(c), widths[c])
                       : fmt::format("{:<{}}", text_of(c), widths[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  };
  print_line([&](std::size_t c) { return columns[c].title; });
  print_line([&](std::size_t c) { return std::string(widths[c], '-'); });
  for (std::size_t r = 0; r < rows.size(); ++r) {
    print_line([&](std::size_t c) { return cells[c][r].text; });
  }
}

void print_json(const Json& object) {
  // Texts may come from the system; what is not UTF-8 must not make the output unreadable.
  fmt::print("{}\n", object.dump(2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace quire::tool
