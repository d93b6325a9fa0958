// The queries of one block that read one kv head, in f32, and prepared for a kernel as the slice at
// hand must meet them: turned back by its turn, in the basis of its codes. Turns follow each other
// along a history, so the last one is enough to make each once.
//
// Thread-safety: a block belongs to one thread.
#pragma once

#include <cstdint>
#include <span>

#include "attend/operand.h"
#include "attend/walk.h"

namespace quire {

// The query heads that read one kv head.
struct HeadGroup {
  int kv_head;
  std::int64_t first;
  std::int64_t count;
};
HeadGroup group_of(const AttendTask& task, int kv_head) noexcept;

// Memory for a block's queries, that one block after the other may use.
struct QueryRoom {
  Scratch plain;     // [row][key_dim]
  Scratch turned;    // the same, turned back
  Scratch rotated;   // to prepare a form
  Scratch forms[2];  // for rows, for sealed pages
  Scratch folded;    // with numbers of a page
};

class QueryBlock {
 public:
  // `task` and `room` must outlive the block; nobody else uses the room meanwhile.
  QueryBlock(const AttendTask& task, const HeadGroup& group, std::span<const Query> queries,
             QueryRoom& room);

  // The prepared rows [first, first + count) for the keys of a page with `turn`, valid until the
  // next call.
  Operands prepared(const Operand& keys, std::int64_t turn, std::int64_t first,
                    std::int64_t count) {
    const Reader& reader = keys.reader();
    if (task_.math.rope == nullptr) turn = 0;
    Prepared& form = forms_[reader.sealed];
    if (!form.ready || form.turn != turn) prepare(reader, turn, form);
    const auto stride = static_cast<std::ptrdiff_t>(reader.query_bytes);
    const std::byte* rows = room_.forms[reader.sealed].data() + first * stride;
    // Not by way of a variable: a copy would read in wider parts than were written, which waits for
    // all stores before it (1 % of decode with tq2).
    if (reader.kernel->fold == nullptr) return {rows, stride, static_cast<int>(count)};
    return folded(keys, {rows, stride, static_cast<int>(count)});
  }

 private:
  struct Prepared {
    std::int64_t turn = 0;
    bool ready = false;
  };

  void prepare(const Reader& reader, std::int64_t turn, Prepared& form);
  Operands folded(const Operand& keys, const Operands& rows);
  const float* turned(std::int64_t turn);

  const AttendTask& task_;
  std::int64_t rows_;
  std::int64_t dim_;
  QueryRoom& room_;
  std::int64_t turn_ = 0;  // of what is turned in the room; 0: nothing is
  Prepared forms_[2];      // for rows, for sealed pages
};

}  // namespace quire
