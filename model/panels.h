// A matrix of weights in panels of 16 outputs, made from the blocks of a model file.
//
// Codes stay codes, in the layout of model/panel_kernels.h; floats stay in the type of the file.
// Scales are f16, relative to a power of two for each output, so that products of a file's scales
// lose no more than what lies behind eleven bits. An output with a scale that is no number is NaN.
// Outputs that fill up the last panel are zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "model/gguf.h"
#include "model/panel_kernels.h"

namespace quire::model {

class Panels {
 public:
  // Requires: a matrix [inputs, outputs] of the file's checked shape. `memory` outlives the result.
  Panels(const GgufTensor& weight, std::pmr::memory_resource* memory);

  std::int64_t outputs() const { return outputs_; }
  std::int64_t count() const { return (outputs_ + kPanelOutputs - 1) / kPanelOutputs; }
  bool is_coded() const { return form_.bits > 0; }

  // y [rows][16] = rows times panel `index`. `coded` holds the rows of `x`; it is not looked at
  // where weights are floats, nor `x` where they are not.
  void multiply(std::int64_t index, const float* x, const CodedRows& coded, std::int64_t first,
                std::int64_t rows, float* y) const;

 private:
  void pack_codes(const GgufTensor& weight);
  void pack_floats(const GgufTensor& weight);

  BlockType type_;
  CodeForm form_;
  std::int64_t inputs_;
  std::int64_t outputs_;
  std::size_t panel_bytes_ = 0;
  std::pmr::vector<std::byte> bytes_;
  std::vector<float> powers_;  // [panels][16], what scales are relative to
};

}  // namespace quire::model
