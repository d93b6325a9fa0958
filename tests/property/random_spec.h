// Random cache specs, small enough that a thousand caches a second can be filled and compared.
#pragma once

#include <string>
#include <vector>

#include "property/random.h"
#include "quire/cache.hpp"

namespace quire::test {

CacheSpec random_spec(Random& random);

// Specs like `spec` but simpler in one respect each, for shrinking.
std::vector<CacheSpec> simpler_specs(const CacheSpec& spec);

// One line per layer, as it would be written down.
std::string describe(const CacheSpec& spec);

}  // namespace quire::test
