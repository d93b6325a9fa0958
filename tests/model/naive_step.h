// An open step of the naive model: for each sequence of its batch a whole copy, with the batch's
// tokens appended, and attention in double over lists of tokens.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "model/naive_sequence.h"

namespace quire::test {

// One row as a reader gets it, in double; keys turned to their present position.
struct NaiveRead {
  std::vector<double> key;    // [head][key_dim]
  std::vector<double> value;  // [head][value_dim]
  bool turned = false;        // keys went through a rotation, so they are not exact
};

inline NaiveRead read_stored(const NaiveSpec& spec, std::size_t layer, const NaiveStored& stored,
                             bool coded, std::int64_t turn) {
  const LayerSpec& shape = spec.owner(layer);
  const NaiveRow& row = coded ? stored->coded : stored->exact;
  NaiveRead read{
      {row.key.begin(), row.key.end()}, {row.value.begin(), row.value.end()}, stored->approximate};
  if (shape.rotation.kind == Rotation::Kind::rope && turn != 0) {
    read.turned = true;
    for (int h = 0; h < shape.kv_heads; ++h) {
      turn_key(shape.rotation.rope, shape.key_dim, turn, read.key.data() + h * shape.key_dim);
    }
  }
  return read;
}

// A token of a layer, or an entry of a cross layer, as a reader that takes pages below
// `sealed_below` as sealed gets it.
inline NaiveRead read_token(const NaiveSequence& sequence, std::size_t layer,
                            const NaiveToken& token, std::int64_t sealed_below) {
  const NaiveSpec& spec = *sequence.spec;
  const bool coded = sequence.reads_coded(token, spec.group_of[layer], sealed_below);
  const NaiveStored& stored = token.stored[spec.owner_of[layer]];
  return read_stored(spec, layer, stored, coded, token.position - stored->rotated_for);
}
inline NaiveRead read_entry(const NaiveSequence& sequence, std::size_t layer, std::size_t entry) {
  const NaiveSpec& spec = *sequence.spec;
  return read_stored(spec, layer, sequence.cross->entries[spec.owner_of[layer]][entry], true, 0);
}

struct NaivePart {
  SequenceId id{};
  NaiveSequence next;              // after a commit of all tokens
  std::vector<std::int64_t> rows;  // of the batch
  std::int64_t first_ordinal = 0;
  bool brings_cross = false;
  std::int64_t cross_row = 0;  // of its first entry in a cross layer's put
};

// A column as one query reads it; null where it does not see it.
struct NaiveColumn {
  const NaiveRead* read = nullptr;
  std::int64_t position = 0;
};

// What one query head gets of one layer, over the columns of its sequence's gather.
struct NaiveAnswer {
  std::vector<double> out;     // [value_dim]
  std::vector<double> logits;  // [column], -inf where the query does not see
  std::vector<double> probabilities;
  double magnitude = 0;      // of the products in a logit: bounds their rounding
  double reach = 0;          // |q| |k|, scaled: bounds the rounding of q itself
  double largest_value = 0;  // of what is mixed
};

class NaiveStep {
 public:
  NaiveStep(const NaiveSpec& of, const Batch& given)
      : spec(&of),
        batch(given),
        put(of.spec.layers.size(), false),
        exceptions(given.tokens.size(), false) {}

  const NaiveSpec* spec;
  Batch batch;
  std::vector<NaivePart> parts;  // in the order sequences first appear
  std::vector<bool> put;         // [layer]
  std::vector<bool> exceptions;  // [token]
  std::int64_t cross_rows = 0;

  std::int64_t tokens() const { return static_cast<std::int64_t>(batch.tokens.size()); }
  std::int64_t rows_of(std::size_t layer) const {
    return spec->is_cross_layer(layer) ? cross_rows : tokens();
  }
  // Whether a read of `layer` is allowed yet.
  bool is_readable(std::size_t layer) const {
    if (spec->is_cross_layer(layer) && cross_rows == 0) return true;
    return put[spec->owner_of[layer]];
  }
  bool is_complete() const {
    for (std::size_t i = 0; i < put.size(); ++i) {
      if (spec->stores(i) && rows_of(i) > 0 && !put[i]) return false;
    }
    return true;
  }

  // Stores one row per token of the batch (or cross entry). Requires: none is null.
  void store(std::size_t layer, const std::vector<NaiveStored>& rows) {
    put[layer] = true;
    for (NaivePart& part : parts) {
      if (spec->is_cross_layer(layer)) {
        if (!part.brings_cross) continue;
        const auto first = rows.begin() + part.cross_row;
        part.next.cross->entries[layer].assign(first, first + part.next.cross->length);
        continue;
      }
      for (std::size_t i = 0; i < part.rows.size(); ++i) {
        token_of(part, i).stored[layer] = rows[at(part.rows[i])];
      }
    }
  }

  // The columns of a gather: what the part's first query sees, and all after.
  std::vector<const NaiveToken*> columns(const NaivePart& part, std::size_t layer) const {
    const std::size_t group = spec->group_of[layer];
    const std::int64_t first =
        spec->first_visible(group, batch.tokens[at(part.rows.front())].position);
    std::vector<const NaiveToken*> result = part.next.shown(group);
    std::erase_if(result, [&](const NaiveToken* token) { return token->position < first; });
    return result;
  }
  std::int64_t width(const NaivePart& part, std::size_t layer) const {
    if (spec->is_cross_layer(layer)) return part.next.cross ? part.next.cross->length : 0;
    return static_cast<std::int64_t>(columns(part, layer).size());
  }
  std::int64_t widest(std::size_t layer) const {
    std::int64_t result = 0;
    for (const NaivePart& part : parts) result = std::max(result, width(part, layer));
    return result;
  }
  // Columns as gather writes them: read as the part's first query reads.
  std::vector<NaiveRead> gather(const NaivePart& part, std::size_t layer) const {
    return read_columns(part, layer, spec->sealed_below(part.first_ordinal));
  }

  // Whether the part's query `index` sees `token`.
  bool sees(const NaivePart& part, std::size_t layer, std::size_t index,
            const NaiveToken& token) const {
    const Token& query = batch.tokens[at(part.rows[index])];
    const std::int64_t ordinal = part.first_ordinal + static_cast<std::int64_t>(index);
    const std::size_t group = spec->group_of[layer];
    if (!token.in[group].shown) return false;
    if (token.position < spec->first_visible(group, query.position)) return false;
    if (token.ordinal <= ordinal || exceptions[at(part.rows[index])]) return true;
    for (const NaiveRange& span : part.next.spans) {
      const bool query_inside = span.begin <= query.position && query.position < span.end;
      if (query_inside && token.position < span.end) return true;
    }
    return false;
  }

  // Attention of all of the part's queries, [query][query head]; q(i) is what query i brings,
  // [query head][key_dim], already rounded.
  template <typename Q>
  std::vector<std::vector<NaiveAnswer>> attend(const NaivePart& part, std::size_t layer,
                                               int query_heads, Q&& q) const {
    const bool is_cross = spec->is_cross_layer(layer);
    const auto width_of_part = at(width(part, layer));
    const auto shown = is_cross ? std::vector<const NaiveToken*>{} : columns(part, layer);
    // Every column in both forms; each query takes the one that its ordinal says.
    const std::vector<NaiveRead> exact = read_columns(part, layer, INT64_MIN);
    const std::vector<NaiveRead> coded = read_columns(part, layer, INT64_MAX);
    std::vector<std::vector<NaiveAnswer>> answers(part.rows.size());
    for (std::size_t i = 0; i < part.rows.size(); ++i) {
      const std::int64_t sealed_below =
          spec->sealed_below(part.first_ordinal + static_cast<std::int64_t>(i));
      std::vector<NaiveColumn> seen(width_of_part);
      for (std::size_t j = 0; j < seen.size(); ++j) {
        if (is_cross) {
          seen[j] = {&coded[j], static_cast<std::int64_t>(j)};
        } else if (sees(part, layer, i, *shown[j])) {
          const bool is_coded =
              part.next.reads_coded(*shown[j], spec->group_of[layer], sealed_below);
          seen[j] = {is_coded ? &coded[j] : &exact[j], shown[j]->position};
        }
      }
      const std::int64_t position = batch.tokens[at(part.rows[i])].position;
      const std::vector<float> query = q(i);
      for (int head = 0; head < query_heads; ++head) {
        answers[i].push_back(attend_head(layer, seen, position,
                                         query.data() + head * spec->owner(layer).key_dim, head,
                                         query_heads));
      }
    }
    return answers;
  }

 private:
  NaiveToken& token_of(NaivePart& part, std::size_t index) {
    return part.next.tokens[part.next.tokens.size() - part.rows.size() + index];
  }

  std::vector<NaiveRead> read_columns(const NaivePart& part, std::size_t layer,
                                      std::int64_t sealed_below) const {
    std::vector<NaiveRead> rows;
    if (spec->is_cross_layer(layer)) {
      for (std::int64_t i = 0; i < width(part, layer); ++i) {
        rows.push_back(read_entry(part.next, layer, at(i)));
      }
      return rows;
    }
    for (const NaiveToken* token : columns(part, layer)) {
      rows.push_back(read_token(part.next, layer, *token, sealed_below));
    }
    return rows;
  }

  NaiveAnswer attend_head(std::size_t layer, const std::vector<NaiveColumn>& columns_seen,
                          std::int64_t position, const float* q, int head, int query_heads) const {
    const LayerSpec& shape = spec->spec.layers[layer];
    const int kv_head = head / (query_heads / shape.kv_heads);
    const double scale =
        shape.scale ? double{*shape.scale} : 1 / std::sqrt(static_cast<double>(shape.key_dim));
    NaiveAnswer answer;
    answer.out.assign(at(shape.value_dim), 0.0);
    answer.probabilities.assign(columns_seen.size(), 0.0);
    double top = -std::numeric_limits<double>::infinity();
    for (const NaiveColumn& column : columns_seen) {
      double logit = -std::numeric_limits<double>::infinity();
      if (column.read != nullptr) {
        const double* key = column.read->key.data() + kv_head * shape.key_dim;
        double dot = 0;
        double magnitude = 0;
        double query_square = 0;
        double key_square = 0;
        for (int c = 0; c < shape.key_dim; ++c) {
          query_square += double{q[c]} * double{q[c]};
          key_square += key[c] * key[c];
          dot += double{q[c]} * key[c];
          magnitude += std::fabs(double{q[c]} * key[c]);
        }
        logit = dot * scale;
        if (shape.soft_cap > 0) {
          logit = double{shape.soft_cap} * std::tanh(logit / double{shape.soft_cap});
        }
        if (!shape.slopes.empty()) {
          const double bias =
              double{shape.slopes[at(head)]} * static_cast<double>(column.position - position);
          logit += bias;
          magnitude += std::fabs(bias);
        }
        answer.magnitude = std::max(answer.magnitude, magnitude * std::max(scale, 1.0));
        answer.reach =
            std::max(answer.reach, std::sqrt(query_square * key_square) * std::max(scale, 1.0));
        top = std::max(top, logit);
      }
      answer.logits.push_back(logit);
    }
    if (top == -std::numeric_limits<double>::infinity()) return answer;
    double sum = 0;
    if (!shape.sinks.empty()) {
      const double sink = double{shape.sinks[at(head)]};
      top = std::max(top, sink);
      sum += std::exp(sink - top);
    }
    for (const double logit : answer.logits) sum += std::exp(logit - top);
    for (std::size_t j = 0; j < columns_seen.size(); ++j) {
      if (columns_seen[j].read == nullptr) continue;
      const double p = std::exp(answer.logits[j] - top) / sum;
      answer.probabilities[j] = p;
      const double* value = columns_seen[j].read->value.data() + kv_head * shape.value_dim;
      for (int c = 0; c < shape.value_dim; ++c) {
        answer.out[at(c)] += p * value[c];
        answer.largest_value = std::max(answer.largest_value, std::fabs(value[c]));
      }
    }
    return answer;
  }
};

}  // namespace quire::test
