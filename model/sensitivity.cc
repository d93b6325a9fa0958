#include "model/sensitivity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "model/error.h"
#include "model/ops.h"

namespace quire::model {
namespace {

constexpr Side kSides[] = {Side::key, Side::value};

// A layer with one side coded and the other in f16.
LayerSpec with_codec(LayerSpec layer, Side side, const std::string& codec) {
  layer.codec = {"f16", "f16"};
  (side == Side::key ? layer.codec.key : layer.codec.value) = codec;
  return layer;
}

// A cache of one layer, which stands at place 0.
Result<Cache> cache_of(CacheSpec spec, LayerSpec layer) {
  spec.layers = {std::move(layer)};
  return Cache::create(spec);
}

// The codecs that take one side of a layer, with their bytes.
Result<Place> place_of(const CacheSpec& spec, int index, Side side) {
  const LayerSpec& layer = spec.layers[static_cast<std::size_t>(index)];
  const auto bytes_of = [&](const std::string& codec) -> Result<std::size_t> {
    MODEL_TRY(const Cache cache, cache_of(spec, with_codec(layer, side, codec)));
    MODEL_TRY(const LayerInfo info, cache.layer_info(0));
    return info.sealed_bytes_per_page;
  };
  MODEL_TRY(const std::size_t both_f16, bytes_of("f16"));
  const auto dim = static_cast<std::size_t>(side == Side::key ? layer.key_dim : layer.value_dim);
  const auto dims = static_cast<std::size_t>(layer.key_dim + layer.value_dim);
  const std::size_t other_f16 = both_f16 - both_f16 * dim / dims;
  Place place;
  place.layer = index;
  place.side = side;
  place.page_values = static_cast<std::size_t>(spec.page_tokens * layer.kv_heads) * dim;
  place.candidates.push_back({"f16", both_f16 - other_f16});
  for (const std::string& codec : codec_names()) {
    if (codec == "q8_0" || codec == "q4_0") continue;  // for interchange: attention decodes them
    const Result<std::size_t> bytes = bytes_of(codec);
    if (!bytes || *bytes >= both_f16) continue;  // not for this side or size, or no gain
    place.candidates.push_back({codec, *bytes - other_f16});
  }
  return place;
}

}  // namespace

double Place::loss_of(std::size_t candidate) const {
  const double noise = candidates[candidate].noise;
  if (candidate == 0 || noise <= 0) return 0;
  double ratios = 0;
  double weights = 0;
  for (const Measurement& found : measured) {
    if (found.noise <= 0) continue;
    // A bit is a factor of 4 in noise; measurements one bit away count half.
    const double bits = 0.5 * std::log2(noise / found.noise);
    const double weight = 1 / (1 + bits * bits);
    ratios += weight * found.loss / found.noise;
    weights += weight;
  }
  // Where nothing tells, it is not for the choosing.
  return weights > 0 ? noise * ratios / weights : std::numeric_limits<double>::infinity();
}

Result<Sensitivity> Sensitivity::create(const Model& model, std::int64_t context) {
  const CacheSpec spec = model.cache_spec();
  if (context < 2 * spec.page_tokens) {
    return refuse("sensitivity: chunks of {} tokens, at least two pages of {} are needed", context,
                  spec.page_tokens);
  }
  Sensitivity result(model, context);
  for (int layer = 0; layer < static_cast<int>(spec.layers.size()); ++layer) {
    for (const Side side : kSides) {
      MODEL_TRY(Place place, place_of(spec, layer, side));
      result.noises_.emplace_back(place.candidates.size());
      result.places_.push_back(std::move(place));
    }
  }
  return result;
}

Result<void> Sensitivity::observe(std::span<const int> chunk) {
  if (static_cast<std::int64_t>(chunk.size()) != context_) {
    return refuse("sensitivity: a chunk of {} tokens, {} are expected", chunk.size(), context_);
  }
  streams_.clear();
  MODEL_TRY(Cache cache, Cache::create(model_->cache_spec()));
  MODEL_TRY(const Sequence sequence, cache.open());
  const Batch batch = Batch().add(sequence.id(), 0, context_);
  MODEL_TRY(Step step, cache.begin(batch));
  MODEL_TRY(std::vector<float> stream, model_->embed(chunk));
  const Attention attention = [&](Step& open, int layer, const TensorView& q,
                                  const OutputView& out) -> Result<void> {
    MODEL_CHECK(open.attend(layer, q, out));
    return add_noise(open, layer, sequence.id(), q, out);
  };
  std::vector<std::vector<float>> streams;
  for (int layer = 0; layer < static_cast<int>(cache.spec().layers.size()); ++layer) {
    streams.push_back(stream);
    MODEL_CHECK(model_->run_layers(step, batch, layer, layer + 1, stream, attention));
  }
  MODEL_CHECK(predict(stream, exact_));
  streams_ = std::move(streams);
  ++chunks_;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    for (std::size_t j = 0; j < noises_[i].size(); ++j) {
      double& mean = places_[i].candidates[j].noise;
      mean += (noises_[i][j] - mean) / static_cast<double>(chunks_);
    }
  }
  return {};
}

Result<void> Sensitivity::add_noise(Step& step, int layer, SequenceId sequence, const TensorView& q,
                                    const OutputView& exact) {
  const CacheSpec spec = model_->cache_spec();
  const LayerSpec& shape = spec.layers[static_cast<std::size_t>(layer)];
  MODEL_TRY(const Gathered size, step.gather_size(layer, {sequence}, {}));
  std::vector<float> keys(static_cast<std::size_t>(size.key_elements));
  std::vector<float> values(static_cast<std::size_t>(size.value_elements));
  MODEL_CHECK(step.gather(layer, {sequence}, {}, keys.data(), size.key_elements, values.data(),
                          size.value_elements));
  const auto row = static_cast<std::size_t>(shape.query_heads * shape.value_dim);
  std::vector<float> out(static_cast<std::size_t>(context_) * row);
  for (const Side side : kSides) {
    const std::size_t index = static_cast<std::size_t>(layer) * 2 + (side == Side::value);
    for (std::size_t j = 1; j < places_[index].candidates.size(); ++j) {
      MODEL_TRY(Cache cache,
                cache_of(spec, with_codec(shape, side, places_[index].candidates[j].codec)));
      MODEL_TRY(const Sequence own, cache.open());
      MODEL_TRY(Step probe, cache.begin(Batch().add(own.id(), 0, context_)));
      MODEL_CHECK(probe.put(
          0, TensorView::dense(keys.data(), DType::f32, context_, shape.kv_heads, shape.key_dim),
          TensorView::dense(values.data(), DType::f32, context_, shape.kv_heads, shape.value_dim)));
      MODEL_CHECK(probe.attend(
          0, q, OutputView::dense(out.data(), context_, shape.query_heads, shape.value_dim)));
      double squares = 0;
      for (std::size_t i = out.size() / 2; i < out.size(); ++i) {
        const double off = out[i] - exact.data[i];
        squares += off * off;
      }
      noises_[index][j] = squares / static_cast<double>(out.size() - out.size() / 2);
    }
  }
  return {};
}

Result<void> Sensitivity::measure(std::size_t place, std::size_t candidate) {
  if (place >= places_.size() || candidate >= places_[place].candidates.size() ||
      streams_.empty()) {
    return refuse("sensitivity: candidate {} of place {} of {}, after {} chunks", candidate, place,
                  places_.size(), chunks_);
  }
  Place& at = places_[place];
  CacheSpec spec = model_->cache_spec();
  const auto layer = static_cast<std::size_t>(at.layer);
  spec.layers[layer] = with_codec(spec.layers[layer], at.side, at.candidates[candidate].codec);
  MODEL_TRY(Cache cache, Cache::create(spec));
  MODEL_TRY(const Sequence sequence, cache.open());
  const Batch batch = Batch().add(sequence.id(), 0, context_);
  MODEL_TRY(Step step, cache.begin(batch));
  std::vector<float> stream = streams_[layer];
  MODEL_CHECK(
      model_->run_layers(step, batch, at.layer, static_cast<int>(spec.layers.size()), stream));
  MODEL_CHECK(predict(stream, coded_));
  const auto vocabulary = static_cast<std::size_t>(model_->config().vocabulary);
  double sum = 0;
  for (std::size_t i = 0; i < exact_.size(); i += vocabulary) {
    sum += divergence({exact_.data() + i, vocabulary}, {coded_.data() + i, vocabulary});
  }
  const double loss = sum / static_cast<double>(exact_.size() / vocabulary);
  at.measured.push_back({candidate, noises_[place][candidate], std::max(loss, 0.0)});
  return {};
}

Result<void> Sensitivity::predict(const std::vector<float>& stream,
                                  std::vector<float>& predictions) const {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(context_ / 2));
  std::iota(rows.begin(), rows.end(), context_ - 1 - context_ / 2);
  const auto vocabulary = static_cast<std::size_t>(model_->config().vocabulary);
  predictions.resize(rows.size() * vocabulary);
  MODEL_CHECK(model_->predict(stream, rows, predictions.data()));
  for (std::size_t i = 0; i < predictions.size(); i += vocabulary) {
    log_softmax({predictions.data() + i, vocabulary});
  }
  return {};
}

}  // namespace quire::model
