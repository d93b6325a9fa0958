// Cache, Sequence and Step: keeping keys and values of many sequences, and attending to them.
//
// A Cache holds sequences. A Step is one forward pass over a batch of tokens, as a transaction:
//
//     Cache cache = Cache::create(spec).value();
//     Sequence chat = cache.open().value();
//     Step step = cache.begin(Batch().add(chat.id(), 0, tokens)).value();
//     for (int layer = 0; layer < layers; ++layer) {
//       step.put(layer, k, v).value();
//       step.attend(layer, q, out).value();
//     }
//     step.commit().value();
//
// Until commit nothing of the step can be seen outside it; a step that is dropped leaves no trace.
// Sequences share pages: fork and copy_prefix copy tables only. Points and ranges are positions,
// half-open; keep_last, shift_left and lengths count the tokens held.
//
// Thread-safety: Cache and Sequence may be used from any thread (assignment of a Cache excepted).
// One Step is used by one thread at a time; different steps, and reads, run in parallel. Handles
// stay safe after their cache is closed: their calls answer unknown_sequence or wrong_state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "quire/export.h"
#include "quire/result.hpp"
#include "quire/spec.hpp"
#include "quire/state.hpp"
#include "quire/view.hpp"

namespace quire {

class CacheCore;  // the cache behind the handles
class StepCore;   // the step behind the handle

// Names a sequence within its cache and the cache's clones. Never reused.
enum class SequenceId : std::uint64_t {};

// One token of a batch. `key` names its content (a token id, a digest of an image patch); 0 means
// it is not to be shared by content.
struct Token {
  SequenceId sequence{};
  std::int64_t position = 0;
  std::uint64_t key = 0;
};

// Tokens of `sequence` at positions [begin, end), all in this batch, that see each other
// regardless of order. No later cut falls inside: it moves down to `begin`.
struct Span {
  SequenceId sequence{};
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// An encoder's output for the cross layers of `sequence`: `length` entries, put in this step. It
// lives until a token at positions [owner_begin, owner_end) is cut or removed.
struct CrossEntry {
  SequenceId sequence{};
  std::int64_t length = 0;
  std::int64_t owner_begin = 0;
  std::int64_t owner_end = 0;
};

// The tokens of one step. Tokens of several sequences may be mixed in any order; row i of every
// tensor of the step belongs to tokens[i].
struct QUIRE_API Batch {
  std::vector<Token> tokens;
  std::vector<Span> spans;
  std::vector<CrossEntry> cross;

  // `count` tokens at first_position, first_position + 1, ...
  Batch& add(SequenceId sequence, std::int64_t first_position, std::int64_t count);
  // One token per key, at first_position, first_position + 1, ...
  Batch& add(SequenceId sequence, std::int64_t first_position,
             const std::vector<std::uint64_t>& keys);
};

// The largest batch that reserve prepares for.
struct BatchSize {
  std::int64_t sequences = 1;
  std::int64_t tokens = 1;
  std::int64_t cross_entries = 0;  // sequences that bring a cross entry
  std::int64_t cross_tokens = 0;   // their lengths added up
};

// What a begin of a batch would take.
struct Plan {
  std::int64_t pages = 0;        // pages begun or copied
  std::size_t bytes_rows = 0;    // rows held until commit
  std::size_t bytes_sealed = 0;  // codes of the pages that fill
  std::size_t bytes = 0;         // both, with the pages' headers
  std::size_t gather_bytes = 0;  // largest K or V of one layer, all sequences, in f32
  std::size_t mask_bytes = 0;    // largest mask of one layer, in f32
};

struct Stats {
  std::size_t bytes = 0;         // true bytes: all that follows, free blocks included
  std::size_t bytes_limit = 0;   // SIZE_MAX: none
  std::size_t bytes_sealed = 0;  // codes of sealed pages in use
  std::size_t bytes_rows = 0;    // rows of open pages, exact regions and open steps
  std::size_t bytes_tables = 0;  // page headers, run tables, sequences, open steps
  std::size_t bytes_free = 0;    // kept for reuse; shrink gives them back
  std::int64_t pages_total = 0;  // used and free
  std::int64_t pages_used = 0;
  std::int64_t pages_free = 0;
  std::int64_t pages_shared = 0;  // seen by more than one sequence
  std::int64_t sequences = 0;
  std::int64_t open_steps = 0;
  std::int64_t tokens = 0;  // held, each sequence counted for itself
  // Sealed and row bytes of pages that sequences hold, over the K and V numbers stored in them;
  // 0 when there are none. A page seen by many counts once.
  double bits_per_value = 0;
  double compression_ratio = 0;  // 16 / bits_per_value: against plain f16
};

enum class Resume : int { no = 0, coded = 1, exact = 2 };
enum class Side : int { key = 0, value = 1 };

// What a trimming call did. `at` is where the cut fell: below the point asked for when that lay
// inside a span, otherwise the point itself.
struct Cut {
  bool removed = false;
  std::int64_t at = 0;
};

// What a commit took of one sequence, in the order the sequences first appear in the batch.
struct Committed {
  SequenceId sequence{};
  std::int64_t tokens = 0;  // fewer than asked when the cut would have split a span
};

// A slice of a stored layer: positions, one head or all.
struct ReadRange {
  std::int64_t begin = 0;
  std::int64_t end = INT64_MAX;
  int head = -1;  // -1: all heads
};

// How gather writes. For one sequence the shape is [token][head][dim] or [head][token][dim]; for
// several it is [sequence][head][token][dim] (head_major only), each padded with zeros to the
// longest. `transpose_values` swaps the last two axes of head_major values: [head][dim][token].
// Numbers that `dtype` does not hold become the largest that it does.
struct GatherFormat {
  DType dtype = DType::f32;
  Layout layout = Layout::token_major;
  bool transpose_values = false;
  std::int64_t pad_tokens_to = 1;  // columns are rounded up to a multiple of this
};

// What gather wrote, or would write: columns is the padded width; lengths are the true ones.
struct Gathered {
  std::int64_t columns = 0;
  std::int64_t key_elements = 0;
  std::int64_t value_elements = 0;
  std::vector<std::int64_t> lengths;          // per sequence
  std::vector<std::int64_t> first_positions;  // per sequence, of column 0; -1 when empty
};

// Bytes of one page as one sequence sees them. `layout` says how to read them (docs/format.md):
// "rows/f16" for rows, [slot][dim]; "tiles/int8" and the like for sealed codes of one head.
struct RunView {
  std::string layout;
  Side side = Side::key;
  int head = 0;
  const std::byte* data = nullptr;  // of this layer, side and head
  std::size_t data_bytes = 0;
  const std::byte* scales = nullptr;  // null where the codec has none
  std::size_t scale_bytes = 0;
  int page_slots = 0;  // of a whole page: the bytes are laid out for them
  int first_slot = 0;  // the slots this run shows: [first_slot, last_slot)
  int last_slot = 0;
  std::int64_t first_position = 0;  // of first_slot; the others in `positions`
  std::vector<std::int64_t> positions;
  std::int64_t turn = 0;  // positions minus those the keys were rotated for
};

// Called per token, in order: its position and its row, [head][dim] in f32.
using RowFunction = std::function<void(std::int64_t position, const float* row)>;

// One forward pass. Move-only; dropped when destroyed.
class QUIRE_API Step {
 public:
  Step() = default;
  Step(Step&&) noexcept;
  Step& operator=(Step&&) noexcept;
  ~Step();

  // Stores the rows of all batch tokens of one layer, all heads at once, keys as queries will meet
  // them (rotated for their positions, where the model rotates); pages that fill are encoded.
  // Layers come in any order, each once. Refused whole when a value does not fit: the step is then
  // as it was. For a cross layer the rows are those of the batch's cross entries, in order.
  Result<void> put(int layer, const TensorView& keys, const TensorView& values);
  // For an MLA layer: the latent with its rotary part.
  Result<void> put(int layer, const TensorView& latent);

  // out[t][h] = softmax(q K) V over what token t sees, the step's own tokens included. `q` is
  // [tokens][query heads][key_dim], `out` is [tokens][query heads][value_dim]. A query that sees
  // nothing gets zeros. Requires: the layer (or the one it reads) was put, cross layers excepted;
  // rows of `out` overlap neither each other nor `q`. After out_of_memory `out` holds anything.
  Result<void> attend(int layer, const TensorView& q, const OutputView& out);
  // The same, before division: states that merge with others'. Sinks are left to state_finish.
  Result<void> attend_state(int layer, const TensorView& q, const StateView& state);
  // Scaled, capped and biased logits, or probabilities: [tokens][query heads][columns], where
  // columns are those of gather without padding; -inf, or 0, where a query does not see.
  Result<void> scores(int layer, const TensorView& q, float* out, std::int64_t out_elements);
  Result<void> probabilities(int layer, const TensorView& q, float* out, std::int64_t out_elements);

  // Batch tokens that from now on also see every later token of their sequence in this batch;
  // replaces the list before, ends with the step.
  Result<void> set_exceptions(const std::vector<std::int64_t>& token_indices);

  // What the queries of the step see of a layer, oldest first, in the order of `sequences`. A
  // buffer may be null when that side is not wanted; sizes are in elements.
  Result<Gathered> gather_size(int layer, const std::vector<SequenceId>& sequences,
                               const GatherFormat& format) const;
  Result<Gathered> gather(int layer, const std::vector<SequenceId>& sequences,
                          const GatherFormat& format, void* keys, std::int64_t key_elements,
                          void* values, std::int64_t value_elements) const;
  // 0 where token t sees column j of its own sequence's gather, -inf elsewhere:
  // [tokens][columns], f32 or f16, columns padded like gather's. Returns the columns.
  Result<std::int64_t> mask_columns(int layer, std::int64_t pad_tokens_to = 1) const;
  Result<std::int64_t> mask(int layer, DType dtype, std::int64_t pad_tokens_to, void* out,
                            std::int64_t out_elements) const;
  // Zero-copy views, valid until the step ends.
  Result<std::vector<RunView>> runs(int layer, SequenceId sequence) const;

  // Takes all tokens, or the first n of each sequence (in the order sequences first appear).
  // Refused, and the step still open, when a layer was not put.
  Result<std::vector<Committed>> commit();
  Result<std::vector<Committed>> commit(const std::vector<std::int64_t>& tokens_per_sequence);
  void drop() noexcept;

  bool is_open() const noexcept;
  std::int64_t tokens() const noexcept;

 private:
  friend class Cache;
  explicit Step(std::shared_ptr<StepCore> core) noexcept : core_(std::move(core)) {}
  std::shared_ptr<StepCore> core_;
};

struct Forked;

// A handle to an open sequence: cheap to copy, closes nothing by itself.
class QUIRE_API Sequence {
 public:
  Sequence() = default;
  SequenceId id() const noexcept { return id_; }

  Result<std::int64_t> length() const;  // tokens held (by the layers that hold most)
  Result<std::int64_t> length(
      int layer) const;  // tokens held by a layer; entries for a cross layer
  Result<bool> is_empty() const;
  Result<std::int64_t> first_position() const;  // out_of_range when empty
  Result<std::int64_t> first_position(int layer) const;
  Result<std::int64_t> next_position() const;  // last + 1; 0 when as new
  Result<std::int64_t> remaining() const;      // INT64_MAX without max_tokens
  Result<bool> is_full() const;
  Result<bool> has_cross() const;
  // Whether all of the history obeys the law (false after a coded cut or a removal inside it).
  Result<bool> is_exact() const;
  // Whether tokens could be appended at `position` after a cut there, and how they would read.
  Result<Resume> can_resume(std::int64_t position) const;
  Result<std::vector<Token>> tokens() const;  // held, in order

  Result<Sequence> fork() const;
  Result<Forked> fork(std::int64_t position) const;   // the tokens below `position`
  Result<Cut> truncate(std::int64_t position) const;  // keeps the tokens below `position`
  Result<Cut> keep_last(std::int64_t count) const;    // positions stay
  Result<Cut> shift_left(std::int64_t count) const;   // drops the first `count`, moves the rest
  // Removes [begin, end); later tokens move down by end - begin, or stay when `leave_gap`.
  Result<Cut> remove(std::int64_t begin, std::int64_t end, bool leave_gap = false) const;
  // Replaces one stored token of one layer; sequences that share the page keep the old one. Codecs
  // that look at a whole page (dual) encode it again: where its rows are gone, from what it decodes
  // to, so that the other tokens lose a little each time.
  Result<void> overwrite(int layer, std::int64_t position, const TensorView& key,
                         const TensorView& value) const;
  Result<void> close() const;

  // Decoded rows, [token][head][dim] in f32 (one head: [token][dim]); returns the tokens read. A
  // range of one position that is not held is out_of_range.
  Result<std::int64_t> read(int layer, Side side, const ReadRange& range, float* out,
                            std::int64_t out_elements) const;
  Result<void> for_each(int layer, Side side, const RowFunction& f) const;
  Result<Gathered> gather_size(int layer, const GatherFormat& format) const;
  Result<Gathered> gather(int layer, const GatherFormat& format, void* keys,
                          std::int64_t key_elements, void* values,
                          std::int64_t value_elements) const;
  // Zero-copy views. Valid until the sequence changes, another step commits (windows of idle
  // sequences are trimmed then), or the cache is compacted or cut to a limit.
  Result<std::vector<RunView>> runs(int layer) const;

 private:
  friend class Cache;
  Sequence(std::shared_ptr<CacheCore> core, SequenceId id) noexcept
      : core_(std::move(core)), id_(id) {}
  std::shared_ptr<CacheCore> core_;
  SequenceId id_{};
};

struct Forked {
  Sequence sequence;
  std::int64_t at = 0;  // where the fork ends: lower than asked inside a span or past the end
};

// The cache. Move-only; closed when destroyed.
class QUIRE_API Cache {
 public:
  static Result<Cache> create(const CacheSpec& spec);
  Cache(Cache&&) noexcept;
  Cache& operator=(Cache&&) noexcept;
  ~Cache();

  const CacheSpec& spec() const noexcept;
  Result<LayerInfo> layer_info(int layer) const;

  Result<Sequence> open();
  Result<Sequence> find(SequenceId id) const;
  std::vector<SequenceId> sequences() const;  // in the order they were opened
  // `target` then holds exactly the tokens of `source` below `position`, shared.
  Result<Cut> copy_prefix(SequenceId source, SequenceId target, std::int64_t position);

  Result<Step> begin(const Batch& batch);
  // What begin would take; changes nothing.
  Result<Plan> plan(const Batch& batch) const;
  // Holds memory so that the next begin of at most this size allocates none.
  Result<void> reserve(const BatchSize& size);

  // What several sequences hold of a layer, as Sequence::gather writes it for one.
  Result<Gathered> gather_size(int layer, const std::vector<SequenceId>& sequences,
                               const GatherFormat& format) const;
  Result<Gathered> gather(int layer, const std::vector<SequenceId>& sequences,
                          const GatherFormat& format, void* keys, std::int64_t key_elements,
                          void* values, std::int64_t value_elements) const;

  // Drops all sequences; refused while a step is open.
  Result<void> clear();
  // A cache of its own with the same sequences under the same ids. Pages, and with them the byte
  // limit, are shared between clones. Cost: tables only.
  Result<Cache> clone() const;
  // Makes this cache a clone of `other`, spec included. Handles of the sequences it had are void.
  // Refused while a step is open here. Requires: no other thread uses this object meanwhile.
  Result<void> assign(const Cache& other);
  // Moves tokens of sparsely used pages together without decoding them; returns pages given back.
  Result<std::int64_t> compact();

  Stats stats() const;
  // Cuts the longest sequence to three quarters, oldest first, until true bytes are at most
  // `bytes`; true when it cut. An error, and no change, when cutting everything would not do. A
  // sequence that loses part of a window it still needs cannot go on there (not_resumable).
  Result<bool> enforce_memory_limit(std::size_t bytes);
  // Makes `bytes` the limit, cutting the same way where needed. stats() has the limit in force.
  Result<bool> resize(std::size_t bytes);
  // Gives free memory back to the system; returns the bytes.
  std::size_t shrink();

  std::string text() const;  // spec, sequences and stats, for people
  std::string json() const;  // the same, for programs
  // Drops open steps and all sequences; every later call answers an error.
  void close() noexcept;

 private:
  explicit Cache(std::shared_ptr<CacheCore> core) noexcept;
  std::shared_ptr<CacheCore> core_;
};

// Version of the library ("0.1.0") and what it runs on.
struct BuildInfo {
  std::string version;
  std::string commit;
  std::string compiler;
  std::vector<std::string> isas_found;  // instruction sets of this machine that Quire knows
  std::string isa_chosen;
  std::vector<std::string> codecs;
};
QUIRE_API BuildInfo build_info();

}  // namespace quire
