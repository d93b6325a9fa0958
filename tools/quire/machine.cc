#include "machine.h"

#include <fstream>
#include <string>
#include <thread>

#include "quire/cache.hpp"

namespace quire::tool {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

}  // namespace

Json machine() {
  const BuildInfo build = build_info();
  return {{"cpu", cpu_model()},       {"cores", std::thread::hardware_concurrency()},
          {"isa", build.isa_chosen},  {"compiler", build.compiler},
          {"version", build.version}, {"commit", build.commit}};
}

}  // namespace quire::tool
