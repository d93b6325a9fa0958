// Between the structs of quire.h and those of the C++ surface.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "capi/guard.h"
#include "quire/cache.hpp"
#include "quire/quire.h"

namespace quire::capi {

// A stamp this much larger than the struct known here is an unset one, not a newer header.
inline constexpr std::size_t kMaxUnknownBytes = 4096;

// Checks a stamp; the sizes of all versions of a struct are multiples of its alignment.
template <typename T>
Result<void> check_stamp(const char* call, const char* name, std::size_t struct_size) {
  if (struct_size >= sizeof(std::size_t) && struct_size % alignof(T) == 0 &&
      struct_size <= sizeof(T) + kMaxUnknownBytes) {
    return {};
  }
  return fail(ErrorCode::invalid_argument,
              "{}: {} has struct_size {}, {} is known here (was it made with its QUIRE_..._INIT?)",
              call, name, struct_size, sizeof(T));
}

// The caller's struct as this version knows it: members beyond its stamp keep the values of
// `defaults`; members unknown here must be zero.
template <typename T>
Result<T> read_stamped(const char* call, const char* name, const T* given, const T& defaults) {
  static_assert(std::is_trivially_copyable_v<T> && offsetof(T, struct_size) == 0);
  QUIRE_CHECK(require(call, name, given));
  const std::size_t size = given->struct_size;
  QUIRE_CHECK(check_stamp<T>(call, name, size));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      return fail(ErrorCode::invalid_argument,
                  "{}: {} of {} bytes sets a member at byte {}, {} bytes are known here", call,
                  name, size, i, sizeof(T));
    }
  }
  T known = defaults;
  std::memcpy(&known, given, std::min(size, sizeof(T)));
  known.struct_size = sizeof(T);
  return known;
}

// Writes `known` to the caller's struct as far as its stamp reaches, zeros beyond what is known.
// Requires: check_stamp.
template <typename T>
void write_stamped(T* out, const T& known) noexcept {
  const std::size_t size = out->struct_size;
  auto* bytes = reinterpret_cast<unsigned char*>(out);
  std::memcpy(bytes, &known, std::min(size, sizeof(T)));
  if (size > sizeof(T)) std::memset(bytes + sizeof(T), 0, size - sizeof(T));
  out->struct_size = size;
}

// Requires and checks a struct that a call will write to, before the call does anything.
template <typename T>
Result<void> require_stamped(const char* call, const char* name, const T* out) {
  QUIRE_CHECK(require(call, name, out));
  return check_stamp<T>(call, name, out->struct_size);
}

// Enumerations arrive as ints.
Result<DType> to_dtype(const char* call, int dtype);
Result<Side> to_side(const char* call, int side);

inline SequenceId to_id(quire_sequence_id id) noexcept { return static_cast<SequenceId>(id); }
inline quire_sequence_id from_id(SequenceId id) noexcept {
  return static_cast<quire_sequence_id>(id);
}

quire_pattern from_pattern(const Pattern& pattern) noexcept;
quire_token from_token(const Token& token) noexcept;
inline quire_cut from_cut(const Cut& cut) noexcept { return {cut.removed ? 1 : 0, cut.at}; }

Result<TensorView> to_tensor(const char* call, const char* name, const quire_tensor* tensor);
Result<OutputView> to_output(const char* call, const quire_output* out);
Result<StateView> to_state(const char* call, const char* name, const quire_state* state);
Result<GatherFormat> to_format(const char* call, const quire_gather_format* format);
Result<Batch> to_batch(const char* call, const quire_batch* batch);
Result<std::vector<SequenceId>> to_ids(const char* call, const quire_sequence_id* ids,
                                       std::int64_t count);

// Requires: require_stamped.
void write_gathered(quire_gathered* out, const Gathered& gathered);

// Lays runs and their positions into the caller's arrays, both or neither.
Result<void> write_runs(const char* call, const std::vector<RunView>& views, quire_run* runs,
                        std::int64_t run_capacity, std::int64_t* run_count, std::int64_t* positions,
                        std::int64_t position_capacity, std::int64_t* position_count);

// Copies a name into a fixed array of a struct; names are shorter than the arrays by far.
template <std::size_t N>
void copy_name(char (&to)[N], const std::string& from) noexcept {
  const std::size_t length = std::min(from.size(), N - 1);
  std::memcpy(to, from.data(), length);
  std::memset(to + length, 0, N - length);
}

}  // namespace quire::capi
