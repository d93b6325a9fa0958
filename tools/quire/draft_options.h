// Whether tokens are guessed before the model computes them, for the commands that let one write.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "model/lookup_draft.h"

namespace quire::tool {

struct DraftChoice {
  std::string kind = "none";
  int tokens = model::LookupDraft().tokens;

  // Adds --draft and --draft-tokens. Requires: this lives as long as the program.
  void add_to(CLI::App& command);
  std::optional<model::LookupDraft> draft() const;
};

}  // namespace quire::tool
