// What a measurement ran on. Every measuring subcommand prints it with its rows.
#pragma once

#include <cstddef>
#include <vector>

#include "print.h"

namespace quire::tool {

// {"cpu", "cores", "isa", "compiler", "version", "commit"}
Json machine();

// Prints it as a table, and an empty line.
void print_machine();

// Prints the rows of a measurement with the machine: {"machine", "rows"}, or two tables.
void print_measured(const Json& rows, bool json, const std::vector<Column>& columns);

// So many bytes, read in turn, that none is still in a cache when its turn comes again: 8 times the
// L3 caches, and 256 MiB at least.
std::size_t uncached_bytes();

}  // namespace quire::tool
