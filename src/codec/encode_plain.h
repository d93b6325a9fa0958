// Values of a codec that packs no tokens together are the rows themselves, in the type of the
// codes. Everything here has internal linkage on purpose: it is for files compiled for an
// instruction set.
#pragma once

#include <cstring>

#include "base/convert.h"
#include "codec/codec.h"

namespace quire {
namespace {

inline void encode_plain_values(const TileShape& shape, DType row_type, const std::byte* rows,
                                int count, DType code_type, std::byte* data, Isa isa) {
  const auto dim = static_cast<std::size_t>(shape.dim);
  const std::size_t used = static_cast<std::size_t>(count) * dim;
  const std::size_t all = static_cast<std::size_t>((shape.slots + 15) / 16 * 16) * dim;
  const std::size_t code_bytes = bytes_of(code_type);
  convert_rows(row_type, code_type, isa)(rows, 0, data, 0, 1, used);
  std::memset(data + used * code_bytes, 0, (all - used) * code_bytes);
}

}  // namespace
}  // namespace quire
