// An open step: for each sequence of its batch, the history that commit will install, and where in
// its pages the rows of the batch go.
//
// Everything that can fail for memory happens in begin. A step's tables are its own: pages it made
// are seen by nobody else, and the open page it goes on filling shows others only the slots that
// were committed. So put and attend take no lock but the step's own, and commit cannot fail
// half-way.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <vector>

#include "attend/block_walk.h"
#include "attend/scratch.h"
#include "cache/attend_work.h"
#include "cache/core.h"
#include "cache/shelf.h"

namespace quire {

// `count` tokens of a part, from its token `token` on, lie in `page` from `slot` on.
struct Segment {
  Page* page = nullptr;
  int slot = 0;
  int count = 0;
  std::int64_t token = 0;
};

struct GroupPart {
  explicit GroupPart(Memory& memory) : segments(&memory), sealing(&memory) {}
  std::pmr::vector<Segment> segments;
  std::pmr::vector<Page*> sealing;  // pages that this step fills, to be encoded by put
};

// One sequence's share of a step.
struct StepPart {
  StepPart(SequenceState& owner, Memory& memory)
      : sequence(&owner), next(owner.history), rows(&memory), groups(&memory) {}

  SequenceState* sequence;
  History next;                         // after a commit of all tokens
  std::pmr::vector<std::int64_t> rows;  // of the batch, in order
  std::int64_t first_ordinal = 0;       // of the first of them
  std::pmr::vector<GroupPart> groups;
  bool brings_cross = false;
  std::int64_t cross_row = 0;  // of its first entry in a cross layer's put
};

// Lives in the store's memory, so that it counts.
struct StepData {
  explicit StepData(Memory& memory)
      : tokens(&memory), parts(&memory), part_of(&memory), put(&memory), exceptions(&memory) {}
  std::pmr::vector<Token> tokens;
  std::pmr::vector<StepPart> parts;        // in the order sequences first appear
  std::pmr::vector<std::int64_t> part_of;  // [token]
  std::pmr::vector<char> put;              // [layer]
  std::pmr::vector<char> exceptions;       // [token]
  std::int64_t cross_rows = 0;             // of a cross layer's put
  std::vector<std::uint32_t> kept;         // what reserve had kept before this step drew on it
};

// What a task of put works in.
struct PutScratch {
  Scratch token;
  Scratch rows;
  Scratch sealed;
};

class StepCore : public std::enable_shared_from_this<StepCore> {
 public:
  explicit StepCore(std::shared_ptr<CacheCore> core) : cache(std::move(core)) {}

  Result<void> put(int layer, const TensorView& keys, const TensorView* values);
  Result<void> attend(int layer, const TensorView& q, const OutputView& out);
  Result<void> attend_state(int layer, const TensorView& q, const StateView& out);
  Result<void> scores(int layer, const TensorView& q, float* out, std::int64_t elements,
                      bool probabilities);
  Result<void> set_exceptions(const std::vector<std::int64_t>& tokens);
  Result<Gathered> gather(int layer, const std::vector<SequenceId>& sequences,
                          const GatherFormat& format, bool size_only, void* keys,
                          std::int64_t key_elements, void* values, std::int64_t value_elements);
  // Columns only where `out` is not wanted.
  Result<std::int64_t> mask(int layer, DType dtype, std::int64_t pad, bool size_only, void* out,
                            std::int64_t elements);
  Result<std::vector<RunView>> runs(int layer, SequenceId sequence);
  Result<std::vector<Committed>> commit(const std::vector<std::int64_t>* counts);
  void drop() noexcept;
  bool is_open();
  std::int64_t tokens();

  std::mutex mutex;
  std::shared_ptr<CacheCore> cache;
  StepData* data = nullptr;  // null when committed, dropped or closed
  Shelf<PutScratch> put_scratch;
  Shelf<WalkRoom> walk_rooms;
  Shelf<Scratch> item_scratch;

 private:
  // What the queries of a part see in a group, made when it is first asked for: it is the same for
  // all layers of the group.
  struct Sight {
    std::vector<PageSlice> slices;
    std::vector<WorkItem> items;  // of the slices
    std::vector<Query> queries;
    std::unique_ptr<AttendWork> work;  // of the last layer
  };
  std::vector<Sight> sights;  // [part][group]
  Scratch states;             // of attend

  // These require the step's lock.
  Result<void> check_open(const char* operation) const;
  Result<const Layer*> readable_layer(const char* operation, int layer) const;
  Result<void> check_query(const char* operation, int index, const Layer& layer,
                           const TensorView& q) const;
  std::vector<Query> make_queries(const StepPart& part, int group) const;
  Sight& sight_of(const StepPart& part, int group);
  const std::vector<Query>& queries_of(const StepPart& part, const Layer& layer);
  const std::vector<PageSlice>& slices_of(const StepPart& part, const Layer& layer);
  const std::vector<WorkItem>& items_of(const StepPart& part, const Layer& layer);
  std::int64_t columns_of(const StepPart& part, const Layer& layer);
  template <typename View>
  Result<const Layer*> attended_layer(int index, const TensorView& q, const View& out,
                                      bool is_null) const;
  // Writes states and, where `out` is not null, what they come to.
  Result<void> run_states(const Layer& layer, const TensorView& q, const StateView& to,
                          const OutputView* out);
  void finish() noexcept;  // Requires: the store's lock too

  const CacheLayout& layout() const noexcept { return cache->layout(); }
};

// What a batch asks of one sequence, checked.
struct PartRequest {
  SequenceState* sequence = nullptr;
  std::vector<std::int64_t> rows;
  const CrossEntry* cross = nullptr;
  std::vector<PositionRange> spans;
};

// begin and plan share what follows. All require the store's lock.

// Checks a batch against a cache; nothing changes.
Result<std::vector<PartRequest>> check_batch(CacheCore& cache, const Batch& batch,
                                             const char* operation);
// Makes an open step of a checked batch. Throws MemoryError; nothing has changed then.
std::shared_ptr<StepCore> begin_step(CacheCore& cache, const Batch& batch,
                                     const std::vector<PartRequest>& requests);
Plan plan_step(const CacheCore& cache, const Batch& batch,
               const std::vector<PartRequest>& requests);
// Keeps memory for the worst batch of that size. Throws MemoryError.
void reserve_step(CacheCore& cache, const BatchSize& size);

// Gives back what a part took that outlives its own tables.
void abandon(StepPart& part) noexcept;

}  // namespace quire
