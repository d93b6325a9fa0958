// Packed weights: the panels, their kernels, and the rows in 8 bits that they multiply.
#include "model/panels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/seed.h"
#include "model/linear.h"
#include "quire/cache.hpp"

namespace quire::model {
namespace {

struct TypeCase {
  BlockType type;
  std::vector<std::size_t> scales;  // where a block has its f16 numbers
  double rounding;                  // of scales, in panels
};

const std::vector<TypeCase> kCoded = {
    {BlockType::q8_0, {0}, 0},          {BlockType::q4_0, {0}, 0},
    {BlockType::q4_1, {0, 2}, 0},       {BlockType::q5_0, {0}, 0},
    {BlockType::q5_1, {0, 2}, 0},       {BlockType::q4_k, {0, 2}, 0x1p-11},
    {BlockType::q5_k, {0, 2}, 0x1p-11}, {BlockType::q6_k, {208}, 0x1p-11},
};

// A matrix of random blocks whose scales are such as files have.
struct Weight {
  Weight(const TypeCase& of, std::int64_t inputs, std::int64_t outputs, std::mt19937_64& random) {
    const BlockShape shape = shape_of(of.type);
    const std::size_t blocks =
        static_cast<std::size_t>(inputs * outputs) / static_cast<std::size_t>(shape.elements);
    const auto size = static_cast<std::size_t>(shape.bytes);
    bytes.resize(blocks * size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    for (std::size_t block = 0; block < blocks; ++block) {
      for (const std::size_t at : of.scales) {
        // 2^-10 to 2^-4, of either sign.
        const auto bits =
            static_cast<std::uint16_t>((random() & 0x83ffu) | (5 + random() % 6) << 10);
        std::memcpy(bytes.data() + block * size + at, &bits, sizeof bits);
      }
    }
    tensor = {"t", of.type, {inputs, outputs}, inputs * outputs, bytes};
  }

  std::vector<std::byte> bytes;
  GgufTensor tensor;
};

std::vector<float> random_floats(std::size_t count, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random) * std::exp2(4 * normal(random));
  return values;
}

std::vector<const PanelKernels*> kernels_found() {
  std::vector<const PanelKernels*> found;
  for (const std::string& isa : build_info().isas_found) {
    if (isa == "scalar") found.push_back(&kPanelKernelsScalar);
#if defined(__x86_64__)
    if (isa == "avx2") found.push_back(&kPanelKernelsAvx2);
    if (isa == "avx512") found.push_back(&kPanelKernelsAvx512);
#endif
  }
  return found;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// --- rows in 8 bits ------------------------------------------------------------------------------

struct Coded {
  explicit Coded(std::size_t groups)
      : codes(groups * 32), scales(groups), sums(groups), halves(2 * groups) {}
  std::vector<std::int8_t> codes;
  std::vector<float> scales;
  std::vector<float> sums;
  std::vector<std::int32_t> halves;
};

Coded coded_by(const PanelKernels& kernels, const std::vector<float>& x) {
  Coded coded(x.size() / 32);
  kernels.encode(x.data(), static_cast<std::int64_t>(x.size() / 32), coded.codes.data(),
                 coded.scales.data(), coded.sums.data(), coded.halves.data());
  return coded;
}

TEST(CodedRows, AreWithinHalfAStepAndSumUp) {
  std::mt19937_64 random(quire::test::announce_seed());
  const std::vector<float> x = random_floats(64 * 32, random);
  const Coded coded = coded_by(kPanelKernelsScalar, x);
  for (std::size_t g = 0; g < 64; ++g) {
    int halves[2] = {};
    float largest = 0;
    for (std::size_t i = 0; i < 32; ++i) {
      const int code = coded.codes[g * 32 + i];
      EXPECT_LE(std::abs(code), 127);
      EXPECT_NEAR(static_cast<double>(code) * coded.scales[g], x[g * 32 + i],
                  0.5001 * coded.scales[g]);
      halves[i / 16] += code;
      largest = std::max(largest, std::fabs(x[g * 32 + i]));
    }
    EXPECT_EQ(coded.scales[g], largest / 127.0f);
    EXPECT_EQ(coded.halves[2 * g], halves[0]);
    EXPECT_EQ(coded.halves[2 * g + 1], halves[1]);
    EXPECT_EQ(coded.sums[g], coded.scales[g] * static_cast<float>(halves[0] + halves[1]));
  }
}

TEST(CodedRows, AreTheSameInEveryInstructionSet) {
  std::mt19937_64 random(quire::test::announce_seed());
  std::vector<float> x = random_floats(40 * 32, random);
  const float inf = std::numeric_limits<float>::infinity();
  const float unusual[] = {0.0f,   -0.0f,  inf,    -inf, std::nanf(""), 3.4e38f, -3.4e38f,
                           1e-45f, 1e-38f, 1e-30f, 0.5f, 63.5f,         127.0f};
  for (std::size_t g = 0; g < 12; ++g) {  // group 0 stays finite and has one zero more
    for (int i = 0; i < 4 && g > 0; ++i) x[g * 32 + random() % 32] = unusual[random() % 13];
  }
  for (std::size_t i = 0; i < 32; ++i) x[20 * 32 + i] = 0;
  for (std::size_t i = 0; i < 32; ++i) x[21 * 32 + i] = static_cast<float>(i) + 0.5f;
  x[21 * 32 + 31] = 127;  // a scale of 1: halves are rounded to even
  const Coded expected = coded_by(kPanelKernelsScalar, x);
  EXPECT_EQ(expected.codes[21 * 32], 0);
  EXPECT_EQ(expected.codes[21 * 32 + 1], 2);
  for (const PanelKernels* kernels : kernels_found()) {
    const Coded found = coded_by(*kernels, x);
    EXPECT_EQ(found.codes, expected.codes);
    EXPECT_EQ(found.halves, expected.halves);
    EXPECT_TRUE(same_bits(found.scales, expected.scales));
    EXPECT_TRUE(same_bits(found.sums, expected.sums));
  }
}

TEST(CodedRows, WhatIsNotFiniteStaysSo) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x(64, 1.0f);
    x[40] = bad;
    const Coded coded = coded_by(kPanelKernelsScalar, x);
    EXPECT_EQ(coded.scales[0], 1.0f / 127.0f);
    EXPECT_TRUE(std::isnan(coded.scales[1]));
    EXPECT_TRUE(std::isnan(coded.sums[1]));
  }
}

// --- panels --------------------------------------------------------------------------------------

TEST(Panels, CodesMultiplyAsTheirValuesDo) {
  std::mt19937_64 random(quire::test::announce_seed());
  for (const TypeCase& of : kCoded) {
    SCOPED_TRACE(name_of(of.type));
    constexpr std::size_t kInputs = 512;
    constexpr std::size_t kOutputs = 37;
    const Weight weight(of, kInputs, kOutputs, random);
    std::vector<float> values(kInputs * kOutputs);
    expand(of.type, weight.bytes, values);
    const std::vector<float> x = random_floats(kInputs, random);
    const Coded coded = coded_by(kPanelKernelsScalar, x);
    const std::unique_ptr<Executor> executor = make_executor(1).value();
    const LinearPart part{&weight.tensor, nullptr};
    std::vector<float> y(kOutputs);
    make_linear(WeightForm::packed, {&part, 1}, *executor)->apply(x.data(), 1, y.data());
    for (std::size_t o = 0; o < kOutputs; ++o) {
      double expected = 0;
      double size = 0;
      for (std::size_t i = 0; i < kInputs; ++i) {
        const double product =
            static_cast<double>(values[o * kInputs + i]) * coded.codes[i] * coded.scales[i / 32];
        expected += product;
        size += std::fabs(product);
      }
      // A scale and a least that are rounded apart may differ by more than their sum shows.
      EXPECT_NEAR(y[o], expected, size * (1e-5 + 32 * of.rounding)) << o;
    }
  }
}

TEST(Panels, KernelsAgreeWithTheScalarOnesBitForBit) {
  std::mt19937_64 random(quire::test::announce_seed());
  constexpr std::int64_t kGroups = 16;
  constexpr std::int64_t kRows = 13;
  std::vector<float> x = random_floats(kGroups * 32 * kRows, random);
  // Codes at their largest fill the sums of 16 bits.
  for (std::size_t i = 0; i < 64; ++i) x[i] = 1.0f;
  for (std::size_t i = 64; i < 128; ++i) x[i] = -1.0f;
  const Coded coded = coded_by(kPanelKernelsScalar, x);
  const CodedRowsView view{kGroups, coded.codes.data(), coded.scales.data(), coded.sums.data(),
                           coded.halves.data()};
  for (const TypeCase& of : kCoded) {
    SCOPED_TRACE(name_of(of.type));
    const CodeForm form = code_form_of(of.type);
    std::vector<std::byte> panel(kGroups * block_bytes(form));
    for (std::size_t g = 0; g < kGroups; ++g) {
      std::byte* block = panel.data() + g * block_bytes(form);
      for (std::size_t i = 0; i < block_bytes(form); ++i) {
        block[i] = static_cast<std::byte>(g < 3 ? 0xffu : g == 3 ? 0x00u : random());
      }
      for (std::size_t i = 0; i < head_bytes(form); i += 2) {
        const auto bits =
            static_cast<std::uint16_t>((random() & 0x83ffu) | (1 + random() % 20) << 10);
        std::memcpy(block + i, &bits, sizeof bits);
      }
    }
    std::vector<float> expected(kRows * kPanelOutputs);
    kPanelKernelsScalar.multiply_codes(form, panel.data(), view, 0, kRows, expected.data());
    for (const PanelKernels* kernels : kernels_found()) {
      std::vector<float> y(kRows * kPanelOutputs);
      kernels->multiply_codes(form, panel.data(), view, 0, kRows, y.data());
      EXPECT_TRUE(same_bits(y, expected));
      std::vector<float> tail(5 * kPanelOutputs);
      kernels->multiply_codes(form, panel.data(), view, 8, 5, tail.data());
      EXPECT_TRUE(same_bits(tail, {expected.begin() + 8 * kPanelOutputs, expected.end()}));
    }
  }
}

TEST(Panels, FloatKernelsAgreeWithTheScalarOnesBitForBit) {
  std::mt19937_64 random(quire::test::announce_seed());
  constexpr std::int64_t kInputs = 75;
  constexpr std::int64_t kRows = 7;
  const std::vector<float> x = random_floats(kInputs * kRows, random);
  for (const BlockType type : {BlockType::f32, BlockType::f16, BlockType::bf16}) {
    SCOPED_TRACE(name_of(type));
    const std::vector<float> values = random_floats(kInputs * kPanelOutputs, random);
    std::vector<std::byte> panel(values.size() * static_cast<std::size_t>(shape_of(type).bytes));
    if (type == BlockType::f32) std::memcpy(panel.data(), values.data(), panel.size());
    for (std::size_t i = 0; i < values.size() && type != BlockType::f32; ++i) {
      std::uint16_t bits =
          static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i]) >> 16);
      if (type == BlockType::f16) bits = static_cast<std::uint16_t>(random() & 0xbbffu);
      std::memcpy(panel.data() + 2 * i, &bits, sizeof bits);
    }
    std::vector<float> expected(kRows * kPanelOutputs);
    kPanelKernelsScalar.multiply_floats(type, panel.data(), x.data(), kInputs, kRows,
                                        expected.data());
    for (const PanelKernels* kernels : kernels_found()) {
      std::vector<float> y(kRows * kPanelOutputs);
      kernels->multiply_floats(type, panel.data(), x.data(), kInputs, kRows, y.data());
      EXPECT_TRUE(same_bits(y, expected));
    }
  }
}

// --- whole products ------------------------------------------------------------------------------

TEST(PackedLinear, ARowsResultDoesNotDependOnItsCompanyOrOnThreads) {
  std::mt19937_64 random(quire::test::announce_seed());
  constexpr std::size_t kInputs = 256;
  for (const TypeCase& of : kCoded) {
    SCOPED_TRACE(name_of(of.type));
    const Weight first(of, kInputs, 50, random);
    const Weight second(kCoded[0], kInputs, 33, random);
    const std::vector<float> bias = random_floats(33, random);
    const GgufTensor added{"b", BlockType::f32, {33}, 33, std::as_bytes(std::span(bias))};
    const LinearPart parts[] = {{&first.tensor, nullptr}, {&second.tensor, &added}};
    constexpr std::size_t kRows = 512;
    const std::vector<float> x = random_floats(kRows * kInputs, random);
    std::vector<float> singly(kRows * 83);
    const std::unique_ptr<Executor> alone = make_executor(1).value();
    const std::unique_ptr<Linear> linear = make_linear(WeightForm::packed, parts, *alone);
    ASSERT_EQ(linear->outputs(), 83);
    for (std::size_t row = 0; row < kRows; ++row) {
      linear->apply(x.data() + row * kInputs, 1, singly.data() + row * 83);
    }
    for (const int threads : {1, 3}) {
      const std::unique_ptr<Executor> executor = make_executor(threads).value();
      const std::unique_ptr<Linear> shared = make_linear(WeightForm::packed, parts, *executor);
      for (const std::size_t rows : {1u, 2u, 8u, 64u, 67u, 512u}) {
        std::vector<float> y(rows * 83);
        shared->apply(x.data(), static_cast<std::int64_t>(rows), y.data());
        EXPECT_TRUE(
            same_bits(y, {singly.begin(), singly.begin() + static_cast<std::ptrdiff_t>(y.size())}))
            << rows << " rows, " << threads << " threads";
      }
    }
  }
}

TEST(PackedLinear, AScaleThatIsNoNumberIsNotHidden) {
  std::mt19937_64 random(quire::test::announce_seed());
  for (const TypeCase& of : kCoded) {
    SCOPED_TRACE(name_of(of.type));
    for (const std::uint16_t bad : std::initializer_list<std::uint16_t>{0x7c00, 0xfc00, 0x7e00}) {
      Weight weight(of, 256, 3, random);
      const std::size_t row = weight.bytes.size() / 3;
      std::memcpy(weight.bytes.data() + row + of.scales.back(), &bad, sizeof bad);
      const LinearPart part{&weight.tensor, nullptr};
      const std::unique_ptr<Executor> executor = make_executor(1).value();
      const std::vector<float> x(256, 1.0f);
      float y[3];
      make_linear(WeightForm::packed, {&part, 1}, *executor)->apply(x.data(), 1, y);
      EXPECT_TRUE(std::isfinite(y[0]));
      EXPECT_FALSE(std::isfinite(y[1]));
      EXPECT_TRUE(std::isfinite(y[2]));
    }
  }
}

TEST(PackedLinear, TakesScalesOfAnySize) {
  // Least numbers of f16 and its largest: relative to a power of two for each output.
  std::vector<std::byte> bytes(2 * 34 * 2, std::byte{1});
  const auto set_scale = [&](std::size_t block, std::uint16_t bits) {
    std::memcpy(bytes.data() + block * 34, &bits, sizeof bits);
  };
  set_scale(0, 0x0001);  // 2^-24
  set_scale(1, 0x0003);
  set_scale(2, 0x7bff);  // 65504
  set_scale(3, 0x3c00);
  const GgufTensor weight{"t", BlockType::q8_0, {64, 2}, 128, bytes};
  const LinearPart part{&weight, nullptr};
  const std::unique_ptr<Executor> executor = make_executor(1).value();
  const std::vector<float> x(64, 127.0f);
  float y[2];
  make_linear(WeightForm::packed, {&part, 1}, *executor)->apply(x.data(), 1, y);
  EXPECT_FLOAT_EQ(y[0], 32 * 127 * (0x1p-24f + 3 * 0x1p-24f));
  EXPECT_FLOAT_EQ(y[1], 32 * 127 * (65504.0f + 1.0f));
}

}  // namespace
}  // namespace quire::model
