#include "model/linear.h"

#include <algorithm>
#include <vector>

#include "model/error.h"
#include "model/panels.h"
#include "model/products.h"

namespace quire::model {
namespace {

int outputs_of(std::span<const LinearPart> parts) {
  std::int64_t outputs = 0;
  for (const LinearPart& part : parts) outputs += part.weight->shape[1];
  return static_cast<int>(outputs);
}

template <typename Vector>
void append_expanded(const GgufTensor& tensor, Vector& to) {
  const std::size_t at = to.size();
  to.resize(at + static_cast<std::size_t>(tensor.elements));
  expand(tensor.type, tensor.data, std::span<float>(to).subspan(at));
}

// Of all outputs; empty where no part has one.
std::vector<float> biases_of(std::span<const LinearPart> parts) {
  std::vector<float> biases;
  bool has_any = false;
  for (const LinearPart& part : parts) {
    has_any = has_any || part.bias != nullptr;
    if (part.bias != nullptr) {
      append_expanded(*part.bias, biases);
    } else {
      biases.resize(biases.size() + static_cast<std::size_t>(part.weight->shape[1]));
    }
  }
  return has_any ? biases : std::vector<float>();
}

class F32Linear final : public Linear {
 public:
  F32Linear(std::span<const LinearPart> parts, std::pmr::memory_resource* memory)
      : Linear(static_cast<int>(parts[0].weight->shape[0]), outputs_of(parts)),
        weight_(memory),
        bias_(biases_of(parts)) {
    weight_.reserve(static_cast<std::size_t>(inputs()) * static_cast<std::size_t>(outputs()));
    for (const LinearPart& part : parts) append_expanded(*part.weight, weight_);
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
  std::pmr::vector<float> weight_;  // [outputs][inputs]
  std::vector<float> bias_;         // [outputs], or empty
};

class PackedLinear final : public Linear {
 public:
  PackedLinear(std::span<const LinearPart> parts, Executor& executor,
               std::pmr::memory_resource* memory)
      : Linear(static_cast<int>(parts[0].weight->shape[0]), outputs_of(parts)),
        bias_(biases_of(parts)),
        executor_(executor) {
    std::int64_t output = 0;
    parts_.reserve(parts.size());
    for (const LinearPart& part : parts) {
      parts_.emplace_back(*part.weight, memory);
      is_coded_ = is_coded_ || parts_.back().is_coded();
      for (std::int64_t i = 0; i < parts_.back().count(); ++i) {
        panels_.push_back({&parts_.back(), i, output + i * kPanelOutputs});
      }
      output += part.weight->shape[1];
    }
  }

  void apply(const float* x, std::int64_t rows, float* y) const override {
    if (rows == 0) return;
    const std::int64_t row_blocks = (rows + kRowBlock - 1) / kRowBlock;
    CodedRows coded(is_coded_ ? rows : 0, is_coded_ ? inputs() : 0);
    if (is_coded_) {
      executor_.run(static_cast<std::size_t>(row_blocks), [&](std::size_t block) {
        const std::int64_t begin = static_cast<std::int64_t>(block) * kRowBlock;
        for (std::int64_t row = begin; row < std::min(begin + kRowBlock, rows); ++row) {
          coded.encode(row, x + row * inputs());
        }
      });
    }
    const std::size_t chunk = panels_of_a_task(std::min(rows, kRowBlock));
    const std::size_t chunks = (panels_.size() + chunk - 1) / chunk;
    executor_.run(static_cast<std::size_t>(row_blocks) * chunks, [&](std::size_t task) {
      const std::int64_t first = static_cast<std::int64_t>(task / chunks) * kRowBlock;
      const std::int64_t count = std::min(kRowBlock, rows - first);
      const std::size_t begin = task % chunks * chunk;
      const std::size_t end = std::min(begin + chunk, panels_.size());
      for (std::size_t i = begin; i < end; ++i) {
        multiply_panel(panels_[i], x, coded, first, count, y);
      }
    });
  }

 private:
  static constexpr std::int64_t kRowBlock = 64;  // rows whose codes stay near

  struct Panel {
    const Panels* part;
    std::int64_t index;
    std::int64_t output;  // the first of them
  };

  // Enough work to be worth a task, and enough tasks to share.
  std::size_t panels_of_a_task(std::int64_t rows) const {
    constexpr std::int64_t kProducts = 128 * 1024;
    return static_cast<std::size_t>(
        std::max<std::int64_t>(1, kProducts / (rows * inputs() * kPanelOutputs)));
  }

  void multiply_panel(const Panel& panel, const float* x, const CodedRows& coded,
                      std::int64_t first, std::int64_t rows, float* y) const {
    float sums[kRowBlock * kPanelOutputs];
    panel.part->multiply(panel.index, x, coded, first, rows, sums);
    const std::int64_t count =
        std::min<std::int64_t>(kPanelOutputs, panel.part->outputs() - panel.index * kPanelOutputs);
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* from = sums + row * kPanelOutputs;
      float* to = y + (first + row) * outputs() + panel.output;
      if (bias_.empty()) {
        std::copy_n(from, count, to);
      } else {
        for (std::int64_t i = 0; i < count; ++i) {
          to[i] = from[i] + bias_[static_cast<std::size_t>(panel.output + i)];
        }
      }
    }
  }

  std::vector<Panels> parts_;
  std::vector<Panel> panels_;  // of all parts
  std::vector<float> bias_;    // [outputs], or empty
  Executor& executor_;
  bool is_coded_ = false;
};

}  // namespace

Result<WeightForm> parse_weight_form(const std::string& text) {
  if (text == "f32") return WeightForm::f32;
  if (text == "packed") return WeightForm::packed;
  return refuse("weights \"{}\"; known are f32 and packed", text);
}

std::unique_ptr<Linear> make_linear(WeightForm form, std::span<const LinearPart> parts,
                                    Executor& executor, std::pmr::memory_resource* memory) {
  switch (form) {
    case WeightForm::f32:
      return std::make_unique<F32Linear>(parts, memory);
    case WeightForm::packed:
      return std::make_unique<PackedLinear>(parts, executor, memory);
  }
  return nullptr;
}

}  // namespace quire::model
