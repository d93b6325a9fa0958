#include "model/evaluate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>

#include "model/error.h"
#include "model/ops.h"
#include "model/reference_attention.h"

namespace quire::model {
namespace {

using Clock = std::chrono::steady_clock;

// What one codec's passes gave so far.
struct Tally {
  std::string name;
  Cache cache;
  std::vector<double> losses;       // -log p of each predicted token
  std::vector<double> divergences;  // of each prediction
  std::int64_t agreed = 0;          // predictions whose most likely token is that of f16
  std::int64_t tokens = 0;
  double seconds = 0;
  double bytes_per_token = 0;
};

class Runner {
 public:
  Runner(const Model& model, const EvalOptions& options)
      : model_(model),
        options_(options),
        vocabulary_(static_cast<std::size_t>(model.config().vocabulary)) {
    reference_.resize(static_cast<std::size_t>(options.context / 2) * vocabulary_);
    logits_.resize(static_cast<std::size_t>(options.step_tokens) * vocabulary_);
  }

  // Runs one chunk. Of f16 the predictions are kept; others are compared with them.
  Result<void> run(Tally& tally, std::span<const int> chunk, bool is_reference) {
    const Attention attention =
        options_.reference_attention ? reference_attention(tally.cache) : Attention();
    MODEL_TRY(const Sequence sequence, tally.cache.open());
    const std::int64_t context = options_.context;
    for (std::int64_t begin = 0, end = 0; begin < context; begin = end) {
      end = std::min(begin + options_.step_tokens, context);
      if (options_.reference_attention) {
        end = std::min(end, reference_step_end(tally.cache.spec(), begin));
      }
      const auto start = Clock::now();
      const std::int64_t first = std::clamp(context / 2 - 1, begin, end);
      const std::int64_t last = std::clamp(context - 1, begin, end);
      MODEL_CHECK(step(tally, sequence, chunk, begin, end, first, last, attention));
      tally.seconds += std::chrono::duration<double>(Clock::now() - start).count();
      for (std::int64_t position = first; position < last; ++position) {
        compare(tally, position, first, chunk, is_reference);
      }
    }
    tally.tokens += context;
    tally.cache.shrink();
    tally.bytes_per_token =
        static_cast<double>(tally.cache.stats().bytes) / static_cast<double>(context);
    return sequence.close();
  }

 private:
  // Tokens [begin, end); logits of positions [first, last).
  Result<void> step(Tally& tally, const Sequence& sequence, std::span<const int> chunk,
                    std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t last,
                    const Attention& attention) {
    const Batch batch = Batch().add(sequence.id(), begin, end - begin);
    std::vector<std::int64_t> rows(static_cast<std::size_t>(last - first));
    std::iota(rows.begin(), rows.end(), first - begin);
    MODEL_TRY(Step open, tally.cache.begin(batch));
    MODEL_CHECK(model_.forward(
        open, batch,
        chunk.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)), rows,
        logits_.data(), attention));
    MODEL_CHECK(open.commit());
    return {};
  }

  void compare(Tally& tally, std::int64_t position, std::int64_t first, std::span<const int> chunk,
               bool is_reference) {
    const std::span<float> found(
        logits_.data() + static_cast<std::size_t>(position - first) * vocabulary_, vocabulary_);
    const auto index = static_cast<std::size_t>(position - (options_.context / 2 - 1));
    const std::span<float> kept(reference_.data() + index * vocabulary_, vocabulary_);
    log_softmax(found);
    const auto next = static_cast<std::size_t>(chunk[static_cast<std::size_t>(position) + 1]);
    tally.losses.push_back(-found[next]);
    if (is_reference) {
      std::copy(found.begin(), found.end(), kept.begin());
      tally.divergences.push_back(0);
      ++tally.agreed;
    } else {
      tally.divergences.push_back(divergence(kept, found));
      tally.agreed += argmax(kept) == argmax(found);
    }
  }

  const Model& model_;
  const EvalOptions& options_;
  std::size_t vocabulary_;
  std::vector<float> reference_;  // [context / 2][vocabulary] log-probabilities of f16
  std::vector<float> logits_;     // [step_tokens][vocabulary]
};

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// The least value that a share `p` of all does not pass. `values` are sorted.
double percentile(const std::vector<double>& values, double p) {
  const double rank = std::ceil(p * static_cast<double>(values.size()));
  return values[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

Result<double> sealed_bits(const Cache& cache) {
  double bits = 0;
  double values = 0;
  for (std::size_t i = 0; i < cache.spec().layers.size(); ++i) {
    const LayerSpec& layer = cache.spec().layers[i];
    MODEL_TRY(const LayerInfo info, cache.layer_info(static_cast<int>(i)));
    bits += 8.0 * static_cast<double>(info.sealed_bytes_per_page);
    values += static_cast<double>(cache.spec().page_tokens) * layer.kv_heads *
              (layer.key_dim + layer.value_dim);
  }
  return bits / values;
}

Result<EvalRow> row_of(const Tally& tally, const Tally& reference) {
  EvalRow row;
  row.codec = tally.name;
  row.ppl = std::exp(mean_of(tally.losses));
  const auto count = static_cast<double>(tally.losses.size());
  std::vector<double> differences;
  for (std::size_t i = 0; i < tally.losses.size(); ++i) {
    differences.push_back(tally.losses[i] - reference.losses[i]);
  }
  const double mean = mean_of(differences);
  double squares = 0;
  for (const double difference : differences) squares += (difference - mean) * (difference - mean);
  row.ppl_delta = std::expm1(mean);
  row.ppl_delta_se = std::exp(mean) * std::sqrt(squares / std::max(count - 1, 1.0) / count);
  std::vector<double> divergences = tally.divergences;
  std::sort(divergences.begin(), divergences.end());
  row.kld_mean = mean_of(divergences);
  row.kld_p99 = percentile(divergences, 0.99);
  row.kld_p999 = percentile(divergences, 0.999);
  row.top1 = static_cast<double>(tally.agreed) / count;
  row.bytes_per_token = tally.bytes_per_token;
  MODEL_TRY(row.bits_per_value, sealed_bits(tally.cache));
  row.tokens_per_second = static_cast<double>(tally.tokens) / tally.seconds;
  return row;
}

Result<std::vector<Tally>> make_tallies(const Model& model, const EvalOptions& options) {
  std::vector<NamedCodec> codecs = {{"f16", {{"f16", "f16"}}}};
  for (const NamedCodec& codec : options.codecs) {
    if (codec.name != "f16") codecs.push_back(codec);
  }
  std::vector<Tally> tallies;
  for (const NamedCodec& codec : codecs) {
    CacheSpec spec = model.cache_spec();
    MODEL_CHECK(codec.codec.apply_to(spec));
    MODEL_TRY(Cache cache, Cache::create(spec));
    tallies.push_back(
        {.name = codec.name, .cache = std::move(cache), .losses = {}, .divergences = {}});
  }
  return tallies;
}

}  // namespace

Result<Evaluation> evaluate(const Model& model, std::span<const int> tokens,
                            const EvalOptions& options) {
  const std::int64_t context = options.context;
  if (context < 4 || options.chunks < 1 || options.step_tokens < 1) {
    return refuse("evaluate: context {} (at least 4), {} chunks, steps of {} tokens", context,
                  options.chunks, options.step_tokens);
  }
  const std::int64_t chunks =
      std::min(options.chunks, static_cast<std::int64_t>(tokens.size()) / context);
  if (chunks < 1) {
    return refuse("evaluate: a text of {} tokens has no chunk of {}", tokens.size(), context);
  }
  MODEL_TRY(std::vector<Tally> tallies, make_tallies(model, options));
  Runner runner(model, options);
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const auto text = tokens.subspan(static_cast<std::size_t>(chunk * context),
                                     static_cast<std::size_t>(context));
    for (Tally& tally : tallies) {
      if (options.progress) options.progress(chunk, chunks, tally.name);
      MODEL_CHECK(runner.run(tally, text, &tally == &tallies.front()));
    }
  }
  Evaluation evaluation{context, chunks, chunks * (context / 2), {}};
  for (const Tally& tally : tallies) {
    MODEL_TRY(EvalRow row, row_of(tally, tallies.front()));
    evaluation.rows.push_back(std::move(row));
  }
  return evaluation;
}

}  // namespace quire::model
