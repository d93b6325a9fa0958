// What a measurement ran on. Every measuring subcommand prints it with its rows.
#pragma once

#include "print.h"

namespace quire::tool {

// {"cpu", "cores", "isa", "compiler", "version", "commit"}
Json machine();

}  // namespace quire::tool
