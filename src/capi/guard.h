// What every function of the C ABI is wrapped in: no exception leaves, every error leaves its text.
//
// A function body is a lambda that answers Result<void>; guard() turns that into a status and
// keeps the text for quire_last_error() on the calling thread:
//
//     quire_status quire_cache_clear(quire_cache* cache) {
//       return guard([&]() -> Result<void> {
//         QUIRE_CHECK(require("clear", "cache", cache));
//         return cache->cache.clear();
//       });
//     }
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <new>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "quire/quire.h"
#include "quire/result.hpp"

namespace quire::capi {

// Each keeps its text for this thread and answers the status.
quire_status succeed() noexcept;
quire_status fail_with(Error&& error) noexcept;
quire_status fail_with(ErrorCode code, const char* text) noexcept;

template <typename Body>
quire_status guard(Body&& body) noexcept {
  try {
    Result<void> result = body();
    return result ? succeed() : fail_with(std::move(result).error());
  } catch (const std::bad_alloc&) {
    return fail_with(ErrorCode::out_of_memory, "the system has no more memory");
  } catch (const ResultError& error) {
    return fail_with(error.code, error.what());
  } catch (const std::exception& error) {
    return fail_with(ErrorCode::internal, error.what());
  } catch (...) {
    return fail_with(ErrorCode::internal, "an exception of unknown type");
  }
}

inline Result<void> require(const char* call, const char* name, const void* pointer) {
  if (pointer != nullptr) return {};
  return fail(ErrorCode::invalid_argument, "{}: {} is a null pointer", call, name);
}

// Larger counts are a number gone wrong: of elements in a buffer, of items in a list.
inline constexpr std::int64_t kMaxCount = std::int64_t{1} << 40;
inline constexpr std::int64_t kMaxItems = std::int64_t{1} << 30;

// `count` elements at `pointer`: a null pointer goes with 0 only.
inline Result<void> require_array(const char* call, const char* name, const void* pointer,
                                  std::int64_t count, std::int64_t max_count = kMaxCount) {
  if (count < 0 || count > max_count) {
    return fail(ErrorCode::invalid_argument, "{}: {} has a count of {}, from 0 to {} is possible",
                call, name, count, max_count);
  }
  if (count > 0) return require(call, name, pointer);
  return {};
}

// Lays a result of `count` elements into the caller's array. `needed`, which may be null, gets
// the count either way; a null array with capacity 0 asks for no more.
template <typename T, typename Write>
Result<void> fill(const char* call, const char* name, T* array, std::int64_t capacity,
                  std::int64_t count, std::int64_t* needed, Write&& write) {
  QUIRE_CHECK(require_array(call, name, array, capacity));
  if (needed != nullptr) *needed = count;
  if (array == nullptr) return {};
  if (capacity < count) {
    return fail(ErrorCode::buffer_too_small, "{}: {} has room for {}, {} are needed", call, name,
                capacity, count);
  }
  for (std::int64_t i = 0; i < count; ++i) array[i] = write(static_cast<std::size_t>(i));
  return {};
}

// The same for text; counts are bytes with the final zero.
inline Result<void> fill_text(const char* call, char* buffer, std::size_t buffer_bytes,
                              std::string_view text, std::size_t* needed) {
  if (buffer_bytes > 0) QUIRE_CHECK(require(call, "buffer", buffer));
  if (buffer == nullptr) QUIRE_CHECK(require(call, "bytes", needed));
  if (needed != nullptr) *needed = text.size() + 1;
  if (buffer == nullptr) return {};
  if (buffer_bytes <= text.size()) {
    return fail(ErrorCode::buffer_too_small, "{}: the buffer has {} bytes, {} are needed", call,
                buffer_bytes, text.size() + 1);
  }
  *std::copy(text.begin(), text.end(), buffer) = '\0';
  return {};
}

}  // namespace quire::capi
