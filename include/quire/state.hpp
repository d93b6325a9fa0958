// An attention in progress: what one query head has gathered so far, ready to merge.
//
// For the scaled, capped and biased logits s (times log2 e) seen so far and their values v:
//
//     m = max s        l = sum 2^(s - m)        o = sum 2^(s - m) v        (o in f32, not divided)
//
// Nothing seen is (o = 0, m = -inf, l = 0). States of disjoint parts of a history merge into the
// state of the whole; merging is exact up to f32 rounding and its order is the caller's promise.
// A sink logit enters once, in finish.
#pragma once

#include <cstdint>

#include "quire/export.h"

namespace quire {

inline constexpr float kLog2E = 1.44269504088896340736f;

// States of [token][head], dense: o is [token][head][dim], m and l are [token][head].
struct StateView {
  float* o = nullptr;
  float* m = nullptr;
  float* l = nullptr;
  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  std::int64_t dim = 0;
};

// Makes `count` states of `dim` values empty.
QUIRE_API void state_clear(float* o, float* m, float* l, std::int64_t count,
                           std::int64_t dim) noexcept;

// Merges `count` states (o2, m2, l2) into (o, m, l). Empty states change nothing.
QUIRE_API void state_merge(float* o, float* m, float* l, const float* o2, const float* m2,
                           const float* l2, std::int64_t count, std::int64_t dim) noexcept;

// out = o / (l + 2^(sink log2 e - m)) for one state; zeros when nothing was seen.
// `sink` is a natural logit, or -inf for none. `out` may be `o`.
QUIRE_API void state_finish(float* out, const float* o, float m, float l, float sink,
                            std::int64_t dim) noexcept;

}  // namespace quire
