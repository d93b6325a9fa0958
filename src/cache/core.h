// What stands behind the public handles: the store that clones share, the cache, its sequences and
// its open steps.
//
// Locks: Store::mutex guards everything but the inside of an open step, which StepCore::mutex
// guards. A thread that needs both takes the step's first.
#pragma once

#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "cache/history.h"
#include "cache/layout.h"
#include "page/page.h"
#include "quire/cache.hpp"

namespace quire {

// Pages and their memory, shared by a cache and its clones.
struct Store {
  explicit Store(std::unique_ptr<const CacheLayout> made);

  std::mutex mutex;
  std::unique_ptr<const CacheLayout> layout;
  Memory memory;
  std::vector<std::unique_ptr<PagePool>> pools;  // per group
  ThreadPool threads;
  Executor* executor;
  std::size_t run_threads;  // that a run of the executor may have; of a caller's own a guess
  std::uint64_t next_sequence = 1;
  std::uint64_t next_mark = 1;  // for walks that count pages once
};

struct SequenceState {
  SequenceState(SequenceId sequence_id, History made) : id(sequence_id), history(std::move(made)) {}

  SequenceId id;
  History history;
  StepCore* step = nullptr;  // open on this sequence
  bool may_evict = false;    // holds more than its windows keep while it takes no part in steps
  std::uint64_t mark = 0;    // of the batch being checked, with this sequence's part in it
  std::size_t part = 0;
};

using SequenceMap = std::pmr::map<SequenceId, SequenceState>;

// All that a cache keeps besides pages. Lives in the store's memory, so that it counts.
struct CacheData {
  explicit CacheData(Memory& memory) : sequences(&memory), may_evict(&memory) {}
  SequenceMap sequences;
  std::pmr::vector<SequenceId> may_evict;  // may hold more than their windows keep, or be closed
};

class CacheCore : public std::enable_shared_from_this<CacheCore> {
 public:
  explicit CacheCore(std::shared_ptr<Store> shared_store);  // Throws MemoryError
  ~CacheCore();
  void close() noexcept;

  const CacheLayout& layout() const noexcept { return *store->layout; }
  // The functions below require the store's lock.
  Result<SequenceState*> find(SequenceId id);
  Result<SequenceState*> find_idle(SequenceId id, const char* operation);  // refuses a busy one
  Result<SequenceId> open(const char* operation, const History* copied);
  void forget_sequences() noexcept;
  // Memory set aside so that sequences can be cut when the limit is reached: room for the chunks
  // that a cut changes. Given up while the limit is enforced, taken again after.
  std::size_t ballast_bytes() const noexcept {
    return Memory::table_bytes(2 * sizeof(Chunk) * store->pools.size());
  }
  void give_ballast() noexcept;
  void take_ballast() noexcept;  // as far as there is memory
  // Trims windows of sequences that took no part in a step; what has no memory to be trimmed
  // waits for the next time.
  void evict_idle() noexcept;
  void note_evictable(SequenceState& sequence) noexcept;

  std::shared_ptr<Store> store;
  CacheData* data = nullptr;  // null when closed
  void* ballast = nullptr;
  std::vector<std::shared_ptr<StepCore>> steps;  // open ones
};

// Runs `body`, which returns a Result, and turns exceptions into errors: none leaves the library.
template <typename Body>
auto shielded(const char* operation, Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const MemoryError& error) {
    return error.to_error(operation);
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::out_of_memory, std::string(operation) + ": the system has no memory"};
  } catch (const std::exception& error) {
    return Error{ErrorCode::internal, std::string(operation) + ": " + error.what()};
  } catch (...) {
    return Error{ErrorCode::internal, std::string(operation) + ": an unknown exception"};
  }
}

// The same under the store's lock.
template <typename Body>
auto guarded(Store& store, const char* operation, Body&& body) -> decltype(body()) {
  return shielded(operation, [&] {
    const std::lock_guard lock(store.mutex);
    return body();
  });
}

}  // namespace quire
