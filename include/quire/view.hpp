// Views of the caller's tensors: pointers with shape, dtype and strides. They own nothing.
#pragma once

#include <cstdint>

#include "quire/spec.hpp"

namespace quire {

// [token][head][dim] in memory, or [head][token][dim].
enum class Layout : int { token_major = 0, head_major = 1 };

// Read-only K, V or Q: element (t, h, c) is at data + t token_stride + h head_stride + c, in
// elements. Channels are contiguous.
struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  std::int64_t dim = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;

  static TensorView dense(const void* data, DType dtype, std::int64_t tokens, std::int64_t heads,
                          std::int64_t dim, Layout layout = Layout::token_major) {
    const bool tokens_first = layout == Layout::token_major;
    return {data,
            dtype,
            tokens,
            heads,
            dim,
            tokens_first ? heads * dim : dim,
            tokens_first ? dim : tokens * dim};
  }
};

// Writable f32 [token][head][dim], strided: what attend fills.
struct OutputView {
  float* data = nullptr;
  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  std::int64_t dim = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;

  static OutputView dense(float* data, std::int64_t tokens, std::int64_t heads, std::int64_t dim,
                          Layout layout = Layout::token_major) {
    const bool tokens_first = layout == Layout::token_major;
    return {data,
            tokens,
            heads,
            dim,
            tokens_first ? heads * dim : dim,
            tokens_first ? dim : tokens * dim};
  }
};

}  // namespace quire
