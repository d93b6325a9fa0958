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

}  // namespace quire::model
