// The subcommands of `quire`. Each adds itself to the program with its options and what it runs.
//
// A subcommand prints its facts to stdout, as tables or with --json as one JSON object, and words
// to stderr. It throws on failure; main turns that into exit status 1.
#pragma once

#include <CLI/CLI.hpp>

namespace quire::tool {

void add_info(CLI::App& program);
void add_demo(CLI::App& program);
void add_bench(CLI::App& program);
// eval: what codecs cost in quality, on a model and a text.
void add_eval(CLI::App& program);
// tune: which codec each layer takes, within a budget.
void add_tune(CLI::App& program);
// generate: a model goes on with a text.
void add_generate(CLI::App& program);
// chat: a conversation whose history lies in a cache.
void add_chat(CLI::App& program);

// bench manage: what the bookkeeping costs, in a small and in a large pool.
void add_bench_manage(CLI::App& bench);
// bench put: how fast keys and values are taken in, next to memcpy.
void add_bench_put(CLI::App& bench);
// bench attention: how long attend takes, next to what the machine allows.
void add_bench_attention(CLI::App& bench);
// bench codec: what each codec takes, loses and how fast it is.
void add_bench_codec(CLI::App& bench);
// bench model: tokens per second of a whole model.
void add_bench_model(CLI::App& bench);

}  // namespace quire::tool
