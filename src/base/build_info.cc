// What this library is and what it runs on.
#include <fmt/format.h>

#include "base/version.h"
#include "quire/cache.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace quire {
namespace {

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return "g++ " __VERSION__;
#endif
}

#if defined(__x86_64__)
// clang 14's __builtin_cpu_supports does not know "f16c".
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16") &&
         __builtin_cpu_supports("avx512vbmi");
}
#else
bool has_avx2() { return false; }
bool has_avx512() { return false; }
#endif

}  // namespace

BuildInfo build_info() {
  BuildInfo info;
  info.version = QUIRE_VERSION;
  info.commit = QUIRE_COMMIT;
  info.compiler = compiler();
  info.isas_found = {"scalar"};
  if (has_avx2()) info.isas_found.push_back("avx2");
  if (has_avx512()) info.isas_found.push_back("avx512");
  info.isa_chosen = "scalar";
  info.codecs = codec_names();
  return info;
}

}  // namespace quire
