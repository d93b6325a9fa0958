#include "model/linear.h"

#include "model/error.h"
#include "model/products.h"

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
      multiply_vector(weight_.data(), outputs(), inputs(), x, y);
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

}  // namespace quire::model
