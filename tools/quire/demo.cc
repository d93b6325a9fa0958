// quire demo: a tour on synthetic data. Four parts, each a cache of its own: what forks share, what
// a window keeps, what each codec costs, and what a refused step leaves untouched.
//
// Each part makes its facts as JSON first; the tour is those facts with words between them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "commands.h"
#include "options.h"
#include "print.h"
#include "quire/cache.hpp"

namespace quire::tool {
namespace {

constexpr std::int64_t kPageTokens = 64;

// Normally distributed numbers, the same on every run.
class Noise {
 public:
  explicit Noise(unsigned seed) : engine_(seed) {}
  std::vector<float> draw(std::int64_t count) {
    std::vector<float> numbers(static_cast<std::size_t>(count));
    for (float& number : numbers) number = normal_(engine_);
    return numbers;
  }

 private:
  std::mt19937 engine_;
  std::normal_distribution<float> normal_;
};

TensorView rows_of(const std::vector<float>& numbers, std::int64_t tokens, int heads, int dim) {
  return TensorView::dense(numbers.data(), DType::f32, tokens, heads, dim);
}

// Puts noise into every layer of a step.
void put_noise(const Cache& cache, Step& step, Noise& noise) {
  const std::vector<LayerSpec>& layers = cache.spec().layers;
  for (int layer = 0; layer < static_cast<int>(layers.size()); ++layer) {
    const LayerSpec& shape = layers[static_cast<std::size_t>(layer)];
    const std::int64_t tokens = step.tokens();
    const auto keys = noise.draw(tokens * shape.kv_heads * shape.key_dim);
    const auto values = noise.draw(tokens * shape.kv_heads * shape.value_dim);
    step.put(layer, rows_of(keys, tokens, shape.kv_heads, shape.key_dim),
             rows_of(values, tokens, shape.kv_heads, shape.value_dim))
        .value();
  }
}

void append(Cache& cache, const Sequence& sequence, std::int64_t tokens, Noise& noise) {
  Batch batch;
  batch.add(sequence.id(), sequence.next_position().value(), tokens);
  Step step = cache.begin(batch).value();
  put_noise(cache, step, noise);
  step.commit().value();
}

// The pages in which a sequence's tokens of a layer lie.
std::set<const std::byte*> pages_of(const Sequence& sequence, int layer) {
  std::set<const std::byte*> pages;
  const std::vector<RunView> runs = sequence.runs(layer).value();
  for (const RunView& run : runs) {
    if (run.side == Side::key && run.head == 0) pages.insert(run.data);
  }
  return pages;
}

std::size_t bytes_in_use(const Cache& cache) {
  const Stats stats = cache.stats();
  return stats.bytes - stats.bytes_free;
}

// --- 1. sharing

constexpr std::int64_t kPromptTokens = 1000;
constexpr std::int64_t kReplyTokens = 100;

CacheSpec sharing_spec() {
  return CacheSpec::uniform(
      {.layers = 4, .kv_heads = 4, .head_dim = 64, .codec = {.key = "int8", .value = "int8"}});
}

Json sharing() {
  Noise noise(1);
  Cache cache = Cache::create(sharing_spec()).value();
  const Sequence first = cache.open().value();
  append(cache, first, kPromptTokens, noise);
  const Sequence second = first.fork().value();
  append(cache, first, kReplyTokens, noise);
  append(cache, second, kReplyTokens, noise);

  // The same two sequences without sharing.
  Cache apart = Cache::create(sharing_spec()).value();
  for (int i = 0; i < 2; ++i) {
    const Sequence alone = apart.open().value();
    append(apart, alone, kPromptTokens, noise);
    append(apart, alone, kReplyTokens, noise);
  }

  const auto row = [](const char* name, const Sequence& sequence, const Sequence& other) -> Json {
    const auto pages = pages_of(sequence, 0);
    const auto others = pages_of(other, 0);
    const auto shared = std::count_if(pages.begin(), pages.end(),
                                      [&](const auto* page) { return others.contains(page); });
    return {{"sequence", name},
            {"tokens", sequence.length().value()},
            {"pages", pages.size()},
            {"pages_shared", shared}};
  };
  const Stats stats = cache.stats();
  return {{"prompt_tokens", kPromptTokens},
          {"reply_tokens", kReplyTokens},
          {"sequences", {row("first", first, second), row("second, its fork", second, first)}},
          {"caches",
           {{{"cache", "forked"},
             {"pages_used", stats.pages_used},
             {"pages_shared", stats.pages_shared},
             {"bytes", bytes_in_use(cache)}},
            {{"cache", "each on its own"},
             {"pages_used", apart.stats().pages_used},
             {"pages_shared", apart.stats().pages_shared},
             {"bytes", bytes_in_use(apart)}}}}};
}

void print_sharing(const Json& facts) {
  fmt::print(
      "1. Sharing\n\n"
      "A prompt of {} tokens, forked; both sequences then go on with {} tokens of their own.\n"
      "A fork copies tables. Only the page in which they part is copied, when one goes on.\n\n",
      grouped(facts["prompt_tokens"].get<std::int64_t>()),
      grouped(facts["reply_tokens"].get<std::int64_t>()));
  print_table(facts["sequences"], {{"sequence", "sequence"},
                                   {"tokens", "tokens"},
                                   {"pages", "pages"},
                                   {"pages_shared", "of them shared"}});
  fmt::print("\n");
  print_table(facts["caches"], {{"cache", "cache"},
                                {"pages_used", "pages used"},
                                {"pages_shared", "pages shared"},
                                {"bytes", "bytes in use"}});
}

// --- 2. window

constexpr std::int64_t kHistoryTokens = 1000;
constexpr std::int64_t kWindow = 128;

const char* name_of_resume(Resume resume) {
  switch (resume) {
    case Resume::exact:
      return "exact";
    case Resume::coded:
      return "coded";
    case Resume::no:
      break;
  }
  return "no";
}

Json window() {
  Noise noise(2);
  CacheSpec spec = CacheSpec::uniform({.layers = 3, .kv_heads = 4, .head_dim = 64});
  spec.layers[1].pattern = Pattern::window(kWindow);
  spec.layers[2].pattern = Pattern::window(kWindow, 4 * kWindow);
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  append(cache, sequence, kHistoryTokens - 100, noise);
  for (int i = 0; i < 100; ++i) append(cache, sequence, 1, noise);

  const std::vector<std::string> names = {
      "causal", fmt::format("window {}", kWindow),
      fmt::format("window {}, memory {}", kWindow, 4 * kWindow)};
  Json layers = Json::array();
  for (int layer = 0; layer < 3; ++layer) {
    layers.push_back({{"layer", layer},
                      {"pattern", names[static_cast<std::size_t>(layer)]},
                      {"tokens_held", sequence.length(layer).value()},
                      {"first_position", sequence.first_position(layer).value()},
                      {"pages", pages_of(sequence, layer).size()}});
  }
  Json resume = Json::array();
  for (const std::int64_t position : {kHistoryTokens, kHistoryTokens - 8, kHistoryTokens - 100}) {
    resume.push_back({{"position", position},
                      {"can_resume", name_of_resume(sequence.can_resume(position).value())}});
  }
  return {{"tokens", kHistoryTokens},
          {"window", kWindow},
          {"rollback", spec.rollback},
          {"layers", layers},
          {"resume", resume}};
}

void print_window(const Json& facts) {
  fmt::print(
      "2. Windows\n\n"
      "A sequence of {} tokens in three layers. A window of {} keeps what its next query can see\n"
      "and {} tokens more, so that the last {} can be undone; `memory` keeps more.\n\n",
      grouped(facts["tokens"].get<std::int64_t>()), facts["window"].get<std::int64_t>(),
      facts["rollback"].get<std::int64_t>(), facts["rollback"].get<std::int64_t>());
  print_table(facts["layers"], {{"layer", "layer"},
                                {"pattern", "pattern"},
                                {"tokens_held", "tokens held"},
                                {"first_position", "first position"},
                                {"pages", "pages"}});
  fmt::print("\nWhere the sequence could be cut back to and go on:\n\n");
  print_table(facts["resume"], {{"position", "position"}, {"can_resume", "can resume"}});
}

// --- 3. codecs

constexpr int kKvHeads = 8;
constexpr int kQueryHeads = 32;
constexpr int kHeadDim = 128;
constexpr std::int64_t kCodedTokens = 1024;
constexpr std::int64_t kQueries = 8;

// What the last kQueries tokens of a history get when it is kept in `codec`.
std::vector<float> attended(const CodecPair& codec, Json& row) {
  Noise noise(3);
  Cache cache =
      Cache::create(CacheSpec::uniform(
                        {.layers = 1, .kv_heads = kKvHeads, .head_dim = kHeadDim, .codec = codec}))
          .value();
  const LayerInfo layer = cache.layer_info(0).value();
  const double bytes = static_cast<double>(layer.sealed_bytes_per_page) / kPageTokens;
  row["codec"] = name_of(codec);
  row["bytes_per_token"] = bytes;
  row["bits_per_value"] = bytes * 8 / (2 * kKvHeads * kHeadDim);

  const Sequence sequence = cache.open().value();
  append(cache, sequence, kCodedTokens, noise);
  Batch batch;
  batch.add(sequence.id(), kCodedTokens, kQueries);
  Step step = cache.begin(batch).value();
  put_noise(cache, step, noise);
  const auto q = noise.draw(kQueries * kQueryHeads * kHeadDim);
  std::vector<float> out(q.size());
  step.attend(0, rows_of(q, kQueries, kQueryHeads, kHeadDim),
              OutputView::dense(out.data(), kQueries, kQueryHeads, kHeadDim))
      .value();
  return out;
}

Json codecs() {
  Json unused;
  const std::vector<float> expected = attended(codec_of("f32"), unused);
  Json rows = Json::array();
  for (const CodecPair& codec : all_codecs()) {
    Json row;
    const std::vector<float> out = attended(codec, row);
    double error = 0, norm = 0, largest = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double exact = expected[i];
      const double difference = out[i] - exact;
      error += difference * difference;
      norm += exact * exact;
      largest = std::max(largest, std::abs(difference));
    }
    row["relative_error"] = std::sqrt(error / norm);
    row["largest_error"] = largest;
    rows.push_back(row);
  }
  return {{"kv_heads", kKvHeads}, {"query_heads", kQueryHeads},
          {"head_dim", kHeadDim}, {"tokens", kCodedTokens},
          {"queries", kQueries},  {"page_tokens", kPageTokens},
          {"rows", rows}};
}

void print_codecs(const Json& facts) {
  fmt::print(
      "3. Codecs\n\n"
      "One layer of {} KV heads and {} query heads of {} channels, {} tokens of normal noise. "
      "Bytes\n"
      "are those of sealed pages, keys and values, all KV heads. The error is that of the "
      "attention\n"
      "output against f32: the norm of the difference over the norm, and the largest element.\n\n",
      facts["kv_heads"].get<int>(), facts["query_heads"].get<int>(), facts["head_dim"].get<int>(),
      grouped(facts["tokens"].get<std::int64_t>()));
  print_table(facts["rows"], {{"codec", "codec"},
                              {"bytes_per_token", "bytes per token", 0},
                              {"bits_per_value", "bits per value", 2},
                              {"relative_error", "relative error"},
                              {"largest_error", "largest error"}});
}

// --- 4. refusal

Json state_of(const std::string& when, const Cache& cache, const Sequence& sequence) {
  const Stats stats = cache.stats();
  return {{"when", when},
          {"tokens", sequence.length().value()},
          {"pages_used", stats.pages_used},
          {"bytes_sealed", stats.bytes_sealed},
          {"bytes_rows", stats.bytes_rows},
          {"bytes_tables", stats.bytes_tables},
          {"open_steps", stats.open_steps}};
}

std::vector<float> keys_of(const Sequence& sequence) {
  std::vector<float> keys;
  sequence
      .for_each(1, Side::key,
                [&](std::int64_t, const float* row) { keys.insert(keys.end(), row, row + 4 * 64); })
      .value();
  return keys;
}

Json refusal() {
  Noise noise(4);
  CacheSpec spec = CacheSpec::uniform({.layers = 2, .kv_heads = 4, .head_dim = 64});
  spec.memory_limit_bytes = 4 * MiB;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = cache.open().value();
  append(cache, sequence, 500, noise);
  const std::vector<float> keys_before = keys_of(sequence);

  Json states = {state_of("before", cache, sequence)};
  Json refused = Json::array();
  const auto note = [&](const char* call, const Error& error) {
    refused.push_back({{"call", call}, {"error", error_name(error.code)}, {"text", error.text}});
  };

  Batch large;
  large.add(sequence.id(), 500, 10000);
  if (const Result<Step> step = cache.begin(large); !step) note("begin", step.error());
  states.push_back(state_of("after the refused begin", cache, sequence));

  {
    Batch batch;
    batch.add(sequence.id(), 500, 100);
    Step step = cache.begin(batch).value();
    auto rows = noise.draw(100 * 4 * 64);
    step.put(0, rows_of(rows, 100, 4, 64), rows_of(rows, 100, 4, 64)).value();
    auto broken = rows;
    broken[(42 * 4 + 3) * 64 + 7] = std::numeric_limits<float>::quiet_NaN();
    const Result<void> put = step.put(1, rows_of(rows, 100, 4, 64), rows_of(broken, 100, 4, 64));
    if (!put) note("put", put.error());
    if (const auto commit = step.commit(); !commit) note("commit", commit.error());
    states.push_back(state_of("while the step is open", cache, sequence));
  }  // the step ends without a commit: dropped
  states.push_back(state_of("after the step was dropped", cache, sequence));

  Json first = states.front();
  Json last = states.back();
  first.erase("when");
  last.erase("when");
  return {{"memory_limit_bytes", *spec.memory_limit_bytes},
          {"refused", refused},
          {"states", states},
          {"unchanged", first == last && keys_of(sequence) == keys_before}};
}

void print_refusal(const Json& facts) {
  fmt::print(
      "4. A refused step\n\n"
      "A sequence of 500 tokens in a cache of at most {} bytes. Two steps are tried: one of "
      "10,000\n"
      "tokens, and one of 100 tokens with a value that is not a number in its second layer.\n\n",
      grouped(facts["memory_limit_bytes"].get<std::int64_t>()));
  print_table(facts["refused"], {{"call", "call"}, {"error", "error"}, {"text", "text"}});
  fmt::print("\n");
  print_table(facts["states"], {{"when", "when"},
                                {"tokens", "tokens"},
                                {"pages_used", "pages"},
                                {"bytes_sealed", "sealed bytes"},
                                {"bytes_rows", "row bytes"},
                                {"bytes_tables", "table bytes"},
                                {"open_steps", "open steps"}});
  fmt::print("\nNumbers and stored keys before and after: {}\n",
             facts["unchanged"].get<bool>() ? "the same" : "different");
}

void run(bool json) {
  if (json) {
    print_json({{"sharing", sharing()},
                {"window", window()},
                {"codecs", codecs()},
                {"refusal", refusal()}});
    return;
  }
  print_sharing(sharing());
  fmt::print("\n");
  print_window(window());
  fmt::print("\n");
  print_codecs(codecs());
  fmt::print("\n");
  print_refusal(refusal());
}

}  // namespace

void add_demo(CLI::App& program) {
  CLI::App* demo = program.add_subcommand(
      "demo", "A short tour on synthetic data: sharing, windows, codecs, a refused step");
  auto json = std::make_shared<bool>(false);
  demo->add_flag("--json", *json, "Print the tour's facts as one JSON object");
  demo->callback([json] { run(*json); });
}

}  // namespace quire::tool
