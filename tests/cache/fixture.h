// What the tests of the cache share: small specs, sequences filled with known values, everything a
// cache holds as one comparable value, and attention over plain rows in double.
//
// The number stored for (tag, layer, side, position, head, channel) is a multiple of 1/64 in
// (-2, 2): it fits f32, f16 and bf16 exactly, so what float codecs give back is compared with ==.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "quire/cache.hpp"

namespace quire::test {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline std::size_t index_of(std::int64_t index) { return static_cast<std::size_t>(index); }

// --- results -------------------------------------------------------------------------------------

// Whether a call failed with `code` and a text that contains all of `parts`.
template <typename T>
testing::AssertionResult fails(const Result<T>& result, ErrorCode code,
                               const std::vector<std::string>& parts = {}) {
  if (result.ok()) return testing::AssertionFailure() << "no error";
  const Error& error = result.error();
  for (const std::string& part : parts) {
    if (error.text.find(part) == std::string::npos) {
      return testing::AssertionFailure() << "no \"" << part << "\" in \"" << error.text << "\"";
    }
  }
  return (error.code == code ? testing::AssertionSuccess() : testing::AssertionFailure())
         << error_name(error.code) << ": " << error.text;
}

template <typename T>
testing::AssertionResult succeeds(const Result<T>& result) {
  if (result.ok()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << error_name(result.code()) << ": " << result.error().text;
}

// --- values --------------------------------------------------------------------------------------

inline float value_of(int tag, int layer, Side side, std::int64_t position, int head, int channel) {
  std::uint64_t x = static_cast<std::uint64_t>(position) * 1000003 +
                    static_cast<std::uint64_t>(tag) * 7919 +
                    static_cast<std::uint64_t>(layer) * 131;
  x = (x * 2 + static_cast<std::uint64_t>(side)) * 1009 + static_cast<std::uint64_t>(head);
  x = x * 65537 + static_cast<std::uint64_t>(channel);
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  x ^= x >> 31;
  return static_cast<float>(static_cast<std::int64_t>(x % 255) - 127) / 64.0f;
}

// [token][head][dim] in f32.
struct Rows {
  std::int64_t tokens = 0;
  int heads = 0;
  int dim = 0;
  std::vector<float> data;

  Rows(std::int64_t t, int h, int d) : tokens(t), heads(h), dim(d), data(index_of(t * h * d)) {}
  float* at(std::int64_t token, int head) {
    return data.data() + index_of((token * heads + head) * dim);
  }
  const float* at(std::int64_t token, int head) const {
    return data.data() + index_of((token * heads + head) * dim);
  }
  TensorView view() const { return TensorView::dense(data.data(), DType::f32, tokens, heads, dim); }
  OutputView out() { return OutputView::dense(data.data(), tokens, heads, dim); }
};

// The known rows of a layer at some positions.
inline Rows known_rows(const LayerSpec& layer, int index, Side side,
                       const std::vector<std::int64_t>& positions, int tag = 0) {
  const int dim = side == Side::key ? layer.key_dim : layer.value_dim;
  Rows rows(static_cast<std::int64_t>(positions.size()), layer.kv_heads, dim);
  for (std::int64_t t = 0; t < rows.tokens; ++t) {
    for (int h = 0; h < rows.heads; ++h) {
      for (int c = 0; c < dim; ++c) {
        rows.at(t, h)[c] = value_of(tag, index, side, positions[index_of(t)], h, c);
      }
    }
  }
  return rows;
}

inline std::vector<std::int64_t> range(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> positions;
  for (std::int64_t p = begin; p < end; ++p) positions.push_back(p);
  return positions;
}

// Known queries, one row per batch token.
inline Rows known_queries(std::int64_t tokens, int heads, int dim, int tag = 99) {
  Rows q(tokens, heads, dim);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (int h = 0; h < heads; ++h) {
      for (int c = 0; c < dim; ++c) q.at(t, h)[c] = value_of(tag, 7, Side::key, t, h, c);
    }
  }
  return q;
}

// --- filling -------------------------------------------------------------------------------------

// One causal layer kind, pages of 4, float rows; enough for most rules.
inline CacheSpec small_spec(int layers = 1, const std::string& codec = "f32") {
  CacheSpec spec = CacheSpec::uniform({.layers = layers, .kv_heads = 2, .head_dim = 4});
  spec.set_codec(codec, codec);
  spec.page_tokens = 4;
  return spec;
}

// One layer per pattern.
inline CacheSpec pattern_spec(const std::vector<Pattern>& patterns,
                              const std::string& codec = "f32") {
  CacheSpec spec = small_spec(static_cast<int>(patterns.size()), codec);
  for (std::size_t i = 0; i < patterns.size(); ++i) spec.layers[i].pattern = patterns[i];
  return spec;
}

// Puts the known rows of one layer for a batch: by position, or by entry for a cross layer.
inline Result<void> put(Step& step, const CacheSpec& spec, int layer, const Batch& batch,
                        int tag = 0) {
  const LayerSpec& shape = spec.layers[index_of(layer)];
  std::vector<std::int64_t> positions;
  if (shape.pattern.kind == Pattern::Kind::cross) {
    for (const CrossEntry& entry : batch.cross) {
      for (std::int64_t i = 0; i < entry.length; ++i) positions.push_back(i);
    }
  } else {
    for (const Token& token : batch.tokens) positions.push_back(token.position);
  }
  const Rows keys = known_rows(shape, layer, Side::key, positions, tag);
  if (shape.mla) return step.put(layer, keys.view());
  return step.put(layer, keys.view(), known_rows(shape, layer, Side::value, positions, tag).view());
}

// Puts every layer that takes a put.
inline void put_all(Step& step, const CacheSpec& spec, const Batch& batch, int tag = 0) {
  for (int i = 0; i < static_cast<int>(spec.layers.size()); ++i) {
    const LayerSpec& layer = spec.layers[index_of(i)];
    const bool cross = layer.pattern.kind == Pattern::Kind::cross;
    if (layer.kv_of || (cross && batch.cross.empty())) continue;
    put(step, spec, i, batch, tag).value();
  }
}

// Begins a step over a batch with every layer put.
inline Step stepped(Cache& cache, const Batch& batch, int tag = 0) {
  Step step = cache.begin(batch).value();
  put_all(step, cache.spec(), batch, tag);
  return step;
}

inline Batch batch_of(const Sequence& sequence, std::int64_t first, std::int64_t count) {
  return Batch().add(sequence.id(), first, count);
}

// Appends positions [first, first + count) in one step.
inline void append(Cache& cache, const Sequence& sequence, std::int64_t first, std::int64_t count,
                   int tag = 0) {
  stepped(cache, batch_of(sequence, first, count), tag).commit().value();
}

// The same, one token per step.
inline void append_singly(Cache& cache, const Sequence& sequence, std::int64_t first,
                          std::int64_t count, int tag = 0) {
  for (std::int64_t i = 0; i < count; ++i) append(cache, sequence, first + i, 1, tag);
}

// A new sequence of positions [0, count).
inline Sequence filled(Cache& cache, std::int64_t count, int tag = 0) {
  Sequence sequence = cache.open().value();
  if (count > 0) append(cache, sequence, 0, count, tag);
  return sequence;
}

// --- reading -------------------------------------------------------------------------------------

inline std::vector<std::int64_t> positions_of(const Sequence& sequence) {
  std::vector<std::int64_t> positions;
  for (const Token& token : sequence.tokens().value()) positions.push_back(token.position);
  return positions;
}

// Positions that a layer holds.
inline std::vector<std::int64_t> positions_of(const Sequence& sequence, int layer) {
  std::vector<std::int64_t> positions;
  sequence.for_each(layer, Side::key, [&](std::int64_t p, const float*) { positions.push_back(p); })
      .value();
  return positions;
}

// All rows of one side of a layer, [token][head][dim].
inline std::vector<float> read_all(const Sequence& sequence, int layer, Side side) {
  const Gathered size = sequence.gather_size(layer, {}).value();
  std::vector<float> rows(index_of(side == Side::key ? size.key_elements : size.value_elements));
  const std::int64_t elements = static_cast<std::int64_t>(rows.size());
  EXPECT_EQ(sequence.read(layer, side, {}, rows.data(), elements).value(), size.lengths[0]);
  return rows;
}

// Whether a layer holds exactly the known rows at some positions.
inline testing::AssertionResult holds(const Cache& cache, const Sequence& sequence, int layer,
                                      const std::vector<std::int64_t>& positions, int tag = 0) {
  if (positions_of(sequence, layer) != positions) {
    return testing::AssertionFailure()
           << "layer " << layer
           << " holds other positions: " << testing::PrintToString(positions_of(sequence, layer));
  }
  const LayerSpec& shape = cache.spec().layers[index_of(layer)];
  for (const Side side : {Side::key, Side::value}) {
    if (read_all(sequence, layer, side) != known_rows(shape, layer, side, positions, tag).data) {
      return testing::AssertionFailure()
             << (side == Side::key ? "keys" : "values") << " of layer " << layer << " differ";
    }
  }
  return testing::AssertionSuccess();
}

// Positions of the columns that a step's gather of one sequence has.
inline std::vector<std::int64_t> columns_of(const Step& step, int layer, SequenceId sequence) {
  std::vector<std::int64_t> columns;
  for (const RunView& run : step.runs(layer, sequence).value()) {
    if (run.side == Side::value || run.head > 0) continue;
    columns.insert(columns.end(), run.positions.begin(), run.positions.end());
  }
  return columns;
}

// The positions that each token of a step's batch sees, by the mask.
inline std::vector<std::vector<std::int64_t>> seen_positions(const Step& step, int layer,
                                                             const Batch& batch) {
  const std::int64_t width = step.mask_columns(layer).value();
  std::vector<float> mask(batch.tokens.size() * index_of(width));
  step.mask(layer, DType::f32, 1, mask.data(), static_cast<std::int64_t>(mask.size())).value();
  std::vector<std::vector<std::int64_t>> seen;
  for (std::size_t t = 0; t < batch.tokens.size(); ++t) {
    const std::vector<std::int64_t> columns = columns_of(step, layer, batch.tokens[t].sequence);
    std::vector<std::int64_t>& row = seen.emplace_back();
    for (std::size_t j = 0; j < index_of(width); ++j) {
      if (mask[t * index_of(width) + j] == 0.0f) row.push_back(columns.at(j));
    }
  }
  return seen;
}

// Everything that can be seen of a cache: what must not change when a call is refused.
struct Snapshot {
  std::vector<std::int64_t> facts;
  std::vector<float> values;
  bool operator==(const Snapshot&) const = default;
};

inline Snapshot snapshot(const Cache& cache) {
  Snapshot seen;
  const Stats stats = cache.stats();
  seen.facts = {static_cast<std::int64_t>(stats.bytes - stats.bytes_free),
                static_cast<std::int64_t>(stats.bytes_sealed),
                static_cast<std::int64_t>(stats.bytes_rows),
                static_cast<std::int64_t>(stats.bytes_limit),
                stats.pages_used,
                stats.pages_shared,
                stats.tokens,
                stats.sequences,
                stats.open_steps};
  const int layers = static_cast<int>(cache.spec().layers.size());
  for (const SequenceId id : cache.sequences()) {
    const Sequence sequence = cache.find(id).value();
    seen.facts.push_back(static_cast<std::int64_t>(id));
    seen.facts.push_back(sequence.length().value());
    seen.facts.push_back(sequence.next_position().value());
    seen.facts.push_back(sequence.is_exact().value());
    seen.facts.push_back(sequence.has_cross().value());
    for (const Token& token : sequence.tokens().value()) {
      seen.facts.push_back(token.position);
      seen.facts.push_back(static_cast<std::int64_t>(token.key));
      seen.facts.push_back(static_cast<int>(sequence.can_resume(token.position).value()));
    }
    for (int layer = 0; layer < layers; ++layer) {
      seen.facts.push_back(sequence.length(layer).value());
      for (const Side side : {Side::key, Side::value}) {
        const std::vector<float> rows = read_all(sequence, layer, side);
        seen.values.insert(seen.values.end(), rows.begin(), rows.end());
      }
    }
  }
  return seen;
}

// --- attention in double -------------------------------------------------------------------------

struct Rules {
  double scale = 1.0;
  double soft_cap = 0.0;
  double slope = 0.0;
  double sink = -std::numeric_limits<double>::infinity();
};

// A key, a value and how far from the query they stand (key minus query position).
struct Seen {
  const float* key = nullptr;
  const float* value = nullptr;
  std::int64_t distance = 0;
};

inline double naive_logit(const float* q, const Seen& seen, int key_dim, const Rules& rules) {
  double logit = 0;
  for (int c = 0; c < key_dim; ++c)
    logit += static_cast<double>(q[c]) * static_cast<double>(seen.key[c]);
  logit *= rules.scale;
  if (rules.soft_cap > 0) logit = rules.soft_cap * std::tanh(logit / rules.soft_cap);
  return logit + rules.slope * static_cast<double>(seen.distance);
}

// Softmax over what one query head sees: the output, then the probabilities.
inline std::vector<double> naive_attention(const float* q, const std::vector<Seen>& all,
                                           int key_dim, int value_dim, const Rules& rules,
                                           std::vector<double>* probabilities = nullptr) {
  std::vector<double> out(index_of(value_dim), 0.0);
  std::vector<double> weights;
  double top = rules.sink;
  for (const Seen& seen : all) top = std::max(top, naive_logit(q, seen, key_dim, rules));
  double sum = std::isinf(rules.sink) ? 0.0 : std::exp(rules.sink - top);
  for (const Seen& seen : all) {
    weights.push_back(std::exp(naive_logit(q, seen, key_dim, rules) - top));
    sum += weights.back();
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    weights[i] /= sum;
    for (int c = 0; c < value_dim; ++c) {
      out[index_of(c)] += weights[i] * static_cast<double>(all[i].value[c]);
    }
  }
  if (probabilities != nullptr) *probabilities = weights;
  return out;
}

// Attention of a step's layer, [token][query head][value_dim].
inline Rows attend(Step& step, const CacheSpec& spec, int layer, const Rows& q) {
  Rows out(q.tokens, q.heads, spec.layers[index_of(layer)].value_dim);
  step.attend(layer, q.view(), out.out()).value();
  return out;
}

inline testing::AssertionResult near(const float* found, const std::vector<double>& expected,
                                     double bound = 2e-5) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!(std::fabs(static_cast<double>(found[i]) - expected[i]) <= bound)) {
      return testing::AssertionFailure()
             << "channel " << i << " is " << found[i] << ", expected " << expected[i];
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace quire::test
