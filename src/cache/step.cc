// The life of an open step: commit, drop.

#include "cache/step.h"

#include <algorithm>

#include "base/error.h"

namespace quire {
Result<void> StepCore::check_open(const char* operation) const {
  if (data != nullptr) return {};
  return fail(ErrorCode::wrong_state, "{}: the step is over", operation);
}

bool StepCore::is_open() {
  const std::lock_guard lock(mutex);
  return data != nullptr;
}

std::int64_t StepCore::tokens() {
  const std::lock_guard lock(mutex);
  return data != nullptr ? static_cast<std::int64_t>(data->tokens.size()) : 0;
}

// --- the end ---------------------------------------------------------------------------------

namespace {

// Installs the first `count` tokens of a part. Cannot fail: the part owns the chunks it touches.
void install(StepPart& part, std::int64_t count, const StepData& data) {
  History& next = part.next;
  History& history = part.sequence->history;
  const std::int64_t end = part.first_ordinal + count;
  // Before the cut, which gives pages back that nobody shows any more.
  for (std::size_t g = 0; g < part.groups.size(); ++g) {
    PagePool& pool = next.groups[g].table.pool();
    for (Page* page : part.groups[g].sealing) {
      if (page->first_ordinal + page->slots > end) pool.drop_sealed(*page);
    }
  }
  if (count < static_cast<std::int64_t>(part.rows.size())) {
    const auto first_cut = static_cast<std::size_t>(part.rows[static_cast<std::size_t>(count)]);
    next.cut_to(end, next.snap(data.tokens[first_cut].position));
    if (part.brings_cross && !next.has_cross()) {
      // The new entry's owner was cut away, so the one before stays.
      const auto g = static_cast<std::size_t>(next.layout().cross_group);
      next.groups[g].table.swap(history.groups[g].table);
      std::swap(next.cross_length, history.cross_length);
      std::swap(next.cross_owner, history.cross_owner);
    }
  }
  next.let_go();
  history.swap(next);
}

}  // namespace

Result<std::vector<Committed>> StepCore::commit(const std::vector<std::int64_t>* counts) {
  const std::lock_guard step_lock(mutex);
  QUIRE_CHECK(check_open("commit"));
  for (std::size_t i = 0; i < layout().layers.size(); ++i) {
    const Layer& layer = layout().layers[i];
    if (layer.owner != static_cast<int>(i) || data->put[i]) continue;
    if (layout().is_cross(layer.group) && data->cross_rows == 0) continue;
    return fail(ErrorCode::wrong_state, "commit: layer {} was not put", i);
  }
  if (counts != nullptr && counts->size() != data->parts.size()) {
    return fail(ErrorCode::mismatch, "commit: {} counts for {} sequences", counts->size(),
                data->parts.size());
  }
  std::vector<Committed> committed;
  for (std::size_t p = 0; p < data->parts.size(); ++p) {
    const StepPart& part = data->parts[p];
    const auto all = static_cast<std::int64_t>(part.rows.size());
    std::int64_t count = counts != nullptr ? (*counts)[p] : all;
    if (count < 0 || count > all) {
      return fail(ErrorCode::out_of_range, "commit: {} tokens of sequence {}, which brought {}",
                  count, static_cast<std::uint64_t>(part.sequence->id), all);
    }
    if (count < all) {
      const auto position_of = [&](std::int64_t i) {
        return data->tokens[static_cast<std::size_t>(part.rows[static_cast<std::size_t>(i)])]
            .position;
      };
      const std::int64_t at = part.next.snap(position_of(count));
      while (at < position_of(count) && count > 0 && position_of(count - 1) >= at) --count;
    }
    committed.push_back({part.sequence->id, count});
  }
  const std::lock_guard store_lock(cache->store->mutex);
  for (std::size_t p = 0; p < data->parts.size(); ++p) {
    StepPart& part = data->parts[p];
    if (committed[p].tokens > 0) {
      install(part, committed[p].tokens, *data);
    } else {
      abandon(part);
    }
  }
  cache->evict_idle();  // before the parts are released: their sequences took part
  for (StepPart& part : data->parts) {
    part.sequence->step = nullptr;
    cache->note_evictable(*part.sequence);
  }
  finish();
  return committed;
}

void StepCore::drop() noexcept {
  const std::lock_guard step_lock(mutex);
  if (data == nullptr) return;
  const std::lock_guard store_lock(cache->store->mutex);
  for (StepPart& part : data->parts) {
    abandon(part);
    part.sequence->step = nullptr;
  }
  const std::vector<std::uint32_t> kept = std::move(data->kept);
  finish();
  cache->store->memory.restore_kept(kept);
}

void StepCore::finish() noexcept {
  Memory& memory = cache->store->memory;
  data->~StepData();
  memory.deallocate(data, sizeof(StepData), alignof(StepData));
  data = nullptr;
  sights.clear();
  std::erase_if(cache->steps, [&](const auto& step) { return step.get() == this; });
}

}  // namespace quire
