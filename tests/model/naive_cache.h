// A cache as anyone would write it first: a map of sequences, each a list of tokens, every question
// answered by looking at all of them. What the library must agree with after every call.
//
// Calls that the library refuses are predicted by the check_* functions, which return the code in
// the order in which a batch is looked at; the others assume a legal call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "model/naive_step.h"

namespace quire::test {

class NaiveCache {
 public:
  explicit NaiveCache(const CacheSpec& of) : spec(std::make_shared<const NaiveSpec>(of)) {}

  std::shared_ptr<const NaiveSpec> spec;
  std::map<SequenceId, NaiveSequence> sequences;
  std::map<SequenceId, int> busy;  // sequences with an open step

  NaiveSequence* find(SequenceId id) {
    const auto found = sequences.find(id);
    return found == sequences.end() ? nullptr : &found->second;
  }
  bool is_busy(SequenceId id) const { return busy.count(id) > 0; }

  ErrorCode check_open() const {
    const auto& limit = spec->spec.max_sequences;
    const auto count = static_cast<std::int64_t>(sequences.size());
    return limit && count >= *limit ? ErrorCode::full : ErrorCode::ok;
  }
  // A sequence that an edit may change.
  ErrorCode check_idle(SequenceId id) const {
    if (sequences.count(id) == 0) return ErrorCode::unknown_sequence;
    return is_busy(id) ? ErrorCode::busy : ErrorCode::ok;
  }

  void open(SequenceId id) { sequences.emplace(id, NaiveSequence(*spec)); }

  // --- steps

  ErrorCode check_begin(const Batch& batch) const {
    if (batch.tokens.empty()) return ErrorCode::invalid_argument;
    const auto size = static_cast<std::int64_t>(batch.tokens.size());
    if (spec->spec.max_batch && size > *spec->spec.max_batch) return ErrorCode::full;
    std::map<SequenceId, std::vector<std::int64_t>> positions;
    std::vector<SequenceId> order;
    for (const Token& token : batch.tokens) {
      const ErrorCode idle = check_idle(token.sequence);
      if (idle != ErrorCode::ok) return idle;
      std::vector<std::int64_t>& own = positions[token.sequence];
      if (own.empty()) order.push_back(token.sequence);
      const ErrorCode order_code = check_position(token, own);
      if (order_code != ErrorCode::ok) return order_code;
      own.push_back(token.position);
    }
    for (const SequenceId id : order) {
      const NaiveSequence& sequence = sequences.at(id);
      const auto count = static_cast<std::int64_t>(positions[id].size());
      if (count > sequence.remaining_at(positions[id].front())) return ErrorCode::full;
      if (sequence.reaches_below_floor(positions[id].front())) return ErrorCode::not_resumable;
    }
    const ErrorCode span_code = check_spans(batch, positions);
    return span_code != ErrorCode::ok ? span_code : check_cross(batch, positions);
  }

  NaiveStep begin(const Batch& batch) {
    NaiveStep step(*spec, batch);
    for (std::size_t row = 0; row < batch.tokens.size(); ++row) {
      const SequenceId id = batch.tokens[row].sequence;
      auto part = std::find_if(step.parts.begin(), step.parts.end(),
                               [&](const NaivePart& p) { return p.id == id; });
      if (part == step.parts.end()) {
        part = step.parts.insert(part, NaivePart{id, sequences.at(id), {}, 0, false, 0});
      }
      part->rows.push_back(static_cast<std::int64_t>(row));
    }
    for (NaivePart& part : step.parts) append(part, batch);
    for (const CrossEntry& entry : batch.cross) {
      for (NaivePart& part : step.parts) {
        if (part.id != entry.sequence) continue;
        part.brings_cross = true;
        part.cross_row = step.cross_rows;
        part.next.cross = NaiveCross{entry.length, entry.owner_begin, entry.owner_end, {}};
        part.next.cross->entries.resize(spec->spec.layers.size());
      }
      step.cross_rows += entry.length;
    }
    for (const NaivePart& part : step.parts) busy[part.id] = 1;
    return step;
  }

  // Tokens that a commit of the first `asked` of a part takes: no cut falls inside a span.
  std::int64_t committable(const NaiveStep& step, const NaivePart& part, std::int64_t asked) const {
    const auto position = [&](std::int64_t i) {
      return step.batch.tokens[at(part.rows[at(i)])].position;
    };
    if (asked == static_cast<std::int64_t>(part.rows.size())) return asked;
    const std::int64_t cut = part.next.snap(position(asked));
    while (cut < position(asked) && asked > 0 && position(asked - 1) >= cut) --asked;
    return asked;
  }

  // Installs the first counts[i] tokens of each part. Trimming of sequences that took no part is
  // up to the caller: trim_idle.
  void commit(NaiveStep& step, const std::vector<std::int64_t>& counts) {
    for (std::size_t i = 0; i < step.parts.size(); ++i) {
      NaivePart& part = step.parts[i];
      busy.erase(part.id);
      if (counts[i] == 0) continue;
      if (counts[i] < static_cast<std::int64_t>(part.rows.size())) {
        const bool had_new = part.brings_cross;
        const std::int64_t cut = step.batch.tokens[at(part.rows[at(counts[i])])].position;
        part.next.cut_to(part.first_ordinal + counts[i], part.next.snap(cut));
        if (had_new && !part.next.cross) part.next.cross = sequences.at(part.id).cross;
      }
      part.next.let_go();
      sequences.at(part.id) = part.next;
    }
  }
  void drop(const NaiveStep& step) {
    for (const NaivePart& part : step.parts) busy.erase(part.id);
  }

  // What happens at a commit to a sequence without an open step that took no part in it.
  void trim_idle(SequenceId id) {
    NaiveSequence& sequence = sequences.at(id);
    sequence.evict(sequence.next_position);
  }

 private:
  ErrorCode check_position(const Token& token, const std::vector<std::int64_t>& before) const {
    if (token.position < 0 || token.position >= std::int64_t{1} << 60) {
      return ErrorCode::out_of_range;
    }
    const NaiveSequence& sequence = sequences.at(token.sequence);
    const std::int64_t last = before.empty() ? sequence.next_position - 1 : before.back();
    if (token.position > last) return ErrorCode::ok;
    if (token.position == last) {
      return spec->spec.equal_positions ? ErrorCode::ok : ErrorCode::duplicate_position;
    }
    for (const NaiveToken* held : sequence.longest()) {
      if (held->position == token.position) return ErrorCode::duplicate_position;
    }
    return ErrorCode::out_of_range;
  }

  static ErrorCode check_spans(const Batch& batch,
                               const std::map<SequenceId, std::vector<std::int64_t>>& positions) {
    for (std::size_t i = 0; i < batch.spans.size(); ++i) {
      const Span& span = batch.spans[i];
      const auto own = positions.find(span.sequence);
      if (own == positions.end() || span.begin >= span.end || span.begin < own->second.front() ||
          span.end > own->second.back() + 1) {
        return ErrorCode::invalid_argument;
      }
      for (std::size_t j = 0; j < i; ++j) {
        const Span& other = batch.spans[j];
        if (other.sequence == span.sequence && span.begin < other.end && other.begin < span.end) {
          return ErrorCode::invalid_argument;
        }
      }
    }
    return ErrorCode::ok;
  }

  ErrorCode check_cross(const Batch& batch,
                        const std::map<SequenceId, std::vector<std::int64_t>>& positions) const {
    for (std::size_t i = 0; i < batch.cross.size(); ++i) {
      const CrossEntry& entry = batch.cross[i];
      if (!spec->has_cross_layers()) return ErrorCode::not_supported;
      const auto own = positions.find(entry.sequence);
      if (own == positions.end()) return ErrorCode::invalid_argument;
      for (std::size_t j = 0; j < i; ++j) {
        if (batch.cross[j].sequence == entry.sequence) return ErrorCode::invalid_argument;
      }
      if (entry.length < 1) return ErrorCode::invalid_argument;
      if (entry.owner_begin < 0 || entry.owner_begin >= entry.owner_end ||
          entry.owner_end > own->second.back() + 1) {
        return ErrorCode::out_of_range;
      }
    }
    return ErrorCode::ok;
  }

  void append(NaivePart& part, const Batch& batch) const {
    NaiveSequence& next = part.next;
    const std::int64_t first = batch.tokens[at(part.rows.front())].position;
    part.first_ordinal = next.end_ordinal;
    next.evict(first);
    if (next.end_ordinal == 0) next.origin = first;
    for (const std::int64_t row : part.rows) {
      const Token& given = batch.tokens[at(row)];
      NaiveToken token;
      token.position = given.position;
      token.key = given.key;
      token.ordinal = next.end_ordinal++;
      token.stored.resize(spec->spec.layers.size());
      token.in.resize(spec->groups.size());
      next.tokens.push_back(token);
      next.next_position = given.position + 1;
    }
    for (const Span& span : batch.spans) {
      if (span.sequence != part.id) continue;
      const bool joins = !next.spans.empty() && span.begin < next.spans.back().end;
      if (!joins) next.spans.push_back({span.begin, span.end});
      next.spans.back().end = std::max(next.spans.back().end, span.end);
    }
  }
};

}  // namespace quire::test
