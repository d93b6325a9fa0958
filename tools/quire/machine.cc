#include "machine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "quire/cache.hpp"
#include "quire/executor.hpp"

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

// The L3 caches of all cores as the system lists them; 0 where it does not.
std::size_t listed_l3_bytes() {
  std::map<std::string, std::size_t> caches;  // by the cores that share one
  for (unsigned core = 0; core < std::thread::hardware_concurrency(); ++core) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}/cache/index3/", core);
    std::string cores;
    std::size_t kibibytes = 0;
    if (std::getline(std::ifstream(folder + "shared_cpu_list"), cores) &&
        std::ifstream(folder + "size") >> kibibytes) {
      caches[cores] = kibibytes * KiB;
    }
  }
  std::size_t bytes = 0;
  for (const auto& [cores, size] : caches) bytes += size;
  return bytes;
}

// In a virtual machine the C library may name the caches of the whole package, most of which other
// machines use; the smaller answer is that of this machine's cores.
std::size_t l3_bytes() {
  const std::size_t listed = listed_l3_bytes();
#ifdef _SC_LEVEL3_CACHE_SIZE
  const long named = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (named > 0) {
    const auto bytes = static_cast<std::size_t>(named);
    return listed > 0 ? std::min(listed, bytes) : bytes;
  }
#endif
  return listed;
}

}  // namespace

Json machine() {
  const BuildInfo build = build_info();
  return {{"cpu", cpu_model()},         {"cores", usable_cores()},  {"isa", build.isa_chosen},
          {"compiler", build.compiler}, {"version", build.version}, {"commit", build.commit}};
}

void print_machine() {
  print_table(Json::array({machine()}),
              {{"cpu", "cpu"}, {"cores", "cores"}, {"isa", "isa"}, {"compiler", "compiler"}});
  fmt::print("\n");
}

void print_measured(const Json& rows, bool json, const std::vector<Column>& columns) {
  if (json) {
    print_json({{"machine", machine()}, {"rows", rows}});
    return;
  }
  print_machine();
  print_table(rows, columns);
}

std::size_t uncached_bytes() { return std::max(256 * MiB, 8 * l3_bytes()); }

}  // namespace quire::tool
