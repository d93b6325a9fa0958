#include "base/error.h"

namespace quire {

const char* error_name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::ok:
      return "ok";
    case ErrorCode::invalid_spec:
      return "invalid_spec";
    case ErrorCode::out_of_range:
      return "out_of_range";
    case ErrorCode::mismatch:
      return "mismatch";
    case ErrorCode::non_finite:
      return "non_finite";
    case ErrorCode::unknown_sequence:
      return "unknown_sequence";
    case ErrorCode::duplicate_position:
      return "duplicate_position";
    case ErrorCode::full:
      return "full";
    case ErrorCode::over_limit:
      return "over_limit";
    case ErrorCode::not_supported:
      return "not_supported";
    case ErrorCode::not_resumable:
      return "not_resumable";
    case ErrorCode::busy:
      return "busy";
    case ErrorCode::internal:
      return "internal";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::wrong_state:
      return "wrong_state";
    case ErrorCode::buffer_too_small:
      return "buffer_too_small";
    case ErrorCode::invalid_argument:
      return "invalid_argument";
  }
  return "unknown";  // a number from outside, cast to the enum
}

}  // namespace quire
