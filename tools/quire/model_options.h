// What the commands that run a model have in common: which file, how its weights are kept, threads.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "model/model.h"

namespace quire::tool {

struct ModelChoice {
  std::string path;  // empty: the default model
  std::string weights = "packed";
  int threads = 0;  // 0: one per core

  // Adds --model, --weights and --threads. Requires: this lives as long as the program.
  void add_to(CLI::App& command);
  // Throws when the file is missing or is refused.
  model::Model load() const;
};

// The whole file; throws when it cannot be read.
std::string read_text(const std::string& path);

}  // namespace quire::tool
