// Products of f32 matrices, by OpenBLAS. The order of their sums is its own affair: results are
// equal to rounding for other row counts, threads and machines, not to the bit.
//
// Thread-safety: products may run at once; they share the threads.
#pragma once

#include <cstdint>

namespace quire::model {

// Threads of matrix products, in this process.
void set_product_threads(int threads);

// y = a b^T in f32: a is [rows][inner], b is [columns][inner]. Strides are between rows.
void multiply_transposed(const float* a, std::int64_t a_stride, std::int64_t rows, const float* b,
                         std::int64_t b_stride, std::int64_t columns, std::int64_t inner, float* y,
                         std::int64_t y_stride);
// y = a b: b is [inner][columns].
void multiply(const float* a, std::int64_t a_stride, std::int64_t rows, const float* b,
              std::int64_t b_stride, std::int64_t columns, std::int64_t inner, float* y,
              std::int64_t y_stride);
// y = a x: a is [rows][columns], contiguous.
void multiply_vector(const float* a, std::int64_t rows, std::int64_t columns, const float* x,
                     float* y);

}  // namespace quire::model
