// A cache as text for people and as JSON for programs. Both require the store's lock.
#pragma once

#include <string>

#include "cache/core.h"

namespace quire {

std::string print_text(const CacheCore& cache);
std::string print_json(const CacheCore& cache);

}  // namespace quire
