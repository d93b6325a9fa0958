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

// Throws, naming `what`, where `tokens` are more than the model was made for.
void check_context(const std::string& what, const model::Model& model, std::int64_t tokens);

// The whole file; throws when it cannot be read or is not UTF-8.
std::string read_text(const std::string& path);

// Throws, naming `what`, where `text` is not UTF-8: a tokenizer would leave bytes out.
void check_utf8(const std::string& what, const std::string& text);

// Throws where a file cannot be written, before minutes of work are lost.
void check_writable(const std::string& path);

}  // namespace quire::tool
