// Rows of activations in 8 bits, as products with coded weights take them.
//
// A row is cut into groups of 32 numbers, each with a scale: number = code * scale, codes from -127
// to 127. A group that is not finite has a scale that is NaN, so that what is computed from it is;
// numbers below 2^-100 are zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire::model {

// Groups are [row][group], codes [row][group][32].
struct CodedRowsView {
  std::int64_t groups = 0;  // of a row
  const std::int8_t* codes = nullptr;
  const float* scales = nullptr;
  const float* sums = nullptr;           // of a group's numbers
  const std::int32_t* halves = nullptr;  // [row][group][2]: sums of codes 0 to 15 and 16 to 31
};

class CodedRows {
 public:
  // Codes nothing yet; inputs is a multiple of 32.
  CodedRows(std::int64_t rows, std::int64_t inputs);

  // Codes one row of `inputs` numbers. Rows may be coded at once on several threads.
  void encode(std::int64_t row, const float* x);
  CodedRowsView view() const;

 private:
  std::int64_t groups_;
  std::vector<std::int8_t> codes_;
  std::vector<float> scales_;
  std::vector<float> sums_;
  std::vector<std::int32_t> halves_;
};

}  // namespace quire::model
