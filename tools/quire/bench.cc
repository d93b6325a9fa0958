// quire bench: measurements. Each prints {"machine": {...}, "rows": [{...}, ...]} with --json.
#include "commands.h"

namespace quire::tool {

void add_bench(CLI::App& program) {
  CLI::App* bench = program.add_subcommand("bench", "Measure this machine");
  bench->require_subcommand(1);
  add_bench_manage(*bench);
  add_bench_put(*bench);
  add_bench_attention(*bench);
  add_bench_codec(*bench);
  add_bench_model(*bench);
}

}  // namespace quire::tool
