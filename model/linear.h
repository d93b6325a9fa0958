// A linear map of the model: y = W x (+ bias), for several rows at once.
//
// How W is kept, and which arithmetic multiplies it, is the implementation's own affair:
//
//   f32     expands W once and multiplies with BLAS: the reference. Results for other row counts
//           differ by rounding.
//   packed  keeps the codes of the file, in panels (model/panels.h), and multiplies them with rows
//           in 8 bits; scales that are products, those of the K types, are rounded to 11 bits. A
//           row's result is the same to the bit for any number of rows, threads and on any machine.
//
// W may be stacked from several tensors of the same inputs; y then has their outputs one after
// another.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>

#include "model/gguf.h"
#include "quire/executor.hpp"
#include "quire/result.hpp"

namespace quire::model {

enum class WeightForm : int { f32 = 0, packed = 1 };

// "f32", "packed".
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

// A matrix of `outputs` rows of `inputs` columns; `bias` is null or has `outputs` elements.
struct LinearPart {
  const GgufTensor* weight = nullptr;
  const GgufTensor* bias = nullptr;
};

// Requires: at least one part, all of the same inputs. `executor` and `memory` outlive the result.
std::unique_ptr<Linear> make_linear(
    WeightForm form, std::span<const LinearPart> parts, Executor& executor,
    std::pmr::memory_resource* memory = std::pmr::get_default_resource());

}  // namespace quire::model
