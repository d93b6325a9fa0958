// What the commands that let a model write have in common: the cache it writes into, and how tokens
// are drawn.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "model/assignment.h"
#include "model/model.h"
#include "model/sampler.h"
#include "quire/cache.hpp"

namespace quire::tool {

struct CacheChoice {
  std::string codec = "f16";             // as it was given
  model::Assignment assignment;          // what it names
  std::int64_t window = 0;               // 0: as the model has it
  std::uint64_t memory_limit_bytes = 0;  // 0: none
  std::int64_t context = 0;              // 0: the model's own; none with a window

  // Adds --codec, --window, --memory-limit and --context. Requires: this lives as long as the
  // program.
  void add_to(CLI::App& command);
  // Throws when the spec is refused.
  Cache create(const model::Model& model) const;
  // The most tokens of a history; 0: no limit. Throws when it is more than the model's.
  std::int64_t context_of(const model::Model& model) const;
};

// Adds --temperature, --top-k, --top-p, --min-p and --seed.
// Requires: `options` live as long as the program.
void add_sampler_options(CLI::App& command, model::SamplerOptions& options);

}  // namespace quire::tool
