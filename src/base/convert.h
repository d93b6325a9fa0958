// Rows of numbers from one dtype to another, and how large they are.
//
// The bits are those of numbers.h, whatever instruction set does the work, where no NaN is read.
// The largest magnitude is found on the way, so that a caller learns in one pass over the memory
// whether every value can be stored.
//
// Thread-safety: functions of their arguments.
#pragma once

#include <cstddef>

#include "base/isa.h"
#include "base/numbers.h"

namespace quire {

inline constexpr std::size_t kDTypes = 3;

// Converts `count` rows of `dim` elements. Rows begin `in_step` and `out_step` bytes after each
// other, in either direction; none need be aligned.
// Returns the largest magnitude that was written, NaN where one was read.
using ConvertRows = float (*)(const std::byte* in, std::ptrdiff_t in_step, std::byte* out,
                              std::ptrdiff_t out_step, std::size_t count, std::size_t dim) noexcept;

// Requires: the dtypes are known, and the set is one of isas_found().
ConvertRows convert_rows(DType from, DType to, Isa isa) noexcept;

#if defined(__x86_64__)
extern const ConvertRows kConvertAvx2[kDTypes][kDTypes];    // [from][to]
extern const ConvertRows kConvertAvx512[kDTypes][kDTypes];  // [from][to]
#endif

}  // namespace quire
