#include "default_model.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace quire::tool {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "SmolLM2-135M-Instruct.Q4_1.gguf";

// A variable of the environment; empty where it is not set.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// As fetch_model.py has it.
fs::path cached_path() {
  const std::string cache = variable("XDG_CACHE_HOME");
  return (cache.empty() ? fs::path(variable("HOME")) / ".cache" : fs::path(cache)) / "quire" /
         kFile;
}

fs::path script_path() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return program.parent_path().parent_path() / "share" / "quire" / "fetch_model.py";
}

// Runs the script with its stdout, where it prints the path, on stderr. Returns what went wrong;
// empty: nothing.
std::string run_script(const fs::path& script) {
  std::string python = "python3";
  std::string argument = script.string();
  char* arguments[] = {python.data(), argument.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  pid_t child = 0;
  const int error = posix_spawnp(&child, "python3", &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return fmt::format("python3: {}", std::strerror(error));
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return fmt::format("{}: {}", argument, std::strerror(errno));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  return fmt::format("{} failed", argument);
}

}  // namespace

std::string default_model() {
  if (const std::string given = variable("QUIRE_MODEL"); !given.empty()) {
    if (fs::exists(given)) return given;
    throw std::runtime_error(fmt::format("no model at {}, which QUIRE_MODEL names", given));
  }
  const fs::path path = cached_path();
  if (fs::exists(path)) return path.string();
  const fs::path script = script_path();
  const std::string fault =
      fs::exists(script) ? run_script(script) : fmt::format("there is no {}", script.string());
  if (fault.empty() && fs::exists(path)) return path.string();
  throw std::runtime_error(fmt::format(
      "no model at {}, and it could not be fetched ({}); give one by its path: --model FILE",
      path.string(), fault.empty() ? "the script put it elsewhere" : fault));
}

}  // namespace quire::tool
