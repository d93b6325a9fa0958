// A linear map of the model: y = W x (+ bias), for several rows at once.
//
// How W is kept, and which arithmetic multiplies it, is the implementation's own affair. `f32`
// expands it once and multiplies with BLAS: the reference.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/gguf.h"
#include "quire/result.hpp"

namespace quire::model {

enum class WeightForm : int { f32 = 0 };

// "f32".
Result<WeightForm> parse_weight_form(const std::string& text);

class Linear {
 public:
  virtual ~Linear() = default;
  // x is [rows][inputs], y is [rows][outputs].
  virtual void apply(const float* x, std::int64_t rows, float* y) const = 0;

  int inputs() const { return inputs_; }
  int outputs() const { return outputs_; }

 protected:
  Linear(int inputs, int outputs) : inputs_(inputs), outputs_(outputs) {}

 private:
  int inputs_;
  int outputs_;
};

// From a matrix of `outputs` rows of `inputs` columns; `bias` is null or has `outputs` elements.
// The file must outlive the result.
std::unique_ptr<Linear> make_linear(WeightForm form, const GgufTensor& weight,
                                    const GgufTensor* bias);

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

}  // namespace quire::model
