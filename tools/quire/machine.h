// What a measurement ran on. Every measuring subcommand prints it with its rows.
#pragma once

#include <cstddef>

#include "print.h"

namespace quire::tool {

// {"cpu", "cores", "isa", "compiler", "version", "commit"}
Json machine();

// One per core.
int all_threads();

// So many bytes, read in turn, that none is still in a cache when its turn comes again: 8 times the
// L3 caches, and 256 MiB at least.
std::size_t uncached_bytes();

}  // namespace quire::tool
