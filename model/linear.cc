#include "model/linear.h"

#include <cblas.h>

#include "model/error.h"

namespace quire::model {
namespace {

std::vector<float> expanded(const GgufTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements));
  expand(tensor.type, tensor.data, values);
  return values;
}

class F32Linear final : public Linear {
 public:
  F32Linear(const GgufTensor& weight, const GgufTensor* bias)
      : Linear(static_cast<int>(weight.shape[0]), static_cast<int>(weight.shape[1])),
        weight_(expanded(weight)) {
    if (bias != nullptr) bias_ = expanded(*bias);
  }

  void apply(const float* x, std::int64_t rows, float* y) const override {
    if (rows == 1) {
      cblas_sgemv(CblasRowMajor, CblasNoTrans, outputs(), inputs(), 1.0f, weight_.data(), inputs(),
                  x, 1, 0.0f, y, 1);
    } else {
      multiply_transposed(x, inputs(), rows, weight_.data(), inputs(), outputs(), inputs(), y,
                          outputs());
    }
    if (bias_.empty()) return;
    for (std::int64_t row = 0; row < rows; ++row, y += outputs()) {
      for (std::size_t i = 0; i < bias_.size(); ++i) y[i] += bias_[i];
    }
  }

 private:
  std::vector<float> weight_;  // [outputs][inputs]
  std::vector<float> bias_;    // [outputs], or empty
};

}  // namespace

Result<WeightForm> parse_weight_form(const std::string& text) {
  if (text == "f32") return WeightForm::f32;
  return refuse("weights \"{}\"; known are f32", text);
}

std::unique_ptr<Linear> make_linear(WeightForm form, const GgufTensor& weight,
                                    const GgufTensor* bias) {
  switch (form) {
    case WeightForm::f32:
      return std::make_unique<F32Linear>(weight, bias);
  }
  return nullptr;
}

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

}  // namespace quire::model
