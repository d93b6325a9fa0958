#include "base/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "seed.h"

namespace quire {
namespace {

using Bytes = std::vector<std::byte>;

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

template <typename F>
void for_each_conversion(const F& f) {
  for (const Isa isa : isas_found()) {
    for (const DType from : kTypes) {
      for (const DType to : kTypes) {
        SCOPED_TRACE(std::string(name_of(from)) + " to " + name_of(to) + ", " + name_of(isa));
        f(from, to, isa);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// The same by numbers.h, element by element.
struct Expected {
  Bytes bytes;
  float largest;
};

Expected expected_of(DType from, DType to, const Bytes& in) {
  const std::size_t count = in.size() / bytes_of(from);
  Expected expected{Bytes(count * bytes_of(to)), 0.0f};
  for (std::size_t i = 0; i < count; ++i) {
    store_element(to, expected.bytes.data(), i, load_element(from, in.data(), i));
    const float written = std::fabs(load_element(to, expected.bytes.data(), i));
    if (!(written <= expected.largest)) expected.largest = written;
  }
  return expected;
}

Bytes without_nan(DType dtype, Bytes bytes) {
  for (std::size_t i = 0; i < bytes.size() / bytes_of(dtype); ++i) {
    if (std::isnan(load_element(dtype, bytes.data(), i))) {
      store_element(dtype, bytes.data(), i, 0.0f);
    }
  }
  return bytes;
}

void expect_converted(DType from, DType to, Isa isa, const Bytes& in) {
  const Expected expected = expected_of(from, to, in);
  Bytes out(expected.bytes.size() + 1, std::byte{0xee});
  const float largest =
      convert_rows(from, to, isa)(in.data(), 0, out.data(), 0, 1, in.size() / bytes_of(from));
  ASSERT_EQ(largest, expected.largest);
  ASSERT_EQ(out.back(), std::byte{0xee});
  out.pop_back();
  ASSERT_TRUE(out == expected.bytes);
}

TEST(Convert, EveryNumberOf16BitsIsConvertedAsByNumbers) {
  for_each_conversion([](DType from, DType to, Isa isa) {
    if (from == DType::f32) return;
    Bytes in(65536 * 2);
    for (std::uint32_t bits = 0; bits < 65536; ++bits) std::memcpy(&in[2 * bits], &bits, 2);
    expect_converted(from, to, isa, without_nan(from, in));
  });
}

TEST(Convert, RandomBitsAndTiesAreConvertedAsByNumbers) {
  const std::uint64_t seed = test::announce_seed();
  for_each_conversion([&](DType from, DType to, Isa isa) {
    std::mt19937_64 random(seed);
    for (const std::size_t count :
         {std::size_t{1}, std::size_t{7}, std::size_t{33}, std::size_t{100'000}}) {
      Bytes in(count * bytes_of(from));
      for (std::size_t i = 0; i < count; ++i) {
        auto bits = static_cast<std::uint32_t>(random());
        // Ties of f16 and bf16, and what lies beside them.
        if (random() % 4 == 0) bits = (bits & 0xffffe000u) | (0x1000u + bits % 3u - 1u);
        if (random() % 4 == 0) bits = (bits & 0xffff0000u) | (0x8000u + bits % 3u - 1u);
        std::memcpy(&in[i * bytes_of(from)], &bits, bytes_of(from));
      }
      ASSERT_NO_FATAL_FAILURE(expect_converted(from, to, isa, without_nan(from, in)));
    }
  });
}

TEST(Convert, RowsHaveStepsOfTheirOwn) {
  const std::uint64_t seed = test::announce_seed();
  for_each_conversion([&](DType from, DType to, Isa isa) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> gauss;
    for (const std::size_t dim : {1u, 3u, 8u, 15u, 16u, 20u, 33u, 64u, 100u}) {
      for (const std::ptrdiff_t backwards : {1, -1}) {
        constexpr std::ptrdiff_t kRows = 5;
        const auto in_step = static_cast<std::ptrdiff_t>(dim * bytes_of(from) + 3);
        const auto out_step = static_cast<std::ptrdiff_t>(dim * bytes_of(to) + 1);
        Bytes in(static_cast<std::size_t>(kRows * in_step), std::byte{0x7f});
        Bytes out(static_cast<std::size_t>(kRows * out_step), std::byte{0xee});
        float largest = 0;
        for (std::ptrdiff_t row = 0; row < kRows; ++row) {
          for (std::size_t c = 0; c < dim; ++c) {
            store_element(from, &in[static_cast<std::size_t>(row * in_step)], c, gauss(random));
          }
        }
        const std::byte* first = in.data() + (backwards < 0 ? (kRows - 1) * in_step : 0);
        const float found = convert_rows(from, to, isa)(first, backwards * in_step, out.data(),
                                                        out_step, kRows, dim);
        for (std::ptrdiff_t row = 0; row < kRows; ++row) {
          const std::byte* source = first + backwards * row * in_step;
          const Expected expected =
              expected_of(from, to, Bytes(source, source + dim * bytes_of(from)));
          largest = std::max(largest, expected.largest);
          const std::byte* made = out.data() + row * out_step;
          ASSERT_TRUE(std::equal(expected.bytes.begin(), expected.bytes.end(), made));
          ASSERT_EQ(made[out_step - 1], std::byte{0xee});
        }
        ASSERT_EQ(found, largest);
      }
    }
  });
}

TEST(Convert, ANumberThatIsNoneIsFoundAnywhere) {
  for_each_conversion([](DType from, DType to, Isa isa) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (const std::size_t dim : {1u, 20u, 64u, 77u}) {
      for (std::size_t at = 0; at < dim; ++at) {
        Bytes in(dim * bytes_of(from));
        Bytes out(dim * bytes_of(to));
        const auto convert = [&](std::uint32_t bits, std::size_t bytes) {
          std::memcpy(&in[at * bytes_of(from)], &bits, bytes);
          return convert_rows(from, to, isa)(in.data(), 0, out.data(), 0, 1, dim);
        };
        if (from == DType::f16) {
          ASSERT_EQ(convert(0xfc00u, 2), kInfinity);
          ASSERT_TRUE(std::isnan(convert(0x7c01u, 2)));
          ASSERT_TRUE(std::isnan(convert(0xffffu, 2)));
        } else if (from == DType::bf16) {
          ASSERT_EQ(convert(0xff80u, 2), kInfinity);
          ASSERT_TRUE(std::isnan(convert(0x7f81u, 2)));
          ASSERT_TRUE(std::isnan(convert(0xffffu, 2)));
        } else {
          ASSERT_EQ(convert(0xff800000u, 4), kInfinity);
          ASSERT_TRUE(std::isnan(convert(0x7f800001u, 4)));
          ASSERT_TRUE(std::isnan(convert(0xffffffffu, 4)));
          // Finite, but not in 16 bits.
          ASSERT_EQ(convert(0x7f7fffffu, 4) == kInfinity, to != DType::f32);
        }
      }
    }
  });
}

TEST(Convert, NoRowsAreZero) {
  for_each_conversion([](DType from, DType to, Isa isa) {
    EXPECT_EQ(convert_rows(from, to, isa)(nullptr, 0, nullptr, 0, 0, 16), 0.0f);
    EXPECT_EQ(convert_rows(from, to, isa)(nullptr, 0, nullptr, 0, 3, 0), 0.0f);
  });
}

}  // namespace
}  // namespace quire
