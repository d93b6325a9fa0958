// The default model: the file that commands use when none is named.
//
// It is $QUIRE_MODEL, or a file in the user's cache folder. Where that is absent it is fetched by
// share/quire/fetch_model.py, which lies beside the program in a build folder as in an installation
// and tells on stderr what it does.
#pragma once

#include <string>

namespace quire::tool {

// The path of the file. Throws, saying what is missing and what to do, when it cannot be had.
std::string default_model();

}  // namespace quire::tool
