// Attention in plain f32 on what a step gathers: a second opinion on Step::attend.
//
// Keys and values are gathered (coded pages decoded, open ones as rows), multiplied in f32, and
// summed by one softmax over the whole history. Which tokens are coded depends on the query's page,
// and gather answers for a step's first query: so steps must not cross a bound of
// `reference_step_end`.
#pragma once

#include <cstdint>

#include "model/model.h"
#include "quire/cache.hpp"

namespace quire::model {

// For steps of one sequence, of `cache`, which must outlive the result. Sinks, slopes, cross and
// MLA layers, which no model here has, are not taken into account.
Attention reference_attention(const Cache& cache);

// The last point that a step from ordinal `begin` may reach, so that all its queries read the same
// pages as coded: those whose floor_page(n - exact_tail) is that of `begin`.
std::int64_t reference_step_end(const CacheSpec& spec, std::int64_t begin);

}  // namespace quire::model
