#include "attend/query_block.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/convert.h"

namespace quire {

HeadGroup group_of(const AttendTask& task, int kv_head) noexcept {
  const std::int64_t count = task.q.heads / task.store->heads;
  return {kv_head, kv_head * count, count};
}

QueryBlock::QueryBlock(const AttendTask& task, const HeadGroup& group,
                       std::span<const Query> queries, QueryRoom& room)
    : task_(task),
      rows_(static_cast<std::int64_t>(queries.size()) * group.count),
      dim_(task.store->key_dim),
      room_(room) {
  const ConvertRows convert = convert_rows(task.q.dtype, DType::f32, task.isa);
  const auto* data = static_cast<const std::byte*>(task.q.data);
  float* to = room.plain.take_floats(static_cast<std::size_t>(rows_ * dim_));
  for (const Query& query : queries) {
    for (std::int64_t h = 0; h < group.count; ++h, to += dim_) {
      const std::byte* from =
          data + (query.row * task.q.token_stride + (group.first + h) * task.q.head_stride) *
                     static_cast<std::int64_t>(bytes_of(task.q.dtype));
      const float largest =
          convert(from, 0, reinterpret_cast<std::byte*>(to), 0, 1, static_cast<std::size_t>(dim_));
      // A broken query must not look like one that sees nothing, whatever codes make of it.
      if (!std::isfinite(largest)) {
        std::fill_n(to, dim_, std::numeric_limits<float>::quiet_NaN());
      }
    }
  }
}

Operands QueryBlock::folded(const Operand& keys, const Operands& rows) {
  const Reader& reader = keys.reader();
  std::byte* to = room_.folded.take(static_cast<std::size_t>(rows.count) * reader.folded_bytes);
  reader.kernel->fold(keys.side(), rows, to);
  return {to, static_cast<std::ptrdiff_t>(reader.folded_bytes), rows.count};
}

void QueryBlock::prepare(const Reader& reader, std::int64_t turn, Prepared& form) {
  const auto stride = static_cast<std::ptrdiff_t>(reader.query_bytes);
  const float* from = turned(turn);
  std::byte* to = room_.forms[reader.sealed].take(static_cast<std::size_t>(rows_ * stride));
  if (reader.rotates) {
    const auto rows = static_cast<std::size_t>(rows_);
    const auto dim = static_cast<std::size_t>(dim_);
    float* rotated = room_.rotated.take_floats(rows * dim);
    std::copy_n(from, rows * dim, rotated);
    reader.codec->rotate[static_cast<std::size_t>(reader.isa)](reader.shape, rotated, rows, dim);
    from = rotated;
  }
  for (std::int64_t row = 0; row < rows_; ++row, from += dim_) {
    reader.kernel->prepare(from, reader.dim, reader.split, to + row * stride);
  }
  form.turn = turn;
  form.ready = true;
}

const float* QueryBlock::turned(std::int64_t turn) {
  const auto count = static_cast<std::size_t>(rows_ * dim_);
  const float* plain = room_.plain.take_floats(count);
  if (turn == 0) return plain;
  float* turned = room_.turned.take_floats(count);
  if (turn == turn_) return turned;
  turn_ = turn;
  std::copy_n(plain, count, turned);
  const std::vector<float> angles = task_.math.rope->angles(-turn);
  for (std::int64_t row = 0; row < rows_; ++row) {
    task_.math.rope->apply(angles, turned + row * dim_);
  }
  return turned;
}

}  // namespace quire
