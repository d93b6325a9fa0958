// What this library is and what it runs on.
#include <fmt/format.h>

#include "base/isa.h"
#include "base/version.h"
#include "quire/cache.hpp"

namespace quire {
namespace {

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return "g++ " __VERSION__;
#endif
}

}  // namespace

BuildInfo build_info() {
  BuildInfo info;
  info.version = QUIRE_VERSION;
  info.commit = QUIRE_COMMIT;
  info.compiler = compiler();
  for (const Isa isa : isas_found()) info.isas_found.emplace_back(name_of(isa));
  info.isa_chosen = name_of(chosen_isa());
  info.codecs = codec_names();
  return info;
}

}  // namespace quire
