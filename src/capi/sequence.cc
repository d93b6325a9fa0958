// Sequences: opening, forking, cutting and asking. Reading back is in read.cc.
#include "capi/convert.h"
#include "capi/guard.h"
#include "capi/handle.h"

using namespace quire;
using namespace quire::capi;

static_assert(QUIRE_RESUME_NO == static_cast<int>(Resume::no));
static_assert(QUIRE_RESUME_CODED == static_cast<int>(Resume::coded));
static_assert(QUIRE_RESUME_EXACT == static_cast<int>(Resume::exact));

namespace {

// Answers one question about a sequence: `ask` gives a Result of something that converts to T.
template <typename T, typename Ask>
quire_status answer(const char* call, const quire_cache* cache, quire_sequence_id id, T* out,
                    Ask&& ask) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require(call, "cache", cache));
    QUIRE_CHECK(require(call, "the result", out));
    QUIRE_TRY(const Sequence sequence, cache->cache.find(to_id(id)));
    QUIRE_TRY(const auto found, ask(sequence));
    *out = static_cast<T>(found);
    return {};
  });
}

// Cuts a sequence and reports, where the caller wants it.
template <typename Trim>
quire_status cut_with(const char* call, quire_cache* cache, quire_sequence_id id, quire_cut* cut,
                      Trim&& trim) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require(call, "cache", cache));
    QUIRE_TRY(const Sequence sequence, cache->cache.find(to_id(id)));
    QUIRE_TRY(const Cut made, trim(sequence));
    if (cut != nullptr) *cut = from_cut(made);
    return {};
  });
}

}  // namespace

quire_status quire_sequence_open(quire_cache* cache, quire_sequence_id* sequence) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("open", "cache", cache));
    QUIRE_CHECK(require("open", "sequence", sequence));
    QUIRE_TRY(const Sequence opened, cache->cache.open());
    *sequence = from_id(opened.id());
    return {};
  });
}

quire_status quire_sequence_find(const quire_cache* cache, quire_sequence_id sequence) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("find", "cache", cache));
    QUIRE_TRY([[maybe_unused]] const Sequence found, cache->cache.find(to_id(sequence)));
    return {};
  });
}

quire_status quire_sequence_close(quire_cache* cache, quire_sequence_id sequence) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("close", "cache", cache));
    QUIRE_TRY(const Sequence found, cache->cache.find(to_id(sequence)));
    return found.close();
  });
}

quire_status quire_sequence_fork(quire_cache* cache, quire_sequence_id sequence,
                                 quire_sequence_id* child) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("fork", "cache", cache));
    QUIRE_CHECK(require("fork", "child", child));
    QUIRE_TRY(const Sequence parent, cache->cache.find(to_id(sequence)));
    QUIRE_TRY(const Sequence forked, parent.fork());
    *child = from_id(forked.id());
    return {};
  });
}

quire_status quire_sequence_fork_at(quire_cache* cache, quire_sequence_id sequence,
                                    int64_t position, quire_sequence_id* child, int64_t* at) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("fork", "cache", cache));
    QUIRE_CHECK(require("fork", "child", child));
    QUIRE_TRY(const Sequence parent, cache->cache.find(to_id(sequence)));
    QUIRE_TRY(const Forked forked, parent.fork(position));
    *child = from_id(forked.sequence.id());
    if (at != nullptr) *at = forked.at;
    return {};
  });
}

quire_status quire_sequence_copy_prefix(quire_cache* cache, quire_sequence_id source,
                                        quire_sequence_id target, int64_t position,
                                        quire_cut* cut) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("copy_prefix", "cache", cache));
    QUIRE_TRY(const Cut made, cache->cache.copy_prefix(to_id(source), to_id(target), position));
    if (cut != nullptr) *cut = from_cut(made);
    return {};
  });
}

quire_status quire_sequence_truncate(quire_cache* cache, quire_sequence_id sequence,
                                     int64_t position, quire_cut* cut) {
  return cut_with("truncate", cache, sequence, cut,
                  [&](const Sequence& found) { return found.truncate(position); });
}

quire_status quire_sequence_keep_last(quire_cache* cache, quire_sequence_id sequence, int64_t count,
                                      quire_cut* cut) {
  return cut_with("keep_last", cache, sequence, cut,
                  [&](const Sequence& found) { return found.keep_last(count); });
}

quire_status quire_sequence_shift_left(quire_cache* cache, quire_sequence_id sequence,
                                       int64_t count, quire_cut* cut) {
  return cut_with("shift_left", cache, sequence, cut,
                  [&](const Sequence& found) { return found.shift_left(count); });
}

quire_status quire_sequence_remove(quire_cache* cache, quire_sequence_id sequence, int64_t begin,
                                   int64_t end, int leave_gap, quire_cut* cut) {
  return cut_with("remove", cache, sequence, cut,
                  [&](const Sequence& found) { return found.remove(begin, end, leave_gap != 0); });
}

quire_status quire_sequence_overwrite(quire_cache* cache, quire_sequence_id sequence, int layer,
                                      int64_t position, const quire_tensor* key,
                                      const quire_tensor* value) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("overwrite", "cache", cache));
    QUIRE_TRY(const Sequence found, cache->cache.find(to_id(sequence)));
    QUIRE_TRY(const TensorView key_view, to_tensor("overwrite", "key", key));
    TensorView value_view;  // of no tokens: what an MLA layer takes, and others refuse
    if (value != nullptr) {
      QUIRE_TRY(value_view, to_tensor("overwrite", "value", value));
    }
    return found.overwrite(layer, position, key_view, value_view);
  });
}

quire_status quire_sequence_length(const quire_cache* cache, quire_sequence_id sequence,
                                   int64_t* length) {
  return answer("length", cache, sequence, length,
                [](const Sequence& found) { return found.length(); });
}

quire_status quire_sequence_layer_length(const quire_cache* cache, quire_sequence_id sequence,
                                         int layer, int64_t* length) {
  return answer("layer_length", cache, sequence, length,
                [&](const Sequence& found) { return found.length(layer); });
}

quire_status quire_sequence_first_position(const quire_cache* cache, quire_sequence_id sequence,
                                           int64_t* position) {
  return answer("first_position", cache, sequence, position,
                [](const Sequence& found) { return found.first_position(); });
}

quire_status quire_sequence_layer_first_position(const quire_cache* cache,
                                                 quire_sequence_id sequence, int layer,
                                                 int64_t* position) {
  return answer("layer_first_position", cache, sequence, position,
                [&](const Sequence& found) { return found.first_position(layer); });
}

quire_status quire_sequence_next_position(const quire_cache* cache, quire_sequence_id sequence,
                                          int64_t* position) {
  return answer("next_position", cache, sequence, position,
                [](const Sequence& found) { return found.next_position(); });
}

quire_status quire_sequence_remaining(const quire_cache* cache, quire_sequence_id sequence,
                                      int64_t* tokens) {
  return answer("remaining", cache, sequence, tokens,
                [](const Sequence& found) { return found.remaining(); });
}

quire_status quire_sequence_is_full(const quire_cache* cache, quire_sequence_id sequence,
                                    int* is_full) {
  return answer("is_full", cache, sequence, is_full,
                [](const Sequence& found) { return found.is_full(); });
}

quire_status quire_sequence_is_empty(const quire_cache* cache, quire_sequence_id sequence,
                                     int* is_empty) {
  return answer("is_empty", cache, sequence, is_empty,
                [](const Sequence& found) { return found.is_empty(); });
}

quire_status quire_sequence_has_cross(const quire_cache* cache, quire_sequence_id sequence,
                                      int* has_cross) {
  return answer("has_cross", cache, sequence, has_cross,
                [](const Sequence& found) { return found.has_cross(); });
}

quire_status quire_sequence_is_exact(const quire_cache* cache, quire_sequence_id sequence,
                                     int* is_exact) {
  return answer("is_exact", cache, sequence, is_exact,
                [](const Sequence& found) { return found.is_exact(); });
}

quire_status quire_sequence_can_resume(const quire_cache* cache, quire_sequence_id sequence,
                                       int64_t position, quire_resume* resume) {
  return answer("can_resume", cache, sequence, resume,
                [&](const Sequence& found) { return found.can_resume(position); });
}

quire_status quire_sequence_tokens(const quire_cache* cache, quire_sequence_id sequence,
                                   quire_token* tokens, int64_t capacity, int64_t* count) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("tokens", "cache", cache));
    QUIRE_TRY(const Sequence found, cache->cache.find(to_id(sequence)));
    QUIRE_TRY(const std::vector<Token> held, found.tokens());
    return fill("tokens", "tokens", tokens, capacity, static_cast<int64_t>(held.size()), count,
                [&](std::size_t i) { return from_token(held[i]); });
  });
}
