// States: clearing, merging and finishing whole tensors of them.
#include "quire/state.hpp"

#include <limits>

#include "capi/convert.h"
#include "capi/guard.h"

using namespace quire;
using namespace quire::capi;

quire_status quire_state_clear(const quire_state* state) {
  return guard([&]() -> Result<void> {
    QUIRE_TRY(const StateView view, to_state("state_clear", "state", state));
    state_clear(view.o, view.m, view.l, view.tokens * view.heads, view.dim);
    return {};
  });
}

quire_status quire_state_merge(const quire_state* state, const quire_state* other) {
  return guard([&]() -> Result<void> {
    QUIRE_TRY(const StateView into, to_state("state_merge", "state", state));
    QUIRE_TRY(const StateView from, to_state("state_merge", "other", other));
    if (into.tokens != from.tokens || into.heads != from.heads || into.dim != from.dim) {
      return fail(ErrorCode::mismatch,
                  "state_merge: [{}][{}][{}] expected as in state, other is [{}][{}][{}]",
                  into.tokens, into.heads, into.dim, from.tokens, from.heads, from.dim);
    }
    state_merge(into.o, into.m, into.l, from.o, from.m, from.l, into.tokens * into.heads, into.dim);
    return {};
  });
}

quire_status quire_state_finish(const quire_state* state, const float* sinks, float* out) {
  return guard([&]() -> Result<void> {
    QUIRE_TRY(const StateView view, to_state("state_finish", "state", state));
    QUIRE_CHECK(require("state_finish", "out", out));
    for (std::int64_t token = 0; token < view.tokens; ++token) {
      for (std::int64_t head = 0; head < view.heads; ++head) {
        const std::int64_t i = token * view.heads + head;
        const float sink = sinks == nullptr ? -std::numeric_limits<float>::infinity() : sinks[head];
        state_finish(out + i * view.dim, view.o + i * view.dim, view.m[i], view.l[i], sink,
                     view.dim);
      }
    }
    return {};
  });
}
