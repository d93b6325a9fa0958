#include "base/numbers.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include "number_oracle.h"
#include "seed.h"

namespace quire {
namespace {

using test::NumberOracle;

// A format under test: its conversions, and the oracle of the same format.
struct Format {
  const char* name;
  std::uint32_t codes;  // with sign
  std::uint32_t (*narrow)(float);
  float (*widen)(std::uint32_t);
  const NumberOracle& oracle;
};

std::array<Format, 4> formats() {
  return {{
      {"f16", 65536, [](float x) -> std::uint32_t { return f16_from_f32(x); },
       [](std::uint32_t code) { return f32_from_f16(static_cast<std::uint16_t>(code)); },
       test::f16_oracle()},
      {"bf16", 65536, [](float x) -> std::uint32_t { return bf16_from_f32(x); },
       [](std::uint32_t code) { return f32_from_bf16(static_cast<std::uint16_t>(code)); },
       test::bf16_oracle()},
      {"e4m3", 256, [](float x) -> std::uint32_t { return e4m3_from_f32(x); },
       [](std::uint32_t code) { return f32_from_e4m3(static_cast<std::uint8_t>(code)); },
       test::e4m3_oracle()},
      {"e5m2", 256, [](float x) -> std::uint32_t { return e5m2_from_f32(x); },
       [](std::uint32_t code) { return f32_from_e5m2(static_cast<std::uint8_t>(code)); },
       test::e5m2_oracle()},
  }};
}

// A plain comparison first: EXPECT_EQ on millions of values would take seconds.
void expect_code(const Format& format, float x) {
  const std::uint32_t expected = format.oracle.encode(x);
  const std::uint32_t found = format.narrow(x);
  if (found != expected) {
    ADD_FAILURE() << format.name << " of " << std::hexfloat << x << " is " << std::hex << found
                  << ", expected " << expected;
  }
}

TEST(Numbers, EveryFiniteCodeWidensToItsValueAndComesBack) {
  for (const Format& format : formats()) {
    int finite = 0;
    for (std::uint32_t code = 0; code < format.codes; ++code) {
      if ((code & ~format.oracle.sign_bit()) >= format.oracle.codes()) continue;
      ++finite;
      const float value = format.widen(code);
      const double expected = format.oracle.decode(code);
      ASSERT_EQ(value, expected) << format.name << " code " << code;
      ASSERT_EQ(std::signbit(value), std::signbit(expected)) << format.name << " code " << code;
      ASSERT_EQ(format.narrow(value), code) << format.name << " code " << code;
    }
    EXPECT_EQ(finite, 2 * static_cast<int>(format.oracle.codes())) << format.name;
  }
}

TEST(Numbers, CodesAboveTheFiniteOnesAreInfinityOrNan) {
  for (const Format& format : formats()) {
    for (std::uint32_t code = 0; code < format.codes; ++code) {
      const std::uint32_t magnitude = code & ~format.oracle.sign_bit();
      if (magnitude < format.oracle.codes()) continue;
      const float value = format.widen(code);
      const bool has_infinity = std::string(format.name) != "e4m3";
      if (has_infinity && magnitude == format.oracle.codes()) {
        ASSERT_TRUE(std::isinf(value)) << format.name << " code " << code;
      } else {
        ASSERT_TRUE(std::isnan(value)) << format.name << " code " << code;
      }
      ASSERT_EQ(std::signbit(value), code != magnitude) << format.name << " code " << code;
    }
  }
}

TEST(Numbers, EveryMidpointGoesToTheEvenCodeAndItsNeighboursToTheNearest) {
  for (const Format& format : formats()) {
    for (std::uint32_t code = 0; code < format.oracle.codes(); ++code) {
      const auto middle = static_cast<float>(format.oracle.midpoint(code));
      ASSERT_EQ(middle, format.oracle.midpoint(code));
      const float below = std::nextafterf(middle, 0.0f);
      const float above = std::nextafterf(middle, INFINITY);
      const bool last = code + 1 == format.oracle.codes();
      const bool saturates = last && format.codes == 256;
      const std::uint32_t even = code % 2 == 0 ? code : code + 1;
      ASSERT_EQ(format.narrow(below), code) << format.name;
      ASSERT_EQ(format.narrow(middle), saturates ? code : even) << format.name << " " << middle;
      ASSERT_EQ(format.narrow(above), saturates ? code : code + 1) << format.name;
      expect_code(format, -below);
      expect_code(format, -middle);
      expect_code(format, -above);
    }
  }
}

TEST(Numbers, RandomF32BitsRoundToNearestEven) {
  std::mt19937_64 random(test::announce_seed());
  for (const Format& format : formats()) {
    for (int i = 0; i < 1'000'000; ++i) {
      const std::uint64_t draw = random();
      auto bits = static_cast<std::uint32_t>(draw);
      // Every other draw lies within the format's exponents, where rounding has work to do.
      if (i % 2 == 1) {
        const auto scale = static_cast<int>((draw >> 32) % 64) - 40;
        const float fraction = std::ldexp(static_cast<float>(bits >> 8), -24);
        bits = std::bit_cast<std::uint32_t>(std::ldexp(fraction, scale)) | (bits << 31);
      }
      const auto x = std::bit_cast<float>(bits);
      if (!std::isnan(x)) expect_code(format, x);
    }
  }
}

TEST(Numbers, HalfPrecisionOverflowsToInfinityFromTheMidpointOn) {
  EXPECT_EQ(f16_from_f32(65519.996f), 0x7bff);
  EXPECT_EQ(f16_from_f32(65520.0f), 0x7c00);
  EXPECT_EQ(f16_from_f32(-65520.0f), 0xfc00);
  EXPECT_EQ(f16_from_f32(FLT_MAX), 0x7c00);
  EXPECT_EQ(f16_from_f32(-INFINITY), 0xfc00);
  EXPECT_EQ(f32_from_f16(0x7c00), INFINITY);

  const auto below = std::bit_cast<float>(0x7f7f7fffu);
  const auto middle = std::bit_cast<float>(0x7f7f8000u);
  EXPECT_EQ(bf16_from_f32(below), 0x7f7f);
  EXPECT_EQ(bf16_from_f32(middle), 0x7f80);
  EXPECT_EQ(bf16_from_f32(-middle), 0xff80);
  EXPECT_EQ(bf16_from_f32(FLT_MAX), 0x7f80);
  EXPECT_EQ(bf16_from_f32(-INFINITY), 0xff80);
}

TEST(Numbers, Fp8Saturates) {
  for (const float x : {448.0f, 463.9f, 464.0f, 480.0f, 511.0f, 512.0f, 1e9f, FLT_MAX, INFINITY}) {
    EXPECT_EQ(e4m3_from_f32(x), 0x7e) << x;
    EXPECT_EQ(e4m3_from_f32(-x), 0xfe) << x;
  }
  EXPECT_EQ(f32_from_e4m3(0x7e), 448.0f);
  for (const float x : {57344.0f, 61439.0f, 61440.0f, 65536.0f, 131071.0f, FLT_MAX, INFINITY}) {
    EXPECT_EQ(e5m2_from_f32(x), 0x7b) << x;
    EXPECT_EQ(e5m2_from_f32(-x), 0xfb) << x;
  }
  EXPECT_EQ(f32_from_e5m2(0x7b), 57344.0f);
}

TEST(Numbers, ZeroKeepsItsSignAndUnderflowsKeepTheirs) {
  for (const Format& format : formats()) {
    for (const float x : {0.0f, 1e-45f}) {
      EXPECT_EQ(format.narrow(x), 0u) << format.name;
      EXPECT_EQ(format.narrow(-x), format.oracle.sign_bit()) << format.name;
    }
    EXPECT_EQ(format.widen(0), 0.0f);
    EXPECT_FALSE(std::signbit(format.widen(0)));
    EXPECT_EQ(format.widen(format.oracle.sign_bit()), 0.0f);
    EXPECT_TRUE(std::signbit(format.widen(format.oracle.sign_bit())));
  }
}

TEST(Numbers, SubnormalsAreKept) {
  EXPECT_EQ(f16_from_f32(0x1p-24f), 0x0001);
  EXPECT_EQ(f16_from_f32(0x1p-25f), 0x0000);  // a tie, to even
  EXPECT_EQ(f16_from_f32(std::nextafterf(0x1p-25f, 1.0f)), 0x0001);
  EXPECT_EQ(f16_from_f32(0x1.ff8p-15f), 0x03ff);
  EXPECT_EQ(f16_from_f32(0x1.ffcp-15f), 0x0400);  // carries into the smallest normal
  EXPECT_EQ(f32_from_f16(0x0001), 0x1p-24f);

  EXPECT_EQ(bf16_from_f32(0x1p-133f), 0x0001);
  EXPECT_EQ(bf16_from_f32(0x1p-134f), 0x0000);
  EXPECT_EQ(f32_from_bf16(0x8001), -0x1p-133f);

  EXPECT_EQ(e4m3_from_f32(0x1p-9f), 0x01);
  EXPECT_EQ(e4m3_from_f32(0x1p-10f), 0x00);
  EXPECT_EQ(e4m3_from_f32(-0x1.8p-10f), 0x81);
  EXPECT_EQ(e5m2_from_f32(0x1p-16f), 0x01);
  EXPECT_EQ(e5m2_from_f32(0x1p-17f), 0x00);
}

TEST(Numbers, NanStaysNan) {
  for (const std::uint32_t bits :
       {0x7fc00000u, 0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffc12345u}) {
    const auto nan = std::bit_cast<float>(bits);
    for (const Format& format : formats()) {
      const std::uint32_t code = format.narrow(nan);
      EXPECT_TRUE(std::isnan(format.widen(code))) << format.name << " " << std::hex << bits;
      EXPECT_EQ((code & format.oracle.sign_bit()) != 0, (bits >> 31) != 0) << format.name;
    }
  }
  EXPECT_EQ(e4m3_from_f32(NAN) & 0x7f, 0x7f);
}

TEST(Numbers, ElementsAreReadAndWrittenByDtypeAtAnyAlignment) {
  std::array<unsigned char, 64> bytes{};
  for (std::size_t offset = 0; offset < 4; ++offset) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      bytes.fill(0xee);
      void* data = bytes.data() + offset;
      store_element(dtype, data, 1, 1.0f + 0x1p-20f);
      store_element(dtype, data, 3, -2.5f);
      EXPECT_EQ(load_element(dtype, data, 1), dtype == DType::f32 ? 1.0f + 0x1p-20f : 1.0f);
      EXPECT_EQ(load_element(dtype, data, 3), -2.5f);
      const std::size_t size = bytes_of(dtype);
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        const bool written = (i >= offset + size && i < offset + 2 * size) ||
                             (i >= offset + 3 * size && i < offset + 4 * size);
        ASSERT_TRUE(written || bytes[i] == 0xee) << name_of(dtype) << " byte " << i;
      }
    }
  }
}

TEST(Numbers, DtypesHaveSizesAndNames) {
  EXPECT_EQ(bytes_of(DType::f32), 4u);
  EXPECT_EQ(bytes_of(DType::f16), 2u);
  EXPECT_EQ(bytes_of(DType::bf16), 2u);
  EXPECT_STREQ(name_of(DType::f32), "f32");
  EXPECT_STREQ(name_of(DType::f16), "f16");
  EXPECT_STREQ(name_of(DType::bf16), "bf16");
  EXPECT_EQ(bytes_of(static_cast<DType>(7)), 0u);
  EXPECT_STREQ(name_of(static_cast<DType>(7)), "unknown");
}

}  // namespace
}  // namespace quire
