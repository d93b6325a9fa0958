#include "draft_options.h"

namespace quire::tool {

void DraftChoice::add_to(CLI::App& command) {
  CLI::Option* draft =
      command
          .add_option(
              "--draft", kind,
              "none, or lookup: guess tokens from the text so far and verify several at once. "
              "The text stays the same, except that f32 weights round differently for one "
              "token and for several")
          ->check(CLI::IsMember({"none", "lookup"}));
  command.add_option("--draft-tokens", tokens, "Tokens to guess at once, at most")
      ->check(CLI::Range(1, 256))
      ->needs(draft);
}

std::optional<model::LookupDraft> DraftChoice::draft() const {
  if (kind != "lookup") return std::nullopt;
  model::LookupDraft lookup;
  lookup.tokens = tokens;
  return lookup;
}

}  // namespace quire::tool
