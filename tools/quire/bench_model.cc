// quire bench model: tokens per second of a whole model, and what this machine allows at most.
//
// `prompt` rows: an empty sequence takes so many tokens, in steps of 512, and gives the logits of
// the last. `decode` rows: a sequence that holds so many tokens takes --tokens more, one per step,
// each with its logits. Only those calls are timed, not the loading and not what fills the cache.
//
// A round feeds every codec's sequence up to the shortest prompt or depth, then up to the next and
// so on; a prompt's time is the sum of its pieces. Then it decodes at the depths, the largest
// first, cutting the sequence back in between. At each point all codecs come one after the other,
// so that they see the same machine; a few tokens before those that are timed bring weights and
// pages near, and every second round goes in the opposite order. A row is the median of its rounds;
// a short round before them is not counted.
//
// `bytes` of a decode row are what a token reads at least: the matrices once, as they are kept, and
// the keys and values that it sees on average. `floor_ms` is those bytes over the read bandwidth,
// measured between the rounds, of which the best counts. Prompts are bound by multiply-adds and
// have none.
//
// With --serve it times what it is told: the first line of stdin has token ids; each later one is
// `feed CODEC n` (up to n tokens), `decode CODEC n` (n more) or `cut CODEC n` (back to n), and is
// answered by a line with seconds. bench/peers drives it so, in turn with other programs.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "commands.h"
#include "machine.h"
#include "median.h"
#include "model/model.h"
#include "model_options.h"
#include "options.h"
#include "print.h"
#include "quire/cache.hpp"
#include "quire/executor.hpp"
#include "read_meter.h"

namespace quire::tool {
namespace {

constexpr std::int64_t kWarmTokens = 4;

struct Options {
  ModelChoice model;
  std::vector<std::string> codecs = {"f16", "balanced"};
  std::vector<std::int64_t> depths = {0, 512, 4096, 7680};
  std::vector<std::int64_t> prompts = {512, 4096, 7680};
  std::int64_t tokens = 32;
  int rounds = 3;
  bool quick = false;
  bool json = false;
  bool is_server = false;

  int threads() const { return model.threads > 0 ? model.threads : usable_cores(); }
  // Where a round stops feeding: all prompts and depths, in order.
  std::set<std::int64_t> marks() const {
    std::set<std::int64_t> marks(prompts.begin(), prompts.end());
    marks.insert(depths.begin(), depths.end());
    return marks;
  }
};

// --- what is measured

// One sequence in a cache of its own.
class Subject {
 public:
  Subject(const model::Model& model, const std::string& codec, const std::vector<int>& ids)
      : model_(model),
        ids_(ids),
        cache_(Cache::create(spec_of(model, codec)).value()),
        sequence_(cache_.open().value()),
        logits_(static_cast<std::size_t>(model.config().vocabulary)) {}

  // Appends tokens until the sequence has `end`; returns the seconds. They are none where it has.
  double feed(std::int64_t end) { return append(end, model::kStepTokens); }
  // Appends `count` tokens, one per step; returns the seconds.
  double decode(std::int64_t count) { return append(length() + count, 1); }
  // Feeds again what a window has let go of.
  void cut(std::int64_t length) {
    if (sequence_.can_resume(length).value() == Resume::no) {
      sequence_.truncate(0).value();
      feed(length);
    } else {
      sequence_.truncate(length).value();
    }
  }

  std::int64_t length() const { return sequence_.next_position().value(); }
  // The keys and values that the last of `tokens` > 0 tokens sees.
  std::size_t bytes_seen(std::int64_t tokens) const;

 private:
  static CacheSpec spec_of(const model::Model& model, const std::string& codec) {
    CacheSpec spec = model.cache_spec();
    spec.set_codec(codec).value();
    return spec;
  }
  double append(std::int64_t end, std::int64_t step_tokens);

  const model::Model& model_;
  const std::vector<int>& ids_;
  Cache cache_;
  Sequence sequence_;
  std::vector<float> logits_;
};

double Subject::append(std::int64_t end, std::int64_t step_tokens) {
  if (end > std::ssize(ids_)) {
    throw std::runtime_error(fmt::format("bench model: {} tokens, there are {}", end, ids_.size()));
  }
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t at = length(); at < end;) {
    const std::int64_t count = std::min(step_tokens, end - at);
    const Batch batch = Batch().add(sequence_.id(), at, count);
    Step step = cache_.begin(batch).value();
    const std::span<const int> ids(ids_.data() + at, static_cast<std::size_t>(count));
    const std::int64_t last = count - 1;
    at += count;
    const std::size_t wanted = step_tokens == 1 || at == end ? 1 : 0;
    model_.forward(step, batch, ids, {&last, wanted}, logits_.data()).value();
    step.commit().value();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::size_t Subject::bytes_seen(std::int64_t tokens) const {
  const std::int64_t page = cache_.spec().page_tokens;
  std::size_t bytes = 0;
  for (int i = 0; i < static_cast<int>(cache_.spec().layers.size()); ++i) {
    const LayerInfo layer = cache_.layer_info(i).value();
    const std::int64_t window = model_.config().layers[static_cast<std::size_t>(i)].window;
    const std::int64_t seen = window > 0 ? std::min(window, tokens) : tokens;
    const std::int64_t sealed = (seen - 1) / page;
    bytes += static_cast<std::size_t>(sealed) * layer.sealed_bytes_per_page +
             static_cast<std::size_t>(seen - sealed * page) * layer.row_bytes_per_token;
  }
  return bytes;
}

// Of the matrices that one token is multiplied with, as the weight form keeps them. The embedding
// counts where it is the output as well.
std::size_t matrix_bytes(const model::Model& model, const std::string& weights) {
  const bool is_tied = model.file().find("output.weight") == nullptr;
  std::size_t bytes = 0;
  for (const model::GgufTensor& tensor : model.file().tensors()) {
    if (tensor.shape.size() != 2 || (tensor.name == "token_embd.weight" && !is_tied)) continue;
    bytes += weights == "f32" ? static_cast<std::size_t>(tensor.elements) * sizeof(float)
                              : tensor.data.size();
  }
  return bytes;
}

// Some tokens of the vocabulary; which ones does not matter to the time.
std::vector<int> some_ids(std::int64_t count, int vocabulary) {
  std::vector<int> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int>(i * 7919 % vocabulary));
  return ids;
}

// --- rounds

// Seconds of each round, by the index of the codec and the tokens of a prompt or a depth.
struct Times {
  using Place = std::pair<std::size_t, std::int64_t>;
  std::map<Place, std::vector<double>> prompts;
  std::map<Place, std::vector<double>> decodes;
};

class Bench {
 public:
  explicit Bench(const Options& options);
  void run();

 private:
  void round(const std::set<std::int64_t>& marks, const std::vector<std::int64_t>& depths,
             Times& times);
  void measure_bandwidth();
  Json rows(const Times& times) const;
  Json row(const char* kind, const Times::Place& place, double seconds, std::int64_t count) const;

  const Options& options_;
  model::Model model_;
  std::vector<int> ids_;
  std::deque<Subject> subjects_;    // one per codec
  std::vector<std::size_t> order_;  // in which they take turns
  double read_gbps_ = 0;
};

Bench::Bench(const Options& options) : options_(options), model_(options.model.load()) {
  const std::int64_t depth = *std::max_element(options.depths.begin(), options.depths.end());
  const std::int64_t most =
      std::max(*options.marks().rbegin(), depth + std::max(options.tokens, kWarmTokens));
  check_context("bench model", model_, most);
  ids_ = some_ids(most, model_.config().vocabulary);
  for (const std::string& codec : options.codecs) {
    order_.push_back(subjects_.size());
    subjects_.emplace_back(model_, codec, ids_);
  }
}

void Bench::measure_bandwidth() {
  const ReadMeter meter(build_info().isa_chosen, options_.threads(), options_.quick);
  read_gbps_ = std::max(read_gbps_, meter.best());
}

void Bench::round(const std::set<std::int64_t>& marks, const std::vector<std::int64_t>& depths,
                  Times& times) {
  std::vector<double> total(subjects_.size());
  for (Subject& subject : subjects_) subject.cut(0);
  for (const std::int64_t mark : marks) {
    for (const std::size_t i : order_) {
      total[i] += subjects_[i].feed(mark);
      times.prompts[{i, mark}].push_back(total[i]);
    }
  }
  for (const std::int64_t depth : depths) {
    for (const std::size_t i : order_) {
      subjects_[i].cut(depth);
      subjects_[i].decode(kWarmTokens);
      subjects_[i].cut(depth);
      times.decodes[{i, depth}].push_back(subjects_[i].decode(options_.tokens));
    }
  }
  std::reverse(order_.begin(), order_.end());
}

Json Bench::row(const char* kind, const Times::Place& place, double seconds,
                std::int64_t count) const {
  const auto [subject, tokens] = place;
  const double ms = 1e3 * seconds / static_cast<double>(count);
  Json row = {{"kind", kind},
              {"tokens", tokens},
              {"codec", options_.codecs[subject]},
              {"weights", options_.model.weights},
              {"threads", options_.threads()},
              {"tokens_per_second", 1e3 / ms},
              {"ms", ms},
              {"bytes", nullptr},
              {"gbps", nullptr},
              {"floor_ms", nullptr},
              {"efficiency", nullptr}};
  if (kind == std::string("decode")) {
    const std::size_t bytes = matrix_bytes(model_, options_.model.weights) +
                              subjects_[subject].bytes_seen(tokens + (count + 1) / 2);
    const double read_ms = static_cast<double>(bytes) / read_gbps_ / 1e6;
    row["bytes"] = bytes;
    row["gbps"] = static_cast<double>(bytes) / ms / 1e6;
    row["floor_ms"] = read_ms;
    row["efficiency"] = read_ms / ms;
  }
  return row;
}

Json Bench::rows(const Times& times) const {
  Json rows = Json::array();
  for (const std::int64_t tokens : options_.prompts) {
    for (std::size_t i = 0; i < subjects_.size(); ++i) {
      const Times::Place place(i, tokens);
      rows.push_back(row("prompt", place, median(times.prompts.at(place)), tokens));
    }
  }
  for (const std::int64_t depth : options_.depths) {
    for (std::size_t i = 0; i < subjects_.size(); ++i) {
      const Times::Place place(i, depth);
      rows.push_back(row("decode", place, median(times.decodes.at(place)), options_.tokens));
    }
  }
  return rows;
}

void Bench::run() {
  Times uncounted;
  const std::set<std::int64_t> marks = options_.marks();
  if (!options_.quick) round({std::min<std::int64_t>(64, *marks.rbegin())}, {0}, uncounted);
  std::vector<std::int64_t> depths = options_.depths;
  std::sort(depths.rbegin(), depths.rend());
  Times times;
  for (int i = 0; i < options_.rounds; ++i) {
    measure_bandwidth();
    fmt::print(stderr, "bench model: round {} of {}\n", i + 1, options_.rounds);
    round(marks, depths, times);
  }
  measure_bandwidth();
  const Json rows = this->rows(times);
  if (options_.json) {
    Json facts = machine();
    facts["read_gbps"] = read_gbps_;
    print_json({{"machine", facts}, {"model", model_.config().name}, {"rows", rows}});
    return;
  }
  print_machine();
  fmt::print("{}; memory gives {:.1f} GB/s\n\n", model_.config().name, read_gbps_);
  print_table(rows, {{"kind", "kind"},
                     {"tokens", "tokens"},
                     {"codec", "codec"},
                     {"weights", "weights"},
                     {"threads", "threads"},
                     {"tokens_per_second", "tokens/s", 1},
                     {"ms", "ms per token", 2},
                     {"gbps", "GB/s", 1},
                     {"floor_ms", "floor ms", 2},
                     {"efficiency", "efficiency", 3}});
}

// --- told from outside

void serve(const Options& options) {
  const model::Model model = options.model.load();
  std::string line;
  std::getline(std::cin, line);
  std::istringstream words(line);
  std::vector<int> ids;
  for (int id = 0; words >> id;) ids.push_back(id);
  if (ids.empty() || !words.eof()) {
    throw std::runtime_error("bench model: the first line of stdin must be token ids");
  }
  check_context("bench model", model, std::ssize(ids));
  std::map<std::string, Subject> subjects;
  for (const std::string& codec : options.codecs) subjects.try_emplace(codec, model, codec, ids);
  fmt::print("ready\n");
  std::fflush(stdout);
  while (std::getline(std::cin, line)) {
    std::istringstream command(line);
    std::string verb;
    std::string codec;
    std::int64_t count = -1;
    command >> verb >> codec >> count;
    const auto subject = subjects.find(codec);
    const bool is_known = verb == "feed" || verb == "decode" || verb == "cut";
    if (!command || count < 0 || !is_known || subject == subjects.end()) {
      throw std::runtime_error(fmt::format("bench model: cannot do \"{}\"", line));
    }
    double seconds = 0;
    if (verb == "feed") {
      seconds = subject->second.feed(count);
    } else if (verb == "decode") {
      seconds = subject->second.decode(count);
    } else {
      subject->second.cut(count);
    }
    fmt::print("{:.9f}\n", seconds);
    std::fflush(stdout);
  }
}

void run(const Options& options) {
  if (options.is_server) {
    serve(options);
  } else {
    Bench(options).run();
  }
}

}  // namespace

void add_bench_model(CLI::App& bench) {
  CLI::App* model = bench.add_subcommand(
      "model", "Tokens per second of a model: prompts, and decoding at depths");
  auto options = std::make_shared<Options>();
  options->model.add_to(*model);
  add_list(
      *model, "--codec", options->codecs,
      [](const std::string& text) {
        codec_of(text);
        return text;
      },
      "Of keys and values, of each, or presets; default: f16,balanced");
  add_list(
      *model, "--depths", options->depths,
      [](const std::string& text) { return parse_count(text, 0, 1 << 24); },
      "Tokens before those that are decoded; default: 0,512,4096,7680");
  add_list(
      *model, "--prompts", options->prompts,
      [](const std::string& text) { return parse_count(text, 1, 1 << 24); },
      "Lengths of prompts; default: 512,4096,7680");
  model->add_option("--tokens", options->tokens, "Tokens to decode at each depth; default: 32")
      ->check(CLI::Range(1, 1 << 20));
  model->add_option("--rounds", options->rounds, "Of which the median counts; default: 3")
      ->check(CLI::Range(1, 1 << 20));
  model->add_flag("--quick", options->quick, "For a test: the floor means little");
  model->add_flag("--json", options->json, "Print {\"machine\", \"model\", \"rows\"}");
  model->add_flag("--serve", options->is_server, "Time what lines of stdin say");
  model->callback([options] { run(*options); });
}

}  // namespace quire::tool
