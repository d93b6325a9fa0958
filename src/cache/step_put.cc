// Putting a layer: the caller's rows go to the pages that begin found for them, and pages that are
// full then are sealed.
//
// The work is cut into pieces, the slots of one page, and each piece into units: one side of some
// KV heads. A unit is written and sealed in one go, while its rows are in the processor's cache;
// units do not depend on each other, and so the executor's threads share them.
//
// Large puts fill whole pages, and write more than a cache keeps. Rows and codes of such pages are
// made in a small scratch and go to the page past the cache, so that memory moves nothing else than
// them and the caller's rows.

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/stream.h"
#include "cache/step.h"

namespace quire {
namespace {

// Bytes of the caller's below which a put is over before threads are awake, and how many a task
// takes at least.
constexpr std::size_t kAloneBytes = std::size_t{256} << 10;
constexpr std::size_t kTaskBytes = std::size_t{64} << 10;

// Rows of a unit in a whole page: small enough for a core's own cache. Heads together are read in
// the order of memory.
constexpr std::size_t kUnitBytes = std::size_t{128} << 10;

// Consecutive slots of one page, and which of the caller's tokens go there.
struct Piece {
  const Page* page;
  int slot;
  int count;
  bool seals;                  // the page is full then
  const std::int64_t* tokens;  // [count]; null: those from `first` on
  std::int64_t first;

  std::int64_t token(int i) const { return tokens != nullptr ? tokens[i] : first + i; }
  // How many tokens from i on follow each other.
  int run_length(int i) const {
    if (tokens == nullptr) return count - i;
    int length = 1;
    while (i + length < count && tokens[i + length] == tokens[i] + length) ++length;
    return length;
  }
};

std::vector<Piece> token_pieces(const StepData& data, std::size_t group) {
  std::vector<Piece> pieces;
  for (const StepPart& part : data.parts) {
    const GroupPart& placed = part.groups[group];
    auto sealing = placed.sealing.begin();  // in the order of the segments
    for (const Segment& segment : placed.segments) {
      const bool seals = sealing != placed.sealing.end() && *sealing == segment.page;
      if (seals) ++sealing;
      pieces.push_back(
          {segment.page, segment.slot, segment.count, seals, part.rows.data() + segment.token, 0});
    }
  }
  return pieces;
}

std::vector<Piece> cross_pieces(const StepData& data, std::size_t group) {
  std::vector<Piece> pieces;
  for (const StepPart& part : data.parts) {
    if (!part.brings_cross) continue;
    for (const Segment& segment : part.groups[group].segments) {
      pieces.push_back({segment.page, segment.slot, segment.count, true, nullptr,
                        part.cross_row + segment.token});
    }
  }
  return pieces;
}

// What is put, and where, in units: some heads of one side of a piece.
struct Work {
  const LayerStore& store;
  const TensorView& keys;
  const TensorView* values;  // null for MLA
  std::vector<Piece> pieces;
  int heads_together = 1;
  bool streams = false;  // full pages go past the processor's cache

  std::size_t sides() const { return values != nullptr ? 2 : 1; }
  std::size_t units_of_piece() const {
    return sides() * static_cast<std::size_t>((store.heads + heads_together - 1) / heads_together);
  }
  std::size_t units() const { return pieces.size() * units_of_piece(); }
  std::size_t bytes() const {
    std::size_t tokens = 0;
    for (const Piece& piece : pieces) tokens += static_cast<std::size_t>(piece.count);
    const auto of_token = [](const TensorView& view) {
      return static_cast<std::size_t>(view.heads * view.dim) * bytes_of(view.dtype);
    };
    return tokens * (of_token(keys) + (values != nullptr ? of_token(*values) : 0));
  }
};

// Calls write(token, count, slot) for each run of tokens of a piece that follow each other, until
// one says false.
template <typename Write>
bool for_each_run(const Piece& piece, const Write& write) {
  for (int i = 0; i < piece.count;) {
    const int length = piece.run_length(i);
    if (!write(piece.token(i), length, piece.slot + i)) return false;
    i += length;
  }
  return true;
}

// Writes one unit, and seals it. False when a value is refused.
bool put_unit(const Work& work, const Piece& piece, Side side, HeadRange heads, PutScratch& scratch,
              Isa isa) {
  const LayerStore& store = work.store;
  const TensorView& view = side == Side::key ? work.keys : *work.values;
  const std::size_t bytes = row_bytes(store, side);
  const bool streams = work.streams && piece.seals && piece.slot == 0;
  // Pages of cross layers keep no rows.
  const bool keeps = piece.page->rows != nullptr;
  if (keeps) {
    std::byte* rows = rows_part(store, side, heads.begin, piece.page->rows);
    const bool fit = for_each_run(piece, [&](std::int64_t token, int count, int slot) {
      std::byte* to = rows + static_cast<std::size_t>(slot) * bytes;
      return streams ? stream_rows(store, side, heads, view, token, count, to, scratch.token, isa)
                     : write_rows(store, side, heads, view, token, count, to, isa);
    });
    if (!fit) return false;
  }
  if (!piece.seals) return true;
  for (int head = heads.begin; head < heads.end; ++head) {
    const std::byte* rows = nullptr;
    if (keeps && !streams) {
      rows = rows_part(store, side, head, piece.page->rows);
    } else {
      // Once more from the caller's, which the core's own cache holds by now.
      std::byte* made = scratch.rows.take(head_rows_bytes(store, side));
      const bool fit = for_each_run(piece, [&](std::int64_t token, int count, int slot) {
        std::byte* to = made + static_cast<std::size_t>(slot) * bytes;
        return write_rows(store, side, {head, head + 1}, view, token, count, to, isa);
      });
      if (!fit) return false;
      rows = made;
    }
    seal_part(store, side, head, rows, piece.page->slots, piece.page->sealed,
              streams ? &scratch.sealed : nullptr, isa);
  }
  return true;
}

// Units [begin, end).
bool put_units(const Work& work, std::size_t begin, std::size_t end, PutScratch& scratch, Isa isa) {
  bool fit = true;
  for (std::size_t unit = begin; unit < end && fit; ++unit) {
    const std::size_t of_piece = work.units_of_piece();
    const Piece& piece = work.pieces[unit / of_piece];
    const auto group = static_cast<int>(unit % of_piece / work.sides());
    const Side side = unit % work.sides() == 0 ? Side::key : Side::value;
    const HeadRange heads{group * work.heads_together,
                          std::min((group + 1) * work.heads_together, work.store.heads)};
    fit = put_unit(work, piece, side, heads, scratch, isa);
  }
  if (work.streams) stream_fence();
  return fit;
}

// The error of the first value that is refused, in the order of the pieces' tokens.
Result<void> refusal(const Work& work) {
  LayerStore one_row = work.store;
  one_row.page_tokens = 1;
  std::size_t rows_bytes = 0;
  std::size_t sealed_bytes = 0;
  place(one_row, rows_bytes, sealed_bytes);
  std::vector<std::byte> row(rows_bytes);
  for (const Piece& piece : work.pieces) {
    for (int i = 0; i < piece.count; ++i) {
      QUIRE_CHECK(write_row(one_row, Side::key, work.keys, piece.token(i), row.data(), 0));
      if (work.values == nullptr) continue;
      QUIRE_CHECK(write_row(one_row, Side::value, *work.values, piece.token(i), row.data(), 0));
    }
  }
  return fail(ErrorCode::internal, "put: layer {}: the rows changed while they were read",
              work.store.index);
}

// A refused value leaves slots that nobody reads: the layer counts as not put.
Result<void> put_work(Work work, Executor& executor, Shelf<PutScratch>& shelf) {
  const std::size_t bytes = work.bytes();
  const std::size_t head_bytes =
      std::max(head_rows_bytes(work.store, Side::key), head_rows_bytes(work.store, Side::value));
  work.heads_together = static_cast<int>(std::clamp<std::size_t>(
      kUnitBytes / head_bytes, 1, static_cast<std::size_t>(work.store.heads)));
  work.streams = bytes >= kAloneBytes;
  const std::size_t units = work.units();
  const std::size_t tasks =
      bytes < kAloneBytes ? 1 : std::clamp<std::size_t>(bytes / kTaskBytes, 1, units);
  const Isa isa = chosen_isa();
  std::atomic<bool> refused = false;
  std::atomic<bool> out_of_memory = false;  // tasks must not throw
  const auto task = [&](std::size_t index) {
    if (refused.load(std::memory_order_relaxed)) return;
    try {
      std::unique_ptr<PutScratch> scratch = shelf.take();
      const std::size_t begin = units * index / tasks;
      const std::size_t end = units * (index + 1) / tasks;
      if (!put_units(work, begin, end, *scratch, isa)) refused = true;
      shelf.leave(std::move(scratch));
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    }
  };
  if (tasks == 1) {
    task(0);
  } else {
    executor.run(tasks, task);
  }
  if (out_of_memory) throw std::bad_alloc();
  return refused ? refusal(work) : Result<void>();
}

}  // namespace

Result<void> StepCore::put(int index, const TensorView& keys, const TensorView* values) {
  const std::lock_guard lock(mutex);
  QUIRE_CHECK(check_open("put"));
  QUIRE_TRY(const Layer* found, layer_at(layout(), index, "put"));
  const Layer& layer = *found;
  if (layer.owner != index) {
    return fail(ErrorCode::not_supported, "put: layer {} reads layer {} and takes no put", index,
                layer.owner);
  }
  if (data->put[static_cast<std::size_t>(index)]) {
    return fail(ErrorCode::wrong_state, "put: layer {} was put in this step already", index);
  }
  if (layer.store.mla != (values == nullptr)) {
    return fail(ErrorCode::mismatch, "put: layer {} {}", index,
                layer.store.mla ? "is MLA and takes one latent, not keys and values"
                                : "takes keys and values, not one latent");
  }
  const bool cross = layout().is_cross(layer.group);
  if (cross && data->cross_rows == 0) {
    return fail(ErrorCode::wrong_state,
                "put: layer {} is a cross layer and the batch brings no "
                "entry",
                index);
  }
  const std::int64_t rows =
      cross ? data->cross_rows : static_cast<std::int64_t>(data->tokens.size());
  QUIRE_CHECK(check_rows(layer.store, Side::key, keys, rows, "put"));
  if (values != nullptr) QUIRE_CHECK(check_rows(layer.store, Side::value, *values, rows, "put"));
  const auto group = static_cast<std::size_t>(layer.group);
  Work work{layer.store, keys, values,
            cross ? cross_pieces(*data, group) : token_pieces(*data, group)};
  QUIRE_CHECK(put_work(std::move(work), *cache->store->executor, put_scratch));
  data->put[static_cast<std::size_t>(index)] = 1;
  return {};
}

}  // namespace quire
