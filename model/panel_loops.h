// Loops of the panel kernels, written once for all instruction sets. A unit that includes this has
// defined a set of lanes before:
//
//     struct Set {
//       static constexpr int kLanes;                 // outputs of a vector
//       using Ints, Floats;
//       Ints load(const std::byte*)                  // 4 bytes of each output
//       Ints keep(Ints, int mask)                    // of each byte
//       Ints up<N>(Ints), down<N>(Ints), either(Ints, Ints)   // shifts of 16-bit lanes
//       Ints dots<Bits, Zero, Count>(const Ints* w, const std::int8_t* x, int sum)
//                                                    // of (w - Zero) x over Count fours
//       Floats zero(), to_floats(Ints), load_f16(const std::byte*), load_bf16, load_f32
//       Floats times(Floats, float), add_product(Floats sum, Floats a, Floats b or float b)
//       void store(float*, Floats)
//     };
//
// Everything here has internal linkage on purpose: units are compiled for sets that not every
// machine has.
#pragma once

#include "model/panel_kernels.h"

namespace quire::model {
namespace {

struct GroupScale {
  float scale;
  float inverse;  // 0: all codes are 0
};

// For a group whose largest magnitude has these bits.
inline GroupScale group_scale(std::uint32_t largest_bits) {
  const float largest = __builtin_bit_cast(float, largest_bits);
  if (largest_bits >= 0x7f800000u) return {__builtin_nanf(""), 0.0f};
  if (largest < 0x1p-100f) return {0.0f, 0.0f};
  return {largest / 127.0f, 127.0f / largest};
}

template <typename Set, int Bits>
inline void unpack_codes(const std::byte* planes, typename Set::Ints (&w)[8]) {
  constexpr int kPlane = 4 * kPanelOutputs;
  if constexpr (Bits == 8) {
    for (int k = 0; k < 8; ++k) w[k] = Set::load(planes + k * kPlane);
    return;
  }
  for (int p = 0; p < 4; ++p) {
    const typename Set::Ints plane = Set::load(planes + p * kPlane);
    w[p] = Set::keep(plane, 15);
    w[p + 4] = Set::keep(Set::template down<4>(plane), 15);
  }
  const auto add_high = [&w](int k, typename Set::Ints high, int mask) {
    w[k] = Set::either(w[k], Set::keep(high, mask));
  };
  if constexpr (Bits == 5) {
    const typename Set::Ints high = Set::load(planes + 4 * kPlane);
    add_high(0, Set::template up<4>(high), 16);
    add_high(1, Set::template up<3>(high), 16);
    add_high(2, Set::template up<2>(high), 16);
    add_high(3, Set::template up<1>(high), 16);
    add_high(4, high, 16);
    add_high(5, Set::template down<1>(high), 16);
    add_high(6, Set::template down<2>(high), 16);
    add_high(7, Set::template down<3>(high), 16);
  }
  if constexpr (Bits == 6) {
    for (int p = 0; p < 2; ++p) {
      const typename Set::Ints high = Set::load(planes + (4 + p) * kPlane);
      add_high(4 * p, Set::template up<4>(high), 48);
      add_high(4 * p + 1, Set::template up<2>(high), 48);
      add_high(4 * p + 2, high, 48);
      add_high(4 * p + 3, Set::template down<2>(high), 48);
    }
  }
}

template <int Bits_, int Zero_, bool Least_, bool Halves_>
struct Form {
  static constexpr int kBits = Bits_;
  static constexpr int kZero = Zero_;
  static constexpr bool kLeast = Least_;
  static constexpr bool kHalves = Halves_;
  // Constants: a function could be kept as the copy of this unit.
  static constexpr CodeForm kForm{Bits_, Zero_, Least_, Halves_};
  static constexpr std::size_t kScales = scales_bytes(kForm);
  static constexpr std::size_t kHead = head_bytes(kForm);
  static constexpr std::size_t kBlock = block_bytes(kForm);
};

template <typename Set, typename Form, int Rows>
inline void multiply_block_rows(const std::byte* panel, const CodedRowsView& x, std::int64_t first,
                                float* y) {
  using Floats = typename Set::Floats;
  const std::int64_t groups = x.groups;
  const std::int64_t at = first * groups;
  for (int o = 0; o < kPanelOutputs; o += Set::kLanes) {
    Floats sums[Rows];
    for (int r = 0; r < Rows; ++r) sums[r] = Set::zero();
    const std::byte* block = panel;
    for (std::int64_t g = 0; g < groups; ++g, block += Form::kBlock) {
      typename Set::Ints w[8];
      unpack_codes<Set, Form::kBits>(block + Form::kHead + 4 * o, w);
      const Floats scale = Set::load_f16(block + 2 * o);
      Floats upper_scale = scale;
      Floats least = scale;
      if constexpr (Form::kHalves) {
        upper_scale = Set::load_f16(block + 2 * kPanelOutputs + 2 * o);
      }
      if constexpr (Form::kLeast) {
        least = Set::load_f16(block + Form::kScales + 2 * o);
      }
      for (int r = 0; r < Rows; ++r) {
        const std::int64_t group = at + r * groups + g;
        const std::int8_t* codes = x.codes + group * kGroupCodes;
        const std::int32_t* halves = x.halves + 2 * group;
        const float x_scale = x.scales[group];
        if constexpr (Form::kHalves) {
          const auto low = Set::template dots<Form::kBits, Form::kZero, 4>(w, codes, halves[0]);
          const auto high =
              Set::template dots<Form::kBits, Form::kZero, 4>(w + 4, codes + 16, halves[1]);
          sums[r] = Set::add_product(sums[r], Set::to_floats(low), Set::times(scale, x_scale));
          sums[r] =
              Set::add_product(sums[r], Set::to_floats(high), Set::times(upper_scale, x_scale));
        } else {
          const auto whole = Set::template dots<Form::kBits, Form::kZero, 8>(
              w, codes, Form::kZero != 0 ? halves[0] + halves[1] : 0);
          sums[r] = Set::add_product(sums[r], Set::to_floats(whole), Set::times(scale, x_scale));
        }
        if constexpr (Form::kLeast) sums[r] = Set::add_product(sums[r], least, x.sums[group]);
      }
    }
    for (int r = 0; r < Rows; ++r) Set::store(y + r * kPanelOutputs + o, sums[r]);
  }
}

template <typename Set, typename Form>
inline void multiply_form(const std::byte* panel, const CodedRowsView& x, std::int64_t first,
                          std::int64_t rows, float* y) {
  constexpr int kMost = Set::kRows;
  for (; rows >= kMost; rows -= kMost, first += kMost, y += kMost * kPanelOutputs) {
    multiply_block_rows<Set, Form, kMost>(panel, x, first, y);
  }
  for (; rows >= 2; rows -= 2, first += 2, y += 2 * kPanelOutputs) {
    multiply_block_rows<Set, Form, 2>(panel, x, first, y);
  }
  if (rows > 0) multiply_block_rows<Set, Form, 1>(panel, x, first, y);
}

template <typename Set>
void multiply_codes(const CodeForm& form, const std::byte* panel, const CodedRowsView& x,
                    std::int64_t first, std::int64_t rows, float* y) {
  switch (form.bits) {
    case 4:
      return form.has_least
                 ? multiply_form<Set, Form<4, 0, true, false>>(panel, x, first, rows, y)
                 : multiply_form<Set, Form<4, 8, false, false>>(panel, x, first, rows, y);
    case 5:
      return form.has_least
                 ? multiply_form<Set, Form<5, 0, true, false>>(panel, x, first, rows, y)
                 : multiply_form<Set, Form<5, 16, false, false>>(panel, x, first, rows, y);
    case 6:
      return multiply_form<Set, Form<6, 32, false, true>>(panel, x, first, rows, y);
    default:
      return multiply_form<Set, Form<8, 128, false, false>>(panel, x, first, rows, y);
  }
}

template <typename Set, BlockType Type>
inline typename Set::Floats load_weights(const std::byte* at) {
  if constexpr (Type == BlockType::f32) return Set::load_f32(at);
  if constexpr (Type == BlockType::f16) return Set::load_f16(at);
  if constexpr (Type == BlockType::bf16) return Set::load_bf16(at);
}

template <typename Set, BlockType Type, int Rows>
inline void multiply_float_rows(const std::byte* panel, const float* x, std::int64_t inputs,
                                float* y) {
  constexpr int kBytes = Type == BlockType::f32 ? 4 : 2;
  constexpr int kVectors = kPanelOutputs / Set::kLanes;
  typename Set::Floats sums[Rows][kVectors];
  for (auto& row : sums) {
    for (auto& sum : row) sum = Set::zero();
  }
  for (std::int64_t i = 0; i < inputs; ++i, panel += kPanelOutputs * kBytes) {
    for (int v = 0; v < kVectors; ++v) {
      const auto w = load_weights<Set, Type>(panel + v * Set::kLanes * kBytes);
      for (int r = 0; r < Rows; ++r) {
        sums[r][v] = Set::add_product(sums[r][v], w, x[r * inputs + i]);
      }
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      Set::store(y + r * kPanelOutputs + v * Set::kLanes, sums[r][v]);
    }
  }
}

template <typename Set, BlockType Type>
inline void multiply_type(const std::byte* panel, const float* x, std::int64_t inputs,
                          std::int64_t rows, float* y) {
  for (; rows >= 4; rows -= 4, x += 4 * inputs, y += 4 * kPanelOutputs) {
    multiply_float_rows<Set, Type, 4>(panel, x, inputs, y);
  }
  for (; rows > 0; --rows, x += inputs, y += kPanelOutputs) {
    multiply_float_rows<Set, Type, 1>(panel, x, inputs, y);
  }
}

template <typename Set>
void multiply_floats(BlockType type, const std::byte* panel, const float* x, std::int64_t inputs,
                     std::int64_t rows, float* y) {
  switch (type) {
    case BlockType::f16:
      return multiply_type<Set, BlockType::f16>(panel, x, inputs, rows, y);
    case BlockType::bf16:
      return multiply_type<Set, BlockType::bf16>(panel, x, inputs, rows, y);
    default:
      return multiply_type<Set, BlockType::f32>(panel, x, inputs, rows, y);
  }
}

}  // namespace
}  // namespace quire::model
