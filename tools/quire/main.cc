// The command line of Quire. Facts go to stdout, words to stderr. Exit status: 0, 1 for a failure,
// 2 for wrong usage.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "commands.h"
#include "quire/cache.hpp"

namespace {

int report_usage(const CLI::App& program, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return program.exit(error);  // --help, --version
  const std::vector<std::string> unknown = program.remaining(true);
  const std::string text =
      unknown.empty() ? error.what() : fmt::format("unknown argument {}", unknown.front());
  std::string command = "quire";
  for (const CLI::App* at = &program; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    command += " " + at->get_name();
  }
  fmt::print(stderr, "quire: {}\nUsage: {} --help tells all\n", text, command);
  return 2;
}

int run(int argc, char** argv) {
  CLI::App program("Quire keeps the keys and values of transformer inference.", "quire");
  const quire::BuildInfo build = quire::build_info();
  program.set_version_flag("--version", fmt::format("quire {} ({})", build.version, build.commit));
  program.require_subcommand(1);
  quire::tool::add_info(program);
  quire::tool::add_demo(program);
  quire::tool::add_bench(program);
  quire::tool::add_eval(program);
  quire::tool::add_tune(program);
  quire::tool::add_generate(program);
  quire::tool::add_chat(program);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return report_usage(program, error);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int status = 1;
  try {
    status = run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "quire: {}\n", error.what());
  }
  // A full disk or a closed pipe shows only when the buffer is written.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fputs("quire: stdout cannot be written\n", stderr);
    status = status == 0 ? 1 : status;
  }
  return status;
}
