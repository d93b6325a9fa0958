#include "model/panels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

namespace quire::model {
namespace {

// To the nearest, ties to even. Requires: |value| < 65520.
std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const float magnitude = std::fabs(value);
  // Below the normal numbers, steps are 2^-24; above, a number has 10 bits behind its first.
  if (magnitude < 0x1p-14f) {
    return static_cast<std::uint16_t>(sign |
                                      static_cast<unsigned>(std::nearbyint(magnitude * 0x1p24f)));
  }
  const std::uint32_t rest = std::bit_cast<std::uint32_t>(magnitude) - (112u << 23);
  return static_cast<std::uint16_t>(sign | (rest + 0xfffu + (rest >> 13 & 1u)) >> 13);
}

// The power of two that brings `largest` to between 2^14 and 2^15.
float power_for(float largest) {
  if (largest == 0) return 1;
  return std::ldexp(1.0f, std::ilogb(largest) - 14);
}

void put_f16(std::byte* at, float value) {
  const std::uint16_t bits = f32_to_f16(value);
  std::memcpy(at, &bits, sizeof bits);
}

void add_bits(std::byte& byte, unsigned bits) { byte |= static_cast<std::byte>(bits); }

// Adds one output's group to a panel's block of zeros.
void pack_group(const CodeForm& form, const CodeGroup& group, float power, int output,
                std::byte* block) {
  const auto place = [&](std::size_t row) {
    return block + 2 * (row * kPanelOutputs + static_cast<std::size_t>(output));
  };
  put_f16(place(0), group.scales[0] / power);
  if (form.has_halves) put_f16(place(1), group.scales[1] / power);
  if (form.has_least) put_f16(place(form.has_halves ? 2 : 1), group.least / power);
  std::byte* const codes = block + head_bytes(form);
  const auto plane = [&](int p) { return codes + p * 4 * kPanelOutputs + 4 * output; };
  for (int i = 0; i < kGroupCodes; ++i) {
    const unsigned code = group.codes[static_cast<std::size_t>(i)];
    const int k = i / 4;
    const int j = i % 4;
    if (form.bits == 8) {
      add_bits(plane(k)[j], code);
      continue;
    }
    add_bits(plane(k % 4)[j], (code & 15) << (k / 4 * 4));
    if (form.bits == 5) add_bits(plane(4)[j], (code >> 4) << k);
    if (form.bits == 6) add_bits(plane(4 + k / 4)[j], (code >> 4) << (k % 4 * 2));
  }
}

}  // namespace

Panels::Panels(const GgufTensor& weight, std::pmr::memory_resource* memory)
    : type_(weight.type),
      form_(code_form_of(weight.type)),
      inputs_(weight.shape[0]),
      outputs_(weight.shape[1]),
      bytes_(memory) {
  const auto inputs = static_cast<std::size_t>(inputs_);
  panel_bytes_ = is_coded()
                     ? inputs / kGroupCodes * block_bytes(form_)
                     : inputs * kPanelOutputs * static_cast<std::size_t>(shape_of(type_).bytes);
  bytes_.resize(static_cast<std::size_t>(count()) * panel_bytes_);
  powers_.assign(static_cast<std::size_t>(count() * kPanelOutputs), 1.0f);
  if (is_coded()) {
    pack_codes(weight);
  } else {
    pack_floats(weight);
  }
}

void Panels::pack_codes(const GgufTensor& weight) {
  std::vector<CodeGroup> groups(static_cast<std::size_t>(inputs_) / kGroupCodes);
  const std::size_t row_bytes = weight.data.size() / static_cast<std::size_t>(outputs_);
  for (std::size_t output = 0; output < static_cast<std::size_t>(outputs_); ++output) {
    unpack(type_, weight.data.subspan(output * row_bytes, row_bytes), groups);
    float largest = 0;
    bool is_finite = true;
    for (const CodeGroup& group : groups) {
      for (const float part : {group.scales[0], group.scales[1], group.least}) {
        largest = std::max(largest, std::fabs(part));
        is_finite = is_finite && std::isfinite(part);
      }
    }
    // Of a scale that is no number nothing can be kept but that.
    powers_[output] = is_finite ? power_for(largest) : std::numeric_limits<float>::quiet_NaN();
    if (!is_finite) continue;
    std::byte* block = bytes_.data() + output / kPanelOutputs * panel_bytes_;
    for (const CodeGroup& group : groups) {
      pack_group(form_, group, powers_[output], static_cast<int>(output % kPanelOutputs), block);
      block += block_bytes(form_);
    }
  }
}

void Panels::pack_floats(const GgufTensor& weight) {
  const auto size = static_cast<std::size_t>(shape_of(type_).bytes);
  const std::byte* from = weight.data.data();
  for (std::size_t output = 0; output < static_cast<std::size_t>(outputs_); ++output) {
    std::byte* to =
        bytes_.data() + output / kPanelOutputs * panel_bytes_ + output % kPanelOutputs * size;
    for (std::int64_t i = 0; i < inputs_; ++i, from += size, to += kPanelOutputs * size) {
      std::memcpy(to, from, size);
    }
  }
}

void Panels::multiply(std::int64_t index, const float* x, const CodedRows& coded,
                      std::int64_t first, std::int64_t rows, float* y) const {
  const std::byte* panel = bytes_.data() + static_cast<std::size_t>(index) * panel_bytes_;
  if (!is_coded()) {
    panel_kernels().multiply_floats(type_, panel, x + first * inputs_, inputs_, rows, y);
    return;
  }
  panel_kernels().multiply_codes(form_, panel, coded.view(), first, rows, y);
  const float* powers = powers_.data() + index * kPanelOutputs;
  for (std::int64_t row = 0; row < rows; ++row, y += kPanelOutputs) {
    for (int i = 0; i < kPanelOutputs; ++i) y[i] *= powers[i];
  }
}

}  // namespace quire::model
