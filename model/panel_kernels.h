// Products of rows with panels of weights, in the instruction set of this process.
//
// A panel is 16 outputs of a matrix, interleaved. Floats are [input][16 outputs]. Of codes there is
// a block for every group of 32 inputs, as large as 16 groups in the file or nearly:
//
//     scales    f16 [16 outputs], twice where a type has one per 16 inputs
//     least     f16 [16 outputs], where a type has it
//     codes     planes of 64 bytes; byte 4 o + j stands for output o and input 4 k + j, k < 8
//               4 bits:  4 planes, the low nibble of plane p is k = p, the high one k = p + 4
//               5 bits:  those, and a plane whose bit k is bit 4 of k
//               6 bits:  those of 4 bits, and 2 planes p with bits 4 and 5 of k = 4 p + i at 2 i
//               8 bits:  8 planes
//
// A sum runs over the inputs in one order, group by group:
//
//     sum = fma(float(whole), scale * x.scale, sum)     whole: of (code - zero) * x.code, exact
//     sum = fma(least, x.sum, sum)                      where the type has a least
//
// and for floats, input by input, sum = fma(weight, x, sum). So a row's result is the same to the
// bit whichever rows are multiplied with it, on any thread and in any instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/blocks.h"
#include "model/coded_rows.h"

namespace quire::model {

inline constexpr int kPanelOutputs = 16;

constexpr std::size_t scales_bytes(const CodeForm& form) {
  return (1u + (form.has_halves ? 1u : 0u)) * 2 * kPanelOutputs;
}
constexpr std::size_t head_bytes(const CodeForm& form) {
  return scales_bytes(form) + (form.has_least ? 2u * kPanelOutputs : 0u);
}
// Of a panel's group.
constexpr std::size_t block_bytes(const CodeForm& form) {
  return head_bytes(form) + static_cast<std::size_t>(form.bits) * kPanelOutputs * kGroupCodes / 8;
}

struct PanelKernels {
  // Codes one row into what the view points to.
  void (*encode)(const float* x, std::int64_t groups, std::int8_t* codes, float* scales,
                 float* sums, std::int32_t* halves);
  // y [rows][16] = the rows from `first` on, times a panel.
  void (*multiply_codes)(const CodeForm& form, const std::byte* panel, const CodedRowsView& x,
                         std::int64_t first, std::int64_t rows, float* y);
  // The same for a panel of floats of `inputs` inputs; x is [rows][inputs].
  void (*multiply_floats)(BlockType type, const std::byte* panel, const float* x,
                          std::int64_t inputs, std::int64_t rows, float* y);
};

extern const PanelKernels kPanelKernelsScalar;
extern const PanelKernels kPanelKernelsAvx2;
extern const PanelKernels kPanelKernelsAvx512;

// Those of the instruction set that the library uses.
const PanelKernels& panel_kernels();

}  // namespace quire::model
