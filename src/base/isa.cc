#include "base/isa.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace quire {
namespace {

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
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16") &&
         __builtin_cpu_supports("avx512vbmi");
}
#else
bool has_avx2() { return false; }
bool has_avx512() { return false; }
#endif

Result<Isa> choose() {
  const std::vector<Isa> found = isas_found();
  const char* asked = std::getenv("QUIRE_ISA");
  if (asked == nullptr || *asked == '\0') return found.back();
  std::string names;
  for (const Isa isa : found) {
    if (std::string_view(asked) == name_of(isa)) return isa;
    names += names.empty() ? "" : ", ";
    names += name_of(isa);
  }
  return fail(ErrorCode::not_supported, "QUIRE_ISA is \"{}\", found here: {}", asked, names);
}

}  // namespace

const char* name_of(Isa isa) noexcept {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
  }
  return "unknown";
}

std::vector<Isa> isas_found() {
  std::vector<Isa> found = {Isa::scalar};
  if (has_avx2()) found.push_back(Isa::avx2);
  if (has_avx512()) found.push_back(Isa::avx512);
  return found;
}

const Result<Isa>& asked_isa() {
  static const Result<Isa> asked = choose();
  return asked;
}

Isa chosen_isa() noexcept {
  static const Isa chosen = asked_isa().ok() ? asked_isa().value() : isas_found().back();
  return chosen;
}

}  // namespace quire
