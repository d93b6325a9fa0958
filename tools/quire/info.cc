// quire info: what this build is and what it runs on.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "commands.h"
#include "print.h"
#include "quire/cache.hpp"

namespace quire::tool {
namespace {

Json facts() {
  const BuildInfo build = build_info();
  const char* asked = std::getenv("QUIRE_ISA");
  if (asked != nullptr && *asked != '\0' && build.isa_chosen != asked) {
    throw std::runtime_error(
        fmt::format("QUIRE_ISA={}: found here are {}", asked, fmt::join(build.isas_found, ", ")));
  }
  return {{"version", build.version},       {"commit", build.commit},
          {"compiler", build.compiler},     {"isas_found", build.isas_found},
          {"isa_chosen", build.isa_chosen}, {"codecs", build.codecs}};
}

void print(const Json& info) {
  const Json rows = {{{"what", "version"}, {"value", info["version"]}},
                     {{"what", "commit"}, {"value", info["commit"]}},
                     {{"what", "compiler"}, {"value", info["compiler"]}},
                     {{"what", "instruction sets found"}, {"value", info["isas_found"]}},
                     {{"what", "instruction set chosen"}, {"value", info["isa_chosen"]}},
                     {{"what", "codecs"}, {"value", info["codecs"]}}};
  print_table(rows, {{"what", "quire"}, {"value", "this build"}});
}

}  // namespace

void add_info(CLI::App& program) {
  CLI::App* info = program.add_subcommand(
      "info", "Version, commit, compiler, instruction sets found and chosen, codecs");
  auto json = std::make_shared<bool>(false);
  info->add_flag("--json", *json, "Print one JSON object");
  info->callback([json] { *json ? print_json(facts()) : print(facts()); });
}

}  // namespace quire::tool
