// Checking a batch before anything is touched.

#include <algorithm>

#include "base/error.h"
#include "cache/step.h"
#include "cache/visible.h"

namespace quire {
namespace {

std::uint64_t number(SequenceId id) { return static_cast<std::uint64_t>(id); }

PartRequest* find_part(std::vector<PartRequest>& parts, SequenceId id) {
  for (PartRequest& part : parts) {
    if (part.sequence->id == id) return &part;
  }
  return nullptr;
}

// Positions never decrease, and repeat only where the spec allows it.
Result<void> check_order(const CacheLayout& layout, const Batch& batch, std::int64_t row,
                         const PartRequest& part, const char* operation) {
  const Token& token = batch.tokens[static_cast<std::size_t>(row)];
  if (token.position < 0 || token.position >= kMaxPosition) {
    return fail(ErrorCode::out_of_range, "{}: token {} at position {}, not in [0, {})", operation,
                row, token.position, kMaxPosition);
  }
  const History& history = part.sequence->history;
  const bool first = part.rows.empty();
  const std::int64_t last = first
                                ? history.next_position - 1
                                : batch.tokens[static_cast<std::size_t>(part.rows.back())].position;
  if (token.position > last || (token.position == last && layout.spec.equal_positions)) return {};
  const std::optional<RunTable::Spot> stored = history.longest().spot_at(token.position);
  if (token.position == last || (stored && stored->position == token.position)) {
    return fail(ErrorCode::duplicate_position, "{}: token {}: sequence {} has position {} already",
                operation, row, number(token.sequence), token.position);
  }
  return fail(ErrorCode::out_of_range,
              "{}: token {}: position {} of sequence {} comes after {}; positions never decrease",
              operation, row, token.position, number(token.sequence), last);
}

// A window must still hold what the first query needs.
Result<void> check_resumable(const CacheLayout& layout, const History& history,
                             std::int64_t position, SequenceId id, const char* operation) {
  for (std::size_t g = 0; g < layout.groups.size(); ++g) {
    const Pattern& pattern = layout.groups[g].pattern;
    const std::int64_t floor = history.groups[g].floor;
    if (is_held(pattern, position, floor)) continue;
    const std::int64_t needed = first_visible(pattern, position);
    return fail(ErrorCode::not_resumable,
                "{}: sequence {} at position {} would need position {} in layer {}, which keeps "
                "positions from {} on",
                operation, number(id), position, std::max<std::int64_t>(needed, 0),
                layout.groups[g].owners.front(), floor);
  }
  return {};
}

Result<void> check_spans(const Batch& batch, std::vector<PartRequest>& parts,
                         const char* operation) {
  for (const Span& span : batch.spans) {
    PartRequest* part = find_part(parts, span.sequence);
    const auto describe = [&](const char* what) {
      return fail(ErrorCode::invalid_argument, "{}: span [{}, {}) of sequence {} {}", operation,
                  span.begin, span.end, number(span.sequence), what);
    };
    if (part == nullptr) return describe("has no token in the batch");
    const std::int64_t first = batch.tokens[static_cast<std::size_t>(part->rows.front())].position;
    const std::int64_t last = batch.tokens[static_cast<std::size_t>(part->rows.back())].position;
    if (span.begin >= span.end) return describe("is empty");
    if (span.begin < first || span.end > last + 1) return describe("does not lie in the batch");
    for (const PositionRange& other : part->spans) {
      if (span.begin < other.end && other.begin < span.end) return describe("meets another span");
    }
    part->spans.push_back({span.begin, span.end});
  }
  for (PartRequest& part : parts) {
    std::sort(part.spans.begin(), part.spans.end(),
              [](const PositionRange& a, const PositionRange& b) { return a.begin < b.begin; });
  }
  return {};
}

Result<void> check_cross(const CacheLayout& layout, const Batch& batch,
                         std::vector<PartRequest>& parts, const char* operation) {
  for (const CrossEntry& entry : batch.cross) {
    const auto describe = [&](ErrorCode code, const char* what) {
      return fail(code, "{}: cross entry of {} tokens for sequence {} owned by [{}, {}) {}",
                  operation, entry.length, number(entry.sequence), entry.owner_begin,
                  entry.owner_end, what);
    };
    if (layout.cross_group < 0) {
      return describe(ErrorCode::not_supported, "in a cache without cross layers");
    }
    PartRequest* part = find_part(parts, entry.sequence);
    if (part == nullptr) {
      return describe(ErrorCode::invalid_argument, "has no token in the batch");
    }
    if (part->cross != nullptr) {
      return describe(ErrorCode::invalid_argument, "is the second of its sequence");
    }
    if (entry.length < 1 || entry.length >= kMaxPosition) {
      return describe(ErrorCode::invalid_argument, "must have a length of at least 1");
    }
    const std::int64_t last = batch.tokens[static_cast<std::size_t>(part->rows.back())].position;
    const auto owns = [&](std::int64_t position) {
      return position >= entry.owner_begin && position < entry.owner_end;
    };
    const std::optional<RunTable::Spot> stored =
        part->sequence->history.longest().spot_at(entry.owner_begin);
    const bool owned = (stored && owns(stored->position)) ||
                       std::any_of(part->rows.begin(), part->rows.end(), [&](std::int64_t row) {
                         return owns(batch.tokens[static_cast<std::size_t>(row)].position);
                       });
    if (!owned || entry.owner_begin < 0 || entry.owner_end > last + 1) {
      return describe(ErrorCode::out_of_range, "is not owned by tokens up to this step's last");
    }
    part->cross = &entry;
  }
  return {};
}

}  // namespace

Result<std::vector<PartRequest>> check_batch(CacheCore& cache, const Batch& batch,
                                             const char* operation) {
  const CacheLayout& layout = cache.layout();
  const CacheSpec& spec = layout.spec;
  if (cache.data == nullptr) {
    return fail(ErrorCode::unknown_sequence, "{}: the cache is closed", operation);
  }
  if (batch.tokens.empty()) {
    return fail(ErrorCode::invalid_argument, "{}: the batch has no tokens", operation);
  }
  const auto size = static_cast<std::int64_t>(batch.tokens.size());
  if (spec.max_batch && size > *spec.max_batch) {
    return fail(ErrorCode::full, "{}: {} tokens in the batch, max_batch is {}", operation, size,
                *spec.max_batch);
  }
  std::vector<PartRequest> parts;
  const std::uint64_t mark = cache.store->next_mark++;
  for (std::int64_t row = 0; row < size; ++row) {
    const SequenceId id = batch.tokens[static_cast<std::size_t>(row)].sequence;
    QUIRE_TRY(SequenceState * sequence, cache.find_idle(id, operation));
    if (sequence->mark != mark) {
      sequence->mark = mark;
      sequence->part = parts.size();
      parts.emplace_back().sequence = sequence;
    }
    PartRequest& part = parts[sequence->part];
    QUIRE_CHECK(check_order(layout, batch, row, part, operation));
    part.rows.push_back(row);
  }
  for (const PartRequest& part : parts) {
    const History& history = part.sequence->history;
    const auto count = static_cast<std::int64_t>(part.rows.size());
    const std::int64_t first = batch.tokens[static_cast<std::size_t>(part.rows.front())].position;
    if (spec.max_tokens && history.length_at(first) + count > *spec.max_tokens) {
      return fail(ErrorCode::full,
                  "{}: {} tokens more for sequence {}, which holds {}; max_tokens "
                  "is {}",
                  operation, count, number(part.sequence->id), history.length(), *spec.max_tokens);
    }
    QUIRE_CHECK(check_resumable(layout, history, first, part.sequence->id, operation));
  }
  QUIRE_CHECK(check_spans(batch, parts, operation));
  QUIRE_CHECK(check_cross(layout, batch, parts, operation));
  return parts;
}

Batch& Batch::add(SequenceId sequence, std::int64_t first_position, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back({sequence, first_position + i, 0});
  return *this;
}

Batch& Batch::add(SequenceId sequence, std::int64_t first_position,
                  const std::vector<std::uint64_t>& keys) {
  for (const std::uint64_t key : keys) tokens.push_back({sequence, first_position++, key});
  return *this;
}

}  // namespace quire
