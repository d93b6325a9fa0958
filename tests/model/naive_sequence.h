// One sequence as a plain list of tokens. Every token that was appended and neither cut nor
// removed is in the list, with its rows; what a group shows of it is a flag.
//
// Rows are kept twice: as they were put, and as sealing leaves them. A token's page is named by
// its ordinal alone, so which of the two a reader gets is arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "model/naive_spec.h"

namespace quire::test {

struct NaiveRow {
  std::vector<float> key;    // [head][key_dim]
  std::vector<float> value;  // [head][value_dim]
};

// A row before and after its page is sealed.
struct NaiveForms {
  std::int64_t rotated_for = 0;  // the position the keys were rotated for
  bool approximate = false;      // the cache holds these keys turned, so not bit for bit
  NaiveRow exact;
  NaiveRow coded;
};
using NaiveStored = std::shared_ptr<const NaiveForms>;

struct NaiveToken {
  struct InGroup {
    bool shown = true;
    bool rows = true;  // exact rows are held
  };
  std::int64_t position = 0;
  std::int64_t ordinal = 0;
  std::uint64_t key = 0;
  std::vector<NaiveStored> stored;  // [layer], null where nothing was put
  std::vector<InGroup> in;          // [group]
};

struct NaiveCross {
  std::int64_t length = 0;
  std::int64_t owner_begin = 0;
  std::int64_t owner_end = 0;
  std::vector<std::vector<NaiveStored>> entries;  // [layer][entry]
};

struct NaiveRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Rounds a row to its type; null when a value cannot be stored. `value` is ignored for MLA.
inline NaiveStored make_stored(const NaiveSpec& spec, std::size_t layer, std::int64_t position,
                               std::vector<float> key, std::vector<float> value) {
  const LayerSpec& shape = spec.spec.layers[layer];
  const NumberFormat& format = format_of(spec.row_type[layer]);
  const auto round_all = [&](std::vector<float>& row, const std::string& codec) {
    for (float& x : row) {
      x = round_to(format, double{x});
      if (!can_store(codec, x)) return false;
    }
    return true;
  };
  const auto code_all = [](std::vector<float>& row, const std::string& codec, int dim, int split) {
    for (std::size_t i = 0; i < row.size(); i += at(dim)) {
      code_row(codec, row.data() + i, dim, split);
    }
  };
  if (!round_all(key, shape.codec.key)) return nullptr;
  auto forms = std::make_shared<NaiveForms>();
  forms->rotated_for = position;
  forms->exact.key = key;
  forms->coded.key = key;
  code_all(forms->coded.key, shape.codec.key, shape.key_dim, shape.mla ? shape.value_dim : 0);
  if (shape.mla) {
    forms->exact.value.assign(forms->exact.key.begin(), forms->exact.key.begin() + shape.value_dim);
    forms->coded.value.assign(forms->coded.key.begin(), forms->coded.key.begin() + shape.value_dim);
    return forms;
  }
  if (!round_all(value, shape.codec.value)) return nullptr;
  forms->exact.value = value;
  forms->coded.value = value;
  code_all(forms->coded.value, shape.codec.value, shape.value_dim, 0);
  return forms;
}

class NaiveSequence {
 public:
  explicit NaiveSequence(const NaiveSpec& of) : spec(&of), floor(of.groups.size(), kNoFloor) {}

  const NaiveSpec* spec;
  std::vector<NaiveToken> tokens;
  std::vector<std::int64_t> floor;  // [group]: lower tokens were dropped, later ones stayed
  std::vector<NaiveRange> spans;
  std::int64_t end_ordinal = 0;
  std::int64_t next_position = 0;
  std::int64_t origin = 0;  // position of the first token there ever was
  std::optional<NaiveCross> cross;
  bool is_pure = true;  // made of appends, forks and cuts at shown tokens alone

  // --- questions

  bool in_any_group(const NaiveToken& token) const {
    for (std::size_t g = 0; g < floor.size(); ++g) {
      if (!spec->is_cross(g) && token.in[g].shown) return true;
    }
    return false;
  }
  std::vector<const NaiveToken*> shown(std::size_t group) const {
    std::vector<const NaiveToken*> result;
    for (const NaiveToken& token : tokens) {
      if (token.in[group].shown) result.push_back(&token);
    }
    return result;
  }
  // Groups differ only in how much of the front they have let go, so the longest is the union.
  std::vector<const NaiveToken*> longest() const {
    std::vector<const NaiveToken*> result;
    for (const NaiveToken& token : tokens) {
      if (in_any_group(token)) result.push_back(&token);
    }
    return result;
  }
  std::int64_t length() const { return static_cast<std::int64_t>(longest().size()); }
  std::int64_t length(std::size_t layer) const {
    if (spec->is_cross_layer(layer)) return cross ? cross->length : 0;
    return static_cast<std::int64_t>(shown(spec->group_of[layer]).size());
  }
  // Tokens that a step at `first` may bring: what windows then let go makes room.
  std::int64_t remaining_at(std::int64_t first) const {
    const auto& limit = spec->spec.max_tokens;
    if (!limit) return INT64_MAX;
    NaiveSequence trimmed = *this;
    trimmed.evict(first);
    return std::max<std::int64_t>(*limit - trimmed.length(), 0);
  }
  std::int64_t remaining() const { return remaining_at(next_position); }
  std::int64_t snap(std::int64_t position) const {
    for (const NaiveRange& span : spans) {
      if (span.begin < position && position < span.end) return span.begin;
    }
    return position;
  }
  // Whether a window or chunk of a query at `position` reaches below what its group retains.
  bool reaches_below_floor(std::int64_t position) const {
    for (std::size_t g = 0; g < floor.size(); ++g) {
      const Pattern::Kind kind = spec->groups[g].kind;
      if (kind != Pattern::Kind::window && kind != Pattern::Kind::chunked) continue;
      if (std::max<std::int64_t>(spec->first_visible(g, position), 0) < floor[g]) return true;
    }
    return false;
  }
  bool can_resume(std::int64_t position) const {
    if (end_ordinal == 0 || position < 0 || position > next_position) return false;
    if (snap(position) != position) return false;
    if (position <= origin) return true;
    const auto held = longest();
    if (!held.empty() && position < held.front()->position) return false;
    return !reaches_below_floor(position);
  }
  // Whether a cut at `position` leaves the rows that later queries read and later pages are sealed
  // from, or ones that can be rebuilt. With `hidden_too` all rows of the region count, as the rule
  // says; without, only those that are seen: a coded cut leaves its tokens in a page of their own,
  // so those hidden since are not sealed again. Requires: can_resume, is_pure.
  bool is_exact_point(std::int64_t position, bool hidden_too) const {
    if (position <= origin) return true;
    std::int64_t ordinal = end_ordinal;
    for (const NaiveToken& token : tokens) {
      if (token.position >= position) ordinal = std::min(ordinal, token.ordinal);
    }
    for (const NaiveToken& token : tokens) {
      if (token.ordinal >= ordinal) continue;
      if (spec->page_end(token.ordinal) <= spec->sealed_below(ordinal)) continue;
      for (std::size_t g = 0; g < floor.size(); ++g) {
        if (spec->is_cross(g) || spec->lossless[g] || token.in[g].rows) continue;
        if (token.in[g].shown || hidden_too) return false;
      }
    }
    for (std::size_t g = 0; g < floor.size(); ++g) {
      if (!spec->is_cross(g) && loses_open_page(g, ordinal)) return false;
    }
    return true;
  }
  // Whether a cut takes all that a group shows of a page and leaves only what it has hidden: the
  // page then goes too, with rows that it should be sealed from.
  bool loses_open_page(std::size_t group, std::int64_t ordinal) const {
    bool before = false;
    bool hidden = false;
    bool after = false;
    for (const NaiveToken& token : tokens) {
      if (spec->floor_page(token.ordinal) != spec->floor_page(ordinal)) continue;
      const bool is_shown = token.in[group].shown;
      before = before || (is_shown && token.ordinal < ordinal);
      hidden = hidden || (!is_shown && token.ordinal < ordinal);
      after = after || (is_shown && token.ordinal >= ordinal);
    }
    return hidden && after && !before;
  }
  // Whether a reader that takes pages below `sealed_below` as sealed gets this token's codes.
  bool reads_coded(const NaiveToken& token, std::size_t group, std::int64_t sealed_below) const {
    const std::int64_t page_end = spec->page_end(token.ordinal);
    if (page_end <= spec->head_end()) return false;
    return !token.in[group].rows || page_end <= sealed_below;
  }

  // --- edits

  Cut truncate(std::int64_t position) {
    Cut cut{false, snap(position)};
    if (end_ordinal > 0 && cut.at <= origin) {
      reset();
      cut.removed = true;
      return cut;
    }
    std::int64_t ordinal = INT64_MAX;
    for (const NaiveToken& token : tokens) {
      if (token.position >= cut.at && in_any_group(token)) {
        ordinal = std::min(ordinal, token.ordinal);
      }
    }
    if (ordinal == INT64_MAX) return cut;
    cut.removed = true;
    cut_to(ordinal, cut.at);
    return cut;
  }

  // Keeps the tokens with ordinals below `ordinal`, which are those below `position`.
  void cut_to(std::int64_t ordinal, std::int64_t position) {
    drop_cross_owned_by(position, INT64_MAX);
    for (std::size_t g = 0; g < floor.size(); ++g) {
      if (!spec->is_cross(g) && loses_open_page(g, ordinal)) is_pure = false;
    }
    std::erase_if(tokens, [&](const NaiveToken& token) {
      if (token.ordinal >= ordinal) return true;
      // Hidden tokens at or after the cut: their ordinals stay taken, in pages without rows.
      const bool among_hidden = token.position >= position && !in_any_group(token);
      if (among_hidden) is_pure = false;
      return among_hidden;
    });
    end_ordinal = ordinal;
    const auto held = longest();
    next_position = held.empty() ? std::min(next_position, position) : held.back()->position + 1;
    std::erase_if(spans, [&](const NaiveRange& span) { return span.begin >= next_position; });
    for (NaiveRange& span : spans) span.end = std::min(span.end, next_position);
  }

  Cut keep_last(std::int64_t count) {
    const auto held = longest();
    const auto length = static_cast<std::int64_t>(held.size());
    if (count >= length) return {false, length > 0 ? held.front()->position : next_position};
    if (count == 0) {
      const Cut cut{true, next_position};
      reset();
      return cut;
    }
    is_pure = false;
    const std::int64_t first = held[at(length - count)]->position;
    const std::int64_t ordinal = held[at(length - count)]->ordinal;
    drop_cross_owned_by(INT64_MIN, first);
    for (NaiveToken& token : tokens) {
      if (token.ordinal >= ordinal) continue;
      for (std::size_t g = 0; g < floor.size(); ++g) {
        if (token.in[g].shown) floor[g] = std::max(floor[g], first);
        token.in[g].shown = false;
      }
    }
    std::erase_if(spans, [&](const NaiveRange& span) { return span.end <= first; });
    for (NaiveRange& span : spans) span.begin = std::max(span.begin, first);
    return {true, first};
  }

  // not_supported when a layer does not know how to move its tokens; nothing has changed then.
  Result<Cut> shift_left(std::int64_t count) {
    const auto held = longest();
    if (count == 0 || held.empty()) {
      return Cut{false, held.empty() ? next_position : held.front()->position};
    }
    const std::int64_t first = held.front()->position;
    if (count >= static_cast<std::int64_t>(held.size())) return truncate(first);
    return remove(first, held[at(count)]->position, false);
  }

  Result<Cut> remove(std::int64_t begin, std::int64_t end, bool leave_gap) {
    const auto held = longest();
    const auto inside = [&](std::int64_t position) { return begin <= position && position < end; };
    Cut cut{false, begin};
    for (const NaiveToken* token : held) cut.removed = cut.removed || inside(token->position);
    if (held.empty() || held.back()->position < end) {
      return cut.removed ? truncate(begin) : cut;
    }
    const std::int64_t move = leave_gap ? 0 : end - begin;
    if (move == 0 && !cut.removed) return cut;
    if (move > 0 && !is_movable()) return Error{ErrorCode::not_supported, ""};
    is_pure = false;
    drop_cross_owned_by(begin, end);
    const auto moved = [&](std::int64_t position) {
      if (position < begin) return position;
      return position < end ? (leave_gap ? end : begin) : position - move;
    };
    const auto moved_range = [&](NaiveRange range) -> NaiveRange {
      return {moved(range.begin), inside(range.end) ? begin : moved(range.end)};
    };
    for (std::size_t g = 0; g < floor.size(); ++g) {
      if (spec->is_cross(g)) continue;
      const auto before = shown(g);
      if (floor[g] != kNoFloor) floor[g] = moved(floor[g]);
      if (!leave_gap || before.empty() || !inside(before.front()->position)) continue;
      for (const NaiveToken* token : before) {
        if (token->position < end) continue;
        floor[g] = std::max(floor[g], token->position);
        break;
      }
    }
    std::erase_if(tokens, [&](const NaiveToken& token) { return inside(token.position); });
    for (NaiveToken& token : tokens) {
      if (token.position < end || move == 0) continue;
      token.position -= move;
      rotate_by_function(token, token.position + move);
    }
    for (NaiveRange& span : spans) span = moved_range(span);
    std::erase_if(spans, [](const NaiveRange& span) { return span.begin >= span.end; });
    if (cross) {
      const NaiveRange owner = moved_range({cross->owner_begin, cross->owner_end});
      cross->owner_begin = owner.begin;
      cross->owner_end = owner.end;
    }
    origin = moved(origin);
    next_position -= move;
    return cut;
  }

  // Hides what windows do not keep when a step starts at `first`.
  void evict(std::int64_t first) {
    for (std::size_t g = 0; g < floor.size(); ++g) {
      const std::int64_t from = spec->retained_from(g, first);
      for (NaiveToken& token : tokens) {
        if (!token.in[g].shown || token.position >= from) continue;
        token.in[g].shown = false;
        floor[g] = std::max(floor[g], from);
      }
    }
  }

  // What a commit lets go: rows of pages too old to be undone or read exactly.
  void let_go() {
    const std::int64_t from = spec->rows_from(end_ordinal);
    for (NaiveToken& token : tokens) {
      const std::int64_t page_end = spec->page_end(token.ordinal);
      if (page_end > from || page_end <= spec->head_end()) continue;
      for (NaiveToken::InGroup& in : token.in) in.rows = false;
    }
    // Spans that nothing shows any more can no longer be cut.
    const auto held = longest();
    if (held.empty()) return;
    const std::int64_t first = held.front()->position;
    std::erase_if(spans, [&](const NaiveRange& span) { return span.end <= first; });
  }

  // Drops the cross entry if a token that owns it lies in [begin, end).
  void drop_cross_owned_by(std::int64_t begin, std::int64_t end) {
    if (!cross) return;
    for (const NaiveToken& token : tokens) {
      if (token.position < std::max(begin, cross->owner_begin)) continue;
      if (token.position >= std::min(end, cross->owner_end)) continue;
      cross.reset();
      return;
    }
  }

 private:
  bool is_movable() const {
    for (const LayerSpec& layer : spec->spec.layers) {
      const bool cross_layer = layer.pattern.kind == Pattern::Kind::cross;
      if (!cross_layer && !layer.kv_of && layer.rotation.kind == Rotation::Kind::unknown) {
        return false;
      }
    }
    return true;
  }

  void reset() {
    cross.reset();
    tokens.clear();
    std::fill(floor.begin(), floor.end(), kNoFloor);
    spans.clear();
    end_ordinal = next_position = origin = 0;
    is_pure = true;
  }

  // A caller's function gets the keys as they are held and its result is stored anew.
  void rotate_by_function(NaiveToken& token, std::int64_t from) const {
    for (std::size_t layer = 0; layer < token.stored.size(); ++layer) {
      const LayerSpec& shape = spec->spec.layers[layer];
      if (shape.rotation.kind != Rotation::Kind::function || !token.stored[layer]) continue;
      const std::size_t group = spec->group_of[layer];
      const bool coded = !token.in[group].rows;
      const NaiveForms& forms = *token.stored[layer];
      NaiveRow row = coded ? forms.coded : forms.exact;
      shape.rotation.function(static_cast<int>(layer), row.key.data(), shape.kv_heads,
                              shape.key_dim, from, token.position);
      auto made = std::make_shared<NaiveForms>(
          *make_stored(*spec, layer, forms.rotated_for, row.key, forms.exact.value));
      if (!shape.mla) {
        made->exact.value = forms.exact.value;
        made->coded.value = forms.coded.value;
      }
      token.stored[layer] = made;
    }
  }
};

}  // namespace quire::test
