#include "cache/core.h"

#include <algorithm>
#include <new>

#include "base/error.h"
#include "cache/step.h"

namespace quire {

Store::Store(std::unique_ptr<const CacheLayout> made)
    : layout(std::move(made)),
      memory(layout->spec.memory, layout->spec.memory_limit_bytes.value_or(SIZE_MAX)),
      threads(layout->spec.threads),
      executor(layout->spec.executor != nullptr ? layout->spec.executor : &threads),
      run_threads(executor == &threads ? threads.size()
                                       : static_cast<std::size_t>(usable_cores())) {
  for (const Group& group : layout->groups) {
    pools.push_back(std::make_unique<PagePool>(memory, layout->spec.page_tokens, group.rows_bytes,
                                               group.sealed_bytes));
  }
}

CacheCore::CacheCore(std::shared_ptr<Store> shared_store) : store(std::move(shared_store)) {
  void* block = store->memory.allocate(sizeof(CacheData), alignof(CacheData));
  data = new (block) CacheData(store->memory);
  take_ballast();
}

CacheCore::~CacheCore() { close(); }

void CacheCore::give_ballast() noexcept {
  if (ballast != nullptr) store->memory.deallocate(ballast, ballast_bytes());
  ballast = nullptr;
}

void CacheCore::take_ballast() noexcept {
  try {
    if (ballast == nullptr) ballast = store->memory.allocate(ballast_bytes());
  } catch (const std::bad_alloc&) {
    // Tried again when the limit is next enforced.
  }
}

void CacheCore::close() noexcept {
  // Steps are dropped first, each under its own lock, which may wait for a call in progress; also
  // those that another thread begins meanwhile.
  std::unique_lock lock(store->mutex);
  while (!steps.empty()) {
    const std::shared_ptr<StepCore> step = steps.back();
    lock.unlock();
    step->drop();  // takes itself off the list
    lock.lock();
  }
  if (data == nullptr) return;
  forget_sequences();
  give_ballast();
  data->~CacheData();
  store->memory.deallocate(data, sizeof(CacheData), alignof(CacheData));
  data = nullptr;
}

void CacheCore::forget_sequences() noexcept {
  data->sequences.clear();
  data->may_evict.clear();
  data->may_evict.shrink_to_fit();
}

Result<SequenceState*> CacheCore::find(SequenceId id) {
  if (data == nullptr) {
    return fail(ErrorCode::unknown_sequence, "sequence {}: the cache is closed",
                static_cast<std::uint64_t>(id));
  }
  const auto found = data->sequences.find(id);
  if (found == data->sequences.end()) {
    return fail(ErrorCode::unknown_sequence, "sequence {} is not one of the {} open ones",
                static_cast<std::uint64_t>(id), data->sequences.size());
  }
  return &found->second;
}

Result<SequenceState*> CacheCore::find_idle(SequenceId id, const char* operation) {
  QUIRE_TRY(SequenceState * sequence, find(id));
  if (sequence->step != nullptr) {
    return fail(ErrorCode::busy, "{}: sequence {} has an open step", operation,
                static_cast<std::uint64_t>(id));
  }
  return sequence;
}

Result<SequenceId> CacheCore::open(const char* operation, const History* copied) {
  if (data == nullptr) {
    return fail(ErrorCode::unknown_sequence, "{}: the cache is closed", operation);
  }
  const auto& limit = layout().spec.max_sequences;
  const auto count = static_cast<std::int64_t>(data->sequences.size());
  if (limit && count >= *limit) {
    return fail(ErrorCode::full, "{}: {} sequences are open and max_sequences is {}", operation,
                count, *limit);
  }
  const auto id = static_cast<SequenceId>(store->next_sequence);
  History history =
      copied != nullptr ? History(*copied) : History(layout(), store->pools, store->memory);
  const auto added = data->sequences.try_emplace(data->sequences.end(), id, id, std::move(history));
  ++store->next_sequence;
  note_evictable(added->second);
  return id;
}

void CacheCore::note_evictable(SequenceState& sequence) noexcept {
  if (sequence.may_evict || !sequence.history.evictable()) return;
  try {
    data->may_evict.push_back(sequence.id);
    sequence.may_evict = true;
  } catch (const std::bad_alloc&) {
    // It is noted again after its next step.
  }
}

void CacheCore::evict_idle() noexcept {
  std::erase_if(data->may_evict, [&](SequenceId id) {
    const auto found = data->sequences.find(id);
    if (found == data->sequences.end()) return true;
    SequenceState& sequence = found->second;
    if (sequence.step != nullptr) return false;
    try {
      History trimmed(sequence.history);
      trimmed.evict(trimmed.next_position);
      sequence.history.swap(trimmed);
      sequence.may_evict = false;
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  });
}

}  // namespace quire
