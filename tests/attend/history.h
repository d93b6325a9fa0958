// A made-up history for attention tests: random keys and values kept twice, as plain matrices and
// in pages, and what attention over the plain matrices is, in double.
//
// The inputs are rounded to the row type before anything else, so the plain matrices are exactly
// what rows must hold. What sealed pages hold is read back through the codec.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "attend/layer.h"
#include "attend/walk.h"
#include "base/numbers.h"
#include "base/seed.h"
#include "codec/rounding.h"

namespace quire::test {

inline constexpr float kInf = std::numeric_limits<float>::infinity();

// One seed for the whole run, printed once.
inline std::uint64_t run_seed() {
  static const std::uint64_t seed = announce_seed();
  return seed;
}

// Random numbers of one test: `salt` keeps tests apart.
class Random {
 public:
  explicit Random(std::uint64_t salt) : Random(run_seed(), salt) {}
  // The same in every run.
  static Random fixed(std::uint64_t salt) { return {1, salt}; }
  float normal(float deviation = 1.0f) {
    return std::normal_distribution<float>(0.0f, deviation)(engine_);
  }
  // In [low, high].
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  template <typename T>
  void shuffle(std::vector<T>& items) {
    std::shuffle(items.begin(), items.end(), engine_);
  }

 private:
  Random(std::uint64_t seed, std::uint64_t salt) : engine_(seed * 1000003 + salt) {}

  std::mt19937_64 engine_;
};

inline float round_to(DType dtype, float value) {
  std::uint32_t bits = 0;
  store_element(dtype, &bits, 0, value);
  return load_element(dtype, &bits, 0);
}

inline std::size_t size_of(std::int64_t count) { return static_cast<std::size_t>(count); }

struct Geometry {
  int kv_heads = 1;
  int query_heads = 1;
  int key_dim = 8;
  int value_dim = 8;
  bool mla = false;
  int page_tokens = 16;
  DType row_type = DType::f32;
  std::string key_codec = "f32";
  std::string value_codec = "f32";
};

// Whether a cache would take such a layer.
inline bool is_storable(const Geometry& g) {
  const Codec& key = *find_codec(g.key_codec);
  const Codec& value = *find_codec(g.value_codec);
  if (g.mla) return key.encodes_latents;
  const auto takes = [&](const Codec& codec, Side side, int dim) {
    return codec.takes == nullptr || codec.takes({side, g.page_tokens, dim});
  };
  return value.encodes_values && takes(key, Side::key, g.key_dim) &&
         takes(value, Side::value, g.value_dim);
}

// The codec of values beside keys of `codec`: itself where it stores values.
inline std::string values_beside(const Codec& codec) {
  return codec.encodes_values ? codec.name : "int8";
}

inline LayerStore make_store(const Geometry& geometry) {
  LayerStore store;
  store.heads = geometry.kv_heads;
  store.key_dim = geometry.key_dim;
  store.value_dim = geometry.value_dim;
  store.mla = geometry.mla;
  store.page_tokens = geometry.page_tokens;
  store.row_type = geometry.row_type;
  store.key_codec = find_codec(geometry.key_codec);
  store.value_codec = find_codec(geometry.mla ? geometry.key_codec : geometry.value_codec);
  return store;
}

// [token][head][dim].
struct Matrix {
  std::int64_t tokens = 0;
  int heads = 0;
  int dim = 0;
  std::vector<float> data;

  Matrix() = default;
  Matrix(std::int64_t t, int h, int d) : tokens(t), heads(h), dim(d), data(size_of(t * h * d)) {}
  float* at(std::int64_t token, int head) {
    return data.data() + size_of((token * heads + head) * dim);
  }
  const float* at(std::int64_t token, int head) const {
    return data.data() + size_of((token * heads + head) * dim);
  }
  TensorView view() const { return TensorView::dense(data.data(), DType::f32, tokens, heads, dim); }
};

inline Matrix random_matrix(Random& random, std::int64_t tokens, int heads, int dim,
                            DType dtype = DType::f32, float deviation = 1.0f) {
  Matrix matrix(tokens, heads, dim);
  for (float& x : matrix.data) x = round_to(dtype, random.normal(deviation));
  return matrix;
}

// Keys and values in pages, from ordinal 0 on. Full pages are sealed and keep their rows.
class History {
 public:
  Geometry geometry;
  LayerStore store;
  Matrix keys, values;              // what was put; for MLA `values` is the head of `keys`
  Matrix coded_keys, coded_values;  // what full pages give back
  std::vector<std::int64_t> positions;

  History(const Geometry& g, Matrix k, Matrix v, std::vector<std::int64_t> at)
      : geometry(g),
        store(make_store(g)),
        keys(std::move(k)),
        values(std::move(v)),
        positions(std::move(at)) {
    std::size_t rows_bytes = 0;
    std::size_t sealed_bytes = 0;
    place(store, rows_bytes, sealed_bytes);
    coded_keys = keys;
    coded_values = values;
    for (std::int64_t begin = 0; begin < keys.tokens; begin += g.page_tokens) {
      const int count =
          static_cast<int>(std::min<std::int64_t>(g.page_tokens, keys.tokens - begin));
      Page& page = pages_.emplace_back();
      page.rows.resize(rows_bytes);
      for (int slot = 0; slot < count; ++slot) {
        write_row(store, Side::key, keys.view(), begin + slot, page.rows.data(), slot).value();
        if (g.mla) continue;
        write_row(store, Side::value, values.view(), begin + slot, page.rows.data(), slot).value();
      }
      if (count < g.page_tokens) continue;
      page.sealed.resize(sealed_bytes);
      seal(store, page.rows.data(), count, page.sealed.data());
      read_back(page, begin, count);
    }
  }

  std::int64_t tokens() const { return keys.tokens; }
  std::int64_t floor_page(std::int64_t ordinal) const {
    return std::max<std::int64_t>(0, ordinal) / geometry.page_tokens * geometry.page_tokens;
  }

  // Sealed codes of the page of the token at `ordinal`.
  CodedSide coded(Side side, int head, std::int64_t ordinal, Isa isa) const {
    const std::byte* sealed = pages_[size_of(ordinal / geometry.page_tokens)].sealed.data();
    const SealedPlace at = sealed_place(store, side, head);
    return {side == Side::key ? store.key_codec : store.value_codec, isa, store.tile(side, head),
            sealed + at.data, sealed + at.scales};
  }

  // One slice per page.
  std::vector<PageSlice> slices() const {
    std::vector<PageSlice> result;
    for (std::size_t p = 0; p < pages_.size(); ++p) {
      const std::int64_t begin = static_cast<std::int64_t>(p) * geometry.page_tokens;
      PageSlice slice;
      slice.rows = pages_[p].rows.data();
      slice.sealed = pages_[p].sealed.empty() ? nullptr : pages_[p].sealed.data();
      slice.positions = positions.data() + begin;
      slice.count =
          static_cast<int>(std::min<std::int64_t>(geometry.page_tokens, tokens() - begin));
      slice.ordinal = begin;
      slice.page_end = begin + geometry.page_tokens;
      result.push_back(slice);
    }
    return result;
  }

  // The causal query of the token at `ordinal`, with a row of its own.
  Query causal(std::int64_t ordinal, std::int64_t row, std::int64_t exact_tail = 0) const {
    Query query;
    query.row = query.out_row = row;
    query.position = positions[size_of(ordinal)];
    query.first_position = std::numeric_limits<std::int64_t>::min();
    query.end_ordinal = ordinal + 1;
    query.sealed_below = floor_page(ordinal - exact_tail);
    return query;
  }

 private:
  struct Page {
    std::vector<std::byte> rows;
    std::vector<std::byte> sealed;
  };

  void read_back(const Page& page, std::int64_t begin, int count) {
    for (int head = 0; head < store.heads; ++head) {
      for (int slot = 0; slot < count; ++slot) {
        read_sealed(store, Side::key, head, page.sealed.data(), slot, 1,
                    coded_keys.at(begin + slot, head));
        read_sealed(store, Side::value, head, page.sealed.data(), slot, 1,
                    coded_values.at(begin + slot, head));
      }
    }
  }

  std::vector<Page> pages_;
};

// Each slice of `a` cut in two, the second half out of the same page of `b`: two slices of a page
// where b is a, two pages of a place where it is a copy.
inline std::vector<PageSlice> halves(const History& a, const History& b) {
  const std::vector<PageSlice> first = a.slices();
  const std::vector<PageSlice> second = b.slices();
  std::vector<PageSlice> pieces;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const int half = first[i].count / 2;
    if (half > 0) {
      pieces.push_back(first[i]);
      pieces.back().count = half;
    }
    pieces.push_back(second[i]);
    pieces.back().first += half;
    pieces.back().ordinal += half;
    pieces.back().count -= half;
  }
  return pieces;
}

inline std::vector<std::int64_t> counting(std::int64_t tokens) {
  std::vector<std::int64_t> positions(size_of(tokens));
  for (std::int64_t t = 0; t < tokens; ++t) positions[size_of(t)] = t;
  return positions;
}

// The first value_dim channels of a latent.
inline Matrix head_of(const Matrix& keys, int value_dim) {
  Matrix values(keys.tokens, keys.heads, value_dim);
  for (std::int64_t t = 0; t < keys.tokens; ++t) {
    for (int h = 0; h < keys.heads; ++h) std::copy_n(keys.at(t, h), value_dim, values.at(t, h));
  }
  return values;
}

inline History random_history(Random& random, const Geometry& g, std::int64_t tokens) {
  Matrix keys = random_matrix(random, tokens, g.kv_heads, g.key_dim, g.row_type);
  Matrix values = g.mla ? head_of(keys, g.value_dim)
                        : random_matrix(random, tokens, g.kv_heads, g.value_dim, g.row_type);
  return History(g, std::move(keys), std::move(values), counting(tokens));
}

// ---- the reference ----

struct Rules {
  float scale = 1.0f;
  float soft_cap = 0.0f;
  std::vector<float> slopes;  // empty, or one per query head
  std::vector<float> sinks;   // empty, or one per query head
};

struct Answer {
  std::vector<double> out;            // [value_dim]
  std::vector<double> logits;         // [tokens], -inf where not seen
  std::vector<double> probabilities;  // [tokens]
  std::vector<double> products;       // [tokens]: scale times sum |q k|, 0 where not seen
  std::vector<double> sizes;          // [tokens]: scale times max |q| times sum |k|, likewise
  double magnitude = 0;               // L = scale |q| max |k| over what is seen
  double deviation = 0;               // of the logits that are seen
  double cancelled = 1;               // sum p |v| / |out|
};

inline double norm_of(const float* x, int dim) {
  double sum = 0;
  for (int c = 0; c < dim; ++c) sum += double{x[c]} * double{x[c]};
  return std::sqrt(sum);
}

// Attention of one query head, from what it reads of each token: keys(token) and values(token) of
// its kv head.
template <typename Keys, typename Values, typename Sees>
Answer reference(std::int64_t tokens, int key_dim, int value_dim, const Keys& keys,
                 const Values& values, const std::vector<std::int64_t>& positions, const Sees& sees,
                 const float* q, int query_head, std::int64_t position, const Rules& rules) {
  Answer answer;
  answer.out.assign(size_of(value_dim), 0.0);
  answer.logits.assign(size_of(tokens), -HUGE_VAL);
  answer.probabilities.assign(size_of(tokens), 0.0);
  answer.products.assign(size_of(tokens), 0.0);
  answer.sizes.assign(size_of(tokens), 0.0);
  double q_largest = 0;
  for (int c = 0; c < key_dim; ++c) q_largest = std::max(q_largest, std::abs(double{q[c]}));
  const double q_norm = norm_of(q, key_dim);
  double top = rules.sinks.empty() ? -HUGE_VAL : double{rules.sinks[size_of(query_head)]};
  double seen = 0;
  double sum = 0;
  double squares = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (!sees(t)) continue;
    const float* k = keys(t);
    double dot = 0;
    double products = 0;
    double size = 0;
    for (int c = 0; c < key_dim; ++c) {
      const double product = double{q[c]} * double{k[c]};
      dot += product;
      products += std::abs(product);
      size += std::abs(double{k[c]});
    }
    double logit = double{rules.scale} * dot;
    if (rules.soft_cap > 0) logit = rules.soft_cap * std::tanh(logit / rules.soft_cap);
    if (!rules.slopes.empty()) {
      logit += double{rules.slopes[size_of(query_head)]} *
               static_cast<double>(positions[size_of(t)] - position);
    }
    answer.logits[size_of(t)] = logit;
    const double scale = std::abs(double{rules.scale});
    answer.products[size_of(t)] = scale * products;
    answer.sizes[size_of(t)] = scale * q_largest * size;
    answer.magnitude = std::max(answer.magnitude, scale * q_norm * norm_of(k, key_dim));
    top = std::max(top, logit);
    seen += 1;
    sum += logit;
    squares += logit * logit;
  }
  if (seen == 0) return answer;
  answer.deviation = std::sqrt(std::max(0.0, squares / seen - sum / seen * (sum / seen)));
  double weight =
      rules.sinks.empty() ? 0 : std::exp(double{rules.sinks[size_of(query_head)]} - top);
  for (const double logit : answer.logits) weight += std::exp(logit - top);
  double uncancelled = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const double p = std::exp(answer.logits[size_of(t)] - top) / weight;
    if (p == 0) continue;
    answer.probabilities[size_of(t)] = p;
    const float* v = values(t);
    for (int c = 0; c < value_dim; ++c) answer.out[size_of(c)] += p * double{v[c]};
    uncancelled += p * norm_of(v, value_dim);
  }
  double squared = 0;
  for (const double x : answer.out) squared += x * x;
  if (squared > 0) answer.cancelled = uncancelled / std::sqrt(squared);
  return answer;
}

// The same from matrices of what it reads.
inline Answer reference(const Matrix& k, const Matrix& v,
                        const std::vector<std::int64_t>& positions,
                        const std::function<bool(std::int64_t)>& sees, const float* q,
                        int query_head, int query_heads, std::int64_t position,
                        const Rules& rules) {
  const int head = query_head / (query_heads / k.heads);
  return reference(
      k.tokens, k.dim, v.dim, [&](std::int64_t t) { return k.at(t, head); },
      [&](std::int64_t t) { return v.at(t, head); }, positions, sees, q, query_head, position,
      rules);
}

// Whether a query reads the page of the token at `ordinal` sealed.
inline bool reads_sealed(const History& history, const Query& query, std::int64_t ordinal) {
  const std::int64_t page_end = history.floor_page(ordinal) + history.geometry.page_tokens;
  return page_end <= history.tokens() && page_end <= query.sealed_below;
}

// The same over a whole history: coded where the query reads sealed pages, exact elsewhere.
inline Answer reference(const History& history, const Query& query, const float* q, int query_head,
                        const Rules& rules) {
  const Geometry& g = history.geometry;
  const int head = query_head / (g.query_heads / g.kv_heads);
  return reference(
      history.tokens(), g.key_dim, g.value_dim,
      [&](std::int64_t t) {
        return (reads_sealed(history, query, t) ? history.coded_keys : history.keys).at(t, head);
      },
      [&](std::int64_t t) {
        return (reads_sealed(history, query, t) ? history.coded_values : history.values)
            .at(t, head);
      },
      history.positions,
      [&](std::int64_t t) {
        return t < query.end_ordinal && history.positions[size_of(t)] >= query.first_position;
      },
      q, query_head, query.position, rules);
}

// ---- how far from it attention may be ----

// |out - ref| / |ref|.
inline double relative_error(const float* out, const std::vector<double>& ref) {
  double difference = 0;
  double norm = 0;
  for (std::size_t c = 0; c < ref.size(); ++c) {
    difference += (double{out[c]} - ref[c]) * (double{out[c]} - ref[c]);
    norm += ref[c] * ref[c];
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

// Where all products are of f32 numbers: a logit as large as L carries rounding in proportion.
inline double error_bound(double magnitude) { return 1e-5 + 2e-6 * magnitude; }

// What a kernel does to queries and weights before it multiplies; `planes`: as codec/rounding.h
// says.
enum class Rounding { none, bf16, int8, planes };

// Values of a latent, and sizes that a kernel does not take, are decoded to floats first.
inline Rounding rounding_of(const LayerStore& store, Side side, bool sealed, Isa isa) {
  const Codec* codec = !sealed             ? find_codec(name_of(store.row_type))
                       : side == Side::key ? store.key_codec
                                           : store.value_codec;
  const Kernel* found = codec->kernels[static_cast<std::size_t>(isa)];
  if (found == nullptr) return Rounding::none;  // decoded to f32
  const Kernel& kernel = *found;
  const int split = store.mla ? store.value_dim : store.key_dim;
  const bool taken = side == Side::key ? kernel.takes_keys(store.key_dim, split)
                                       : !store.mla && store.value_dim % 16 == 0;
  if (!taken) return Rounding::none;
  const std::string name = codec->name;
  if (name == "bf16" && kernel.weight_bytes != nullptr) return Rounding::bf16;
  if (codec->rotate[0] != nullptr) return Rounding::planes;
  return name == "int8" ? Rounding::int8 : Rounding::none;
}

// By how much rounding can move the logit of each token for query head `head` with numbers q: bf16
// has 8 bits, so that a number is off by up to 2^-8 of itself; int8 takes codes of max |q| / 32767.
inline std::vector<double> logit_rounding(const History& history, const Query& query,
                                          const float* q, int head, const Answer& answer,
                                          const Rules& rules, Isa isa) {
  const Geometry& g = history.geometry;
  const int kv_head = head / (g.query_heads / g.kv_heads);
  std::vector<float> rotated(q, q + g.key_dim);
  if (rounding_of(history.store, Side::key, true, isa) == Rounding::planes) {
    const auto turn = history.store.key_codec->rotate[0];
    turn(history.store.tile(Side::key, kv_head), rotated.data(), 1, 0);
  }
  std::vector<double> moved(size_of(history.tokens()));
  std::optional<ScoreRounding> of_page;
  for (std::int64_t t = 0; t < history.tokens(); ++t) {
    if (t % g.page_tokens == 0) of_page.reset();
    if (answer.logits[size_of(t)] == -HUGE_VAL) continue;
    double& by = moved[size_of(t)];
    switch (rounding_of(history.store, Side::key, reads_sealed(history, query, t), isa)) {
      case Rounding::none:
        break;
      case Rounding::bf16:
        by = 0x1p-8 * answer.products[size_of(t)];
        break;
      case Rounding::int8:
        by = 0.51 / 32767 * answer.sizes[size_of(t)];
        break;
      case Rounding::planes:
        if (!of_page) of_page.emplace(history.coded(Side::key, kv_head, t, isa), rotated.data());
        by = rules.scale * of_page->of(static_cast<int>(t % g.page_tokens));
        break;
    }
  }
  return moved;
}

// The length of what rounding can add to the output where values are planes, with weights as
// probabilities: what a page's codes are off by does not depend on their unit.
inline double value_rounding(const History& history, const Query& query, int head,
                             const Answer& answer, Isa isa) {
  const Geometry& g = history.geometry;
  if (rounding_of(history.store, Side::value, true, isa) != Rounding::planes) return 0;
  const int kv_head = head / (g.query_heads / g.kv_heads);
  double length = 0;
  for (std::int64_t begin = 0; begin + g.page_tokens <= history.tokens(); begin += g.page_tokens) {
    if (!reads_sealed(history, query, begin)) continue;
    const auto from = answer.probabilities.begin() + begin;
    const CodedSide values = history.coded(Side::value, kv_head, begin, isa);
    const MixRounding mix(values, std::vector<double>(from, from + g.page_tokens));
    length += mix.levels * std::sqrt(g.value_dim);
    for (int slot = 0; slot < g.page_tokens; ++slot) {
      if (from[slot] == 0 || values.scale(slot) == 0) continue;
      const double v = norm_of(history.coded_values.at(begin + slot, kv_head), g.value_dim);
      length += mix.codes * v / values.scale(slot);
    }
  }
  return length;
}

// What |out - ref| / |ref| can be. Weights rounded to bf16 are off by up to 2^-8, and so is their
// sum; logits that are off by up to e move a weight by a factor of up to e^(2e), the sum of all
// included.
inline double output_bound(const History& history, const Query& query, int head,
                           const Answer& answer, const std::vector<double>& logits_off, Isa isa) {
  bool found[4] = {};
  for (const Side side : {Side::key, Side::value}) {
    for (const bool sealed : {false, true}) {
      if (sealed && query.sealed_below < history.geometry.page_tokens) continue;
      found[static_cast<int>(rounding_of(history.store, side, sealed, isa))] = true;
    }
  }
  const auto has = [&](Rounding rounding) { return found[static_cast<int>(rounding)]; };
  double bound = error_bound(answer.magnitude);
  if (has(Rounding::int8)) bound = 3e-3 + 3e-5 * answer.magnitude;
  if (has(Rounding::bf16)) bound += 0x1p-7 * answer.cancelled;
  double moved = 0;  // weights
  if (has(Rounding::bf16) || has(Rounding::planes)) {
    moved = std::expm1(2 * *std::max_element(logits_off.begin(), logits_off.end()));
  }
  bound += moved * answer.cancelled;
  double squares = 0;
  for (const double x : answer.out) squares += x * x;
  const double added = (1 + moved) * value_rounding(history, query, head, answer, isa);
  return squares > 0 ? bound + added / std::sqrt(squares) : bound;
}

// ---- running the walk ----

struct States {
  std::vector<float> o, m, l;
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t dim = 0;

  States(std::int64_t r, std::int64_t h, std::int64_t d)
      : o(size_of(r * h * d), -77.0f),
        m(size_of(r * h), -77.0f),
        l(size_of(r * h), -77.0f),
        rows(r),
        heads(h),
        dim(d) {}
  StateView view() { return {o.data(), m.data(), l.data(), rows, heads, dim}; }
  // One query head's output.
  std::vector<float> finish(std::int64_t row, std::int64_t head, float sink = -kInf) const {
    const std::size_t at = size_of(row * heads + head);
    std::vector<float> out(size_of(dim));
    state_finish(out.data(), o.data() + at * size_of(dim), m[at], l[at], sink, dim);
    return out;
  }
  bool operator==(const States&) const = default;
};

inline AttendTask make_task(const History& history, const Rules& rules,
                            const std::vector<PageSlice>& slices, const std::vector<Query>& queries,
                            const TensorView& q, Isa isa = chosen_isa()) {
  AttendTask task;
  task.store = &history.store;
  task.math.scale = rules.scale;
  task.math.soft_cap = rules.soft_cap;
  task.math.slopes = rules.slopes;
  task.slices = slices;
  task.queries = queries;
  task.q = q;
  task.isa = isa;
  task.many_rows = 12;  // a few queries test both forms
  return task;
}

// Cuts slices at random places.
inline std::vector<PageSlice> cut(Random& random, const std::vector<PageSlice>& slices) {
  std::vector<PageSlice> result;
  for (PageSlice rest : slices) {
    while (rest.count > 1 && random.integer(0, 2) > 0) {
      PageSlice first = rest;
      first.count = static_cast<int>(random.integer(1, rest.count - 1));
      result.push_back(first);
      rest.first += first.count;
      rest.ordinal += first.count;
      rest.count -= first.count;
    }
    result.push_back(rest);
  }
  return result;
}

inline void run_states(const AttendTask& task, States& states) {
  attend_states(task, {0, task.store->heads}, states.view());
}

inline States run_states(const AttendTask& task) {
  States states(task.q.tokens, task.q.heads, task.store->value_dim);
  run_states(task, states);
  return states;
}

}  // namespace quire::test
