// quire bench codec: what each codec takes, what it loses and how fast it is, on made-up data.
//
// A row is a codec, a side and a head size. All of it goes through the public surface: rows are
// put, whole pages of 64 tokens are sealed, and what a sequence then holds is read back.
//
// `bytes_per_token` and `sealed_bits` are the sealed bytes of one KV head, per token and, in bits,
// per number, without the padding between heads. `true_bits` are all bytes of a cache with one
// sequence of 8,192 tokens and 8 KV heads, as its memory counts them: the side's share of the
// codes, and half of the rest (rows kept for `rollback`, page headers, tables), over the side's
// numbers. Free blocks were given back. Both sides have the codec, or values f16 where it encodes
// keys only.
//
// `mse`, `bias` and `variance` are on N(0, 1) (distortion.h): the relative mean square error, and
// what becomes of inner products with a vector. `kl_...` are divergences of attention weights with
// coded keys from those with exact ones, in nats, for three kinds of keys: normal, with a large
// rotated bias, and of uneven lengths with outlier channels. Values have none.
//
// `encode_gbps` and `decode_gbps` are f16 bytes per second and thread: of put, which writes rows as
// well as codes, and of gather to f16. Put takes two sides: the other one has 16 channels of f16
// then (of f32 and bf16 for those, so that rows are of the codec's type). Its bytes are not
// counted; its time, about 15 ns for each row on a Zen 4 core, is in.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "distortion.h"
#include "machine.h"
#include "noise.h"
#include "options.h"
#include "print.h"
#include "quire/cache.hpp"

namespace quire::tool {
namespace {

constexpr std::int64_t kPageTokens = 64;
constexpr std::int64_t kStepTokens = 512;
constexpr int kKvHeads = 8;
constexpr int kOtherDim = 16;
constexpr double kEnoughSeconds = 0.2;  // of rounds, at each speed
constexpr int kRounds = 3;              // at least

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Size {
  std::int64_t tokens = 8192;
  std::int64_t key_tokens = 1024;  // whose weights are compared
  int key_heads = 16;
  int queries = 16;  // per head
  std::int64_t speed_tokens = 4096;
  double seconds = kEnoughSeconds;
};
constexpr Size kQuick = {512, 128, 1, 4, 128, 0};

struct Case {
  std::string codec;
  Side side = Side::key;
  int dim = 0;

  std::string text() const { return fmt::format("{}, {}, head size {}", codec, side_name(), dim); }
  const char* side_name() const { return side == Side::key ? "key" : "value"; }
};

CacheSpec spec_of(const CodecPair& codec, int heads, int key_dim, int value_dim) {
  CacheSpec spec =
      CacheSpec::uniform({.layers = 1, .kv_heads = heads, .head_dim = key_dim, .codec = codec});
  spec.layers[0].value_dim = value_dim;
  spec.page_tokens = static_cast<int>(kPageTokens);
  return spec;
}

TensorView part_of(const TensorView& rows, std::int64_t first, std::int64_t count) {
  TensorView part = rows;
  part.data = static_cast<const std::byte*>(rows.data) +
              static_cast<std::size_t>(first * rows.token_stride) * bytes_of(rows.dtype);
  part.tokens = count;
  return part;
}

// A new sequence with all of the rows; `seconds`, where given, gets those of the puts.
Sequence filled(Cache& cache, const TensorView& keys, const TensorView& values,
                double* seconds = nullptr) {
  const Sequence sequence = cache.open().value();
  double total = 0;
  for (std::int64_t at = 0; at < keys.tokens; at += kStepTokens) {
    const std::int64_t count = std::min(kStepTokens, keys.tokens - at);
    Step step = cache.begin(Batch().add(sequence.id(), at, count)).value();
    const auto start = Clock::now();
    step.put(0, part_of(keys, at, count), part_of(values, at, count)).value();
    total += seconds_since(start);
    step.commit().value();
  }
  if (seconds != nullptr) *seconds = total;
  return sequence;
}

TensorView view_of(const Rows& rows) {
  return TensorView::dense(rows.data.data(), DType::f32, rows.tokens, rows.heads, rows.dim);
}

// What a sequence gives back of rows like these.
Rows read_back(const Sequence& sequence, Side side, const Rows& like) {
  Rows rows(like.tokens, like.heads, like.dim);
  sequence.read(0, side, {}, rows.data.data(), static_cast<std::int64_t>(rows.data.size())).value();
  return rows;
}

// --- bytes and errors of inner products

// Codes and scales of one head of one sealed page.
std::size_t sealed_bytes(const std::vector<RunView>& runs, Side side) {
  for (const RunView& run : runs) {
    if (run.side == side) return run.data_bytes + run.scale_bytes;
  }
  return 0;
}

void measure_pages(const Case& task, const Size& size, Json& row) {
  const Result<CodecPair> both = parse_codec(task.codec);
  const CodecPair codec = both ? *both : CodecPair{task.codec, "f16"};
  const Rows keys = gaussian_rows(size.tokens, kKvHeads, task.dim, 1);
  const Rows values = gaussian_rows(size.tokens, kKvHeads, task.dim, 2);
  Cache cache = Cache::create(spec_of(codec, kKvHeads, task.dim, task.dim)).value();
  const Sequence sequence = filled(cache, view_of(keys), view_of(values));
  cache.shrink();

  const std::vector<RunView> runs = sequence.runs(0).value();
  const auto own = static_cast<double>(sealed_bytes(runs, task.side));
  const auto other =
      static_cast<double>(sealed_bytes(runs, task.side == Side::key ? Side::value : Side::key));
  const Stats stats = cache.stats();
  const auto sealed = static_cast<double>(stats.bytes_sealed);
  const double bytes =
      sealed * own / (own + other) + (static_cast<double>(stats.bytes) - sealed) / 2;
  row["sealed_bits"] = 8 * own / static_cast<double>(kPageTokens * task.dim);
  row["true_bits"] = 8 * bytes / static_cast<double>(size.tokens * kKvHeads * task.dim);
  row["bytes_per_token"] = own / kPageTokens;

  const Rows& exact = task.side == Side::key ? keys : values;
  const Rows decoded = read_back(sequence, task.side, exact);
  row["mse"] = relative_mse(exact, decoded);
  row["bias"] = inner_product_bias(exact, decoded);
  row["variance"] = inner_product_variance(exact, decoded);
}

// --- attention weights

// The codec on its side, and on the other one a float that makes no other rows.
CodecPair alone(const Case& task) {
  const bool is_float = task.codec == "f32" || task.codec == "bf16";
  const std::string other = is_float ? task.codec : "f16";
  return task.side == Side::key ? CodecPair{task.codec, other} : CodecPair{other, task.codec};
}

double key_divergence(const Case& task, const Size& size, const Rows& keys) {
  const Rows nothing(keys.tokens, keys.heads, kOtherDim);
  Cache cache = Cache::create(spec_of(alone(task), keys.heads, task.dim, kOtherDim)).value();
  const Sequence sequence = filled(cache, view_of(keys), view_of(nothing));
  return attention_kl(keys, read_back(sequence, Side::key, keys), size.queries);
}

void measure_weights(const Case& task, const Size& size, Json& row) {
  if (task.side == Side::value) {
    for (const char* field : {"kl_gaussian", "kl_biased", "kl_uneven"}) row[field] = nullptr;
    return;
  }
  const auto divergence = [&](Rows (*rows)(std::int64_t, int, int, std::uint32_t)) {
    return key_divergence(task, size, rows(size.key_tokens, size.key_heads, task.dim, 3));
  };
  row["kl_gaussian"] = divergence(gaussian_rows);
  row["kl_biased"] = divergence(biased_rows);
  row["kl_uneven"] = divergence(uneven_rows);
}

// --- speed

// The fastest of enough rounds, each of which returns its seconds.
template <typename Round>
double fastest(double enough, Round&& round) {
  double best = std::numeric_limits<double>::infinity();
  double total = 0;
  for (int rounds = 0; rounds < kRounds || total < enough; ++rounds) {
    const double seconds = round();
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

void measure_speed(const Case& task, const Size& size, Json& row) {
  const bool is_key = task.side == Side::key;
  const auto numbers = static_cast<std::size_t>(size.speed_tokens * kKvHeads * task.dim);
  const std::vector<std::uint16_t> source = normal_f16(
      std::max(numbers, static_cast<std::size_t>(size.speed_tokens * kKvHeads * kOtherDim)));
  const auto side =
      TensorView::dense(source.data(), DType::f16, size.speed_tokens, kKvHeads, task.dim);
  const auto other =
      TensorView::dense(source.data(), DType::f16, size.speed_tokens, kKvHeads, kOtherDim);
  CacheSpec spec =
      spec_of(alone(task), kKvHeads, is_key ? task.dim : kOtherDim, is_key ? kOtherDim : task.dim);
  spec.rollback = 0;  // no page is left as rows
  Cache cache = Cache::create(spec).value();
  const auto fill = [&](double* seconds) {
    return is_key ? filled(cache, side, other, seconds) : filled(cache, other, side, seconds);
  };
  const double encode_s = fastest(size.seconds, [&] {
    double seconds = 0;
    fill(&seconds).close().value();
    return seconds;
  });
  const Sequence sequence = fill(nullptr);
  std::vector<std::uint16_t> decoded(numbers);
  const auto elements = static_cast<std::int64_t>(numbers);
  const GatherFormat format = {.dtype = DType::f16};
  const double decode_s = fastest(size.seconds, [&] {
    const auto start = Clock::now();
    sequence
        .gather(0, format, is_key ? decoded.data() : nullptr, is_key ? elements : 0,
                is_key ? nullptr : decoded.data(), is_key ? 0 : elements)
        .value();
    return seconds_since(start);
  });
  const double gigabytes = static_cast<double>(numbers * sizeof source[0]) / 1e9;
  row["encode_gbps"] = gigabytes / encode_s;
  row["decode_gbps"] = gigabytes / decode_s;
}

// --- what to run

struct Options {
  bool json = false;
  bool quick = false;
  // Empty: the default.
  std::vector<std::string> codecs;
  std::vector<int> head_dims;
};

std::string known_codec(const std::string& text) {
  const std::vector<std::string> names = codec_names();
  if (std::find(names.begin(), names.end(), text) == names.end()) {
    throw std::invalid_argument(
        fmt::format("\"{}\" is not a codec; codecs: {}", text, fmt::join(names, " ")));
  }
  return text;
}

std::vector<Case> cases_of(const Options& options) {
  std::vector<Case> cases;
  for (const std::string& codec : options.codecs.empty() ? codec_names() : options.codecs) {
    for (const int dim : options.head_dims.empty() ? std::vector{64, 128} : options.head_dims) {
      cases.push_back({codec, Side::key, dim});
      // A codec that encodes keys only names no pair by itself.
      if (parse_codec(codec)) cases.push_back({codec, Side::value, dim});
    }
  }
  return cases;
}

Json measure(const Case& task, const Size& size) {
  fmt::print(stderr, "bench codec: {}\n", task.text());
  Json found;
  measure_pages(task, size, found);
  measure_weights(task, size, found);
  measure_speed(task, size, found);
  Json row = {{"codec", task.codec}, {"side", task.side_name()}, {"head_dim", task.dim}};
  for (const char* field :
       {"sealed_bits", "true_bits", "mse", "bias", "variance", "kl_gaussian", "kl_biased",
        "kl_uneven", "encode_gbps", "decode_gbps", "bytes_per_token"}) {
    row[field] = found[field];
  }
  return row;
}

void run(const Options& options) {
  Json rows = Json::array();
  for (const Case& task : cases_of(options)) {
    rows.push_back(measure(task, options.quick ? kQuick : Size{}));
  }
  print_measured(rows, options.json,
                 {{"codec", "codec"},
                  {"side", "side"},
                  {"head_dim", "head size"},
                  {"bytes_per_token", "bytes/token", 0},
                  {"sealed_bits", "sealed bits", 3},
                  {"true_bits", "true bits", 3},
                  {"mse", "MSE"},
                  {"bias", "bias"},
                  {"variance", "variance"},
                  {"kl_gaussian", "KL gaussian"},
                  {"kl_biased", "KL biased"},
                  {"kl_uneven", "KL uneven"},
                  {"encode_gbps", "encode GB/s", 2},
                  {"decode_gbps", "decode GB/s", 2}});
}

}  // namespace

void add_bench_codec(CLI::App& bench) {
  CLI::App* codec = bench.add_subcommand("codec", "Bytes, errors and speed of each codec");
  auto options = std::make_shared<Options>();
  codec->add_flag("--json", options->json, "Print {\"machine\": {...}, \"rows\": [...]}");
  codec->add_flag("--quick", options->quick,
                  "Few tokens and rounds, for a test: the numbers mean little");
  add_list(*codec, "--codec", options->codecs, known_codec, "By name: int8,tq4,dual4");
  add_list(
      *codec, "--head-dim", options->head_dims,
      [](const std::string& text) { return static_cast<int>(parse_count(text, 8, 4096)); },
      "Channels of a head: 64,128");
  codec->callback([options] { run(*options); });
}

}  // namespace quire::tool
