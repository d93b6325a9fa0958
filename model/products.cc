#include "model/products.h"

#include <cblas.h>

namespace quire::model {

void set_product_threads(int threads) { openblas_set_num_threads(threads); }

void multiply_transposed(const float* a, std::int64_t a_stride, std::int64_t rows, const float* b,
                         std::int64_t b_stride, std::int64_t columns, std::int64_t inner, float* y,
                         std::int64_t y_stride) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<blasint>(rows),
              static_cast<blasint>(columns), static_cast<blasint>(inner), 1.0f, a,
              static_cast<blasint>(a_stride), b, static_cast<blasint>(b_stride), 0.0f, y,
              static_cast<blasint>(y_stride));
}

void multiply(const float* a, std::int64_t a_stride, std::int64_t rows, const float* b,
              std::int64_t b_stride, std::int64_t columns, std::int64_t inner, float* y,
              std::int64_t y_stride) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<blasint>(rows),
              static_cast<blasint>(columns), static_cast<blasint>(inner), 1.0f, a,
              static_cast<blasint>(a_stride), b, static_cast<blasint>(b_stride), 0.0f, y,
              static_cast<blasint>(y_stride));
}

void multiply_vector(const float* a, std::int64_t rows, std::int64_t columns, const float* x,
                     float* y) {
  cblas_sgemv(CblasRowMajor, CblasNoTrans, static_cast<blasint>(rows),
              static_cast<blasint>(columns), 1.0f, a, static_cast<blasint>(columns), x, 1, 0.0f, y,
              1);
}

}  // namespace quire::model
