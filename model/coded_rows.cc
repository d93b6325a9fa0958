#include "model/coded_rows.h"

#include "model/panel_kernels.h"

namespace quire::model {

CodedRows::CodedRows(std::int64_t rows, std::int64_t inputs)
    : groups_(inputs / kGroupCodes),
      codes_(static_cast<std::size_t>(rows * inputs)),
      scales_(static_cast<std::size_t>(rows * groups_)),
      sums_(scales_.size()),
      halves_(2 * scales_.size()) {}

void CodedRows::encode(std::int64_t row, const float* x) {
  const std::int64_t at = row * groups_;
  panel_kernels().encode(x, groups_, codes_.data() + at * kGroupCodes, scales_.data() + at,
                         sums_.data() + at, halves_.data() + 2 * at);
}

CodedRowsView CodedRows::view() const {
  return {groups_, codes_.data(), scales_.data(), sums_.data(), halves_.data()};
}

}  // namespace quire::model
