// The encoders of every instruction set found here against Codec::encode, byte for byte.
#include "codec/encode.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/numbers.h"
#include "base/seed.h"
#include "codec_cases.h"

namespace quire {
namespace {

using test::Bytes;
using test::Sealed;
using test::size_of;

constexpr DType kRowTypes[] = {DType::f32, DType::f16, DType::bf16};

// What the vector units are given: rows in the row type.
Bytes rounded(DType row_type, const std::vector<float>& rows) {
  Bytes bytes(rows.size() * bytes_of(row_type));
  for (std::size_t i = 0; i < rows.size(); ++i) store_element(row_type, bytes.data(), i, rows[i]);
  return bytes;
}

std::vector<float> widened(DType row_type, const Bytes& rows) {
  std::vector<float> values(rows.size() / bytes_of(row_type));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = load_element(row_type, rows.data(), i);
  return values;
}

// Compares what every set makes of `rows`, [count][dim] in the row type, with what encode makes.
void expect_same(const Codec& codec, const TileShape& shape, DType row_type, const Bytes& rows) {
  const std::vector<float> values = widened(row_type, rows);
  for (const float x : values) ASSERT_LE(std::fabs(x), codec.largest);
  const Sealed expected = test::encode(codec, shape, values);
  for (const Isa isa : isas_found()) {
    const Codec::EncodeRows encode = codec.encode_rows[static_cast<std::size_t>(isa)];
    if (encode == nullptr) continue;
    // A byte more at each end, and an odd address: nothing is written beside the tiles.
    Bytes data(expected.data.size() + 2, std::byte{0xa5});
    Bytes scales(expected.scales.size() + 2, std::byte{0xa5});
    const int count = static_cast<int>(values.size() / size_of(shape.dim));
    encode(shape, row_type, rows.data(), count, data.data() + 1, scales.data() + 1);
    for (const Bytes* bytes : {&data, &scales}) {
      ASSERT_EQ(bytes->front(), std::byte{0xa5});
      ASSERT_EQ(bytes->back(), std::byte{0xa5});
    }
    const Sealed found{Bytes(data.begin() + 1, data.end() - 1),
                       Bytes(scales.begin() + 1, scales.end() - 1)};
    ASSERT_TRUE(found == expected) << test::describe(codec, shape) << ", " << count << " rows of "
                                   << name_of(row_type) << ", " << name_of(isa);
  }
}

// Any bits that the codec can store.
Bytes random_bits(const Codec& codec, DType row_type, std::size_t elements,
                  std::mt19937_64& random) {
  Bytes rows(elements * bytes_of(row_type));
  for (std::size_t i = 0; i < elements; ++i) {
    float x = NAN;
    std::uint64_t bits = 0;
    while (!(std::fabs(x) <= codec.largest)) {
      bits = random();
      x = load_element(row_type, &bits, 0);
    }
    std::memcpy(rows.data() + i * bytes_of(row_type), &bits, bytes_of(row_type));
  }
  return rows;
}

TEST(Encode, EveryCodecHasAnEncoderForEverySetButScalar) {
  for (const Codec* codec : all_codecs()) {
    const bool blocks = std::string(codec->name).starts_with("q");  // of llama.cpp: none
    for (const Isa isa : isas_found()) {
      EXPECT_EQ(codec->encode_rows[static_cast<std::size_t>(isa)] == nullptr,
                isa == Isa::scalar || blocks)
          << codec->name << ' ' << name_of(isa);
    }
  }
}

TEST(Encode, IsTheSameInEverySet) {
  std::mt19937_64 random(test::announce_seed());
  struct Channels {
    int dim, split;
  };
  for (const Codec* codec : all_codecs()) {
    for (const Side side : {Side::key, Side::value}) {
      for (const auto [dim, split] :
           {Channels{1, 0}, Channels{3, 0}, Channels{16, 0}, Channels{20, 0}, Channels{24, 13},
            Channels{64, 0}, Channels{80, 0}, Channels{128, 0}, Channels{576, 512}}) {
        for (const int slots : {1, 16, 24, 64, 256}) {
          const TileShape shape{side, slots, dim, split, 9};
          if (!test::stores(*codec, shape)) continue;
          for (const DType row_type : kRowTypes) {
            for (const int count : {0, 1, slots / 2, slots - 1, slots}) {
              Bytes rows = rounded(row_type, test::random_rows(shape, random));
              rows.resize(size_of(count * dim) * bytes_of(row_type));
              ASSERT_NO_FATAL_FAILURE(expect_same(*codec, shape, row_type, rows));
            }
            const auto any = random_bits(*codec, row_type, size_of(slots * dim), random);
            ASSERT_NO_FATAL_FAILURE(expect_same(*codec, shape, row_type, any));
          }
        }
      }
    }
  }
}

// Rotations in whole vectors, in parts of them, and with every kind of odd factor.
TEST(Encode, RotatedRowsOfEverySizeAreTheSameInEverySet) {
  std::mt19937_64 random(test::announce_seed());
  for (const Codec* codec : all_codecs()) {
    if (codec->rotate[0] == nullptr) continue;
    for (const Side side : {Side::key, Side::value}) {
      for (const int dim : {2,  4,   6,   8,   10,  14,  22,  26,  32,  40,  48,   56,  72,
                            96, 112, 144, 160, 176, 192, 240, 250, 256, 448, 1022, 1024}) {
        const TileShape shape{side, 24, dim, 0, random()};
        if (!test::stores(*codec, shape)) continue;
        for (const int count : {24, 17}) {
          for (const DType row_type : kRowTypes) {
            Bytes rows = rounded(row_type, test::random_rows(shape, random));
            rows.resize(size_of(count * dim) * bytes_of(row_type));
            ASSERT_NO_FATAL_FAILURE(expect_same(*codec, shape, row_type, rows));
          }
        }
      }
    }
  }
}

// Rows of two channels, (1, x), on both sides of every x where a code changes.
TEST(Encode, TqBordersAreTheSameInEverySet) {
  for (const char* name : {"tq2", "tq3", "tq4", "tq5", "tq6"}) {
    const Codec& codec = *find_codec(name);
    const TileShape one{Side::value, 1, 2, 0, 0};
    const auto codes = [&](float x) { return test::encode(codec, one, {1.0f, x}).data; };
    std::vector<float> rows;
    constexpr int kSteps = 400;
    for (int i = 0; i < kSteps; ++i) {
      // The ratio of both channels decides the codes.
      float low = std::tan(1.55f * static_cast<float>(2 * i - kSteps) / kSteps);
      float high = std::tan(1.55f * static_cast<float>(2 * i + 2 - kSteps) / kSteps);
      if (codes(low) == codes(high)) continue;
      const Bytes at_low = codes(low);
      while (std::nextafterf(low, high) < high) {
        const float middle = low + (high - low) / 2;
        (codes(middle) == at_low ? low : high) = middle;
      }
      for (int k = 0; k < 4; ++k) low = std::nextafterf(low, -INFINITY);
      for (int k = 0; k < 10; ++k, low = std::nextafterf(low, INFINITY)) {
        rows.insert(rows.end(), {1.0f, low});
      }
    }
    ASSERT_GT(rows.size(), 20u * 2u) << name;
    rows.resize((rows.size() + 511) / 512 * 512);
    for (std::size_t at = 0; at < rows.size(); at += 512) {
      const TileShape shape{Side::value, 256, 2, 0, 0};
      const std::vector<float> page(rows.begin() + static_cast<std::ptrdiff_t>(at),
                                    rows.begin() + static_cast<std::ptrdiff_t>(at + 512));
      ASSERT_NO_FATAL_FAILURE(expect_same(codec, shape, DType::f32, rounded(DType::f32, page)));
    }
  }
}

TEST(Encode, EveryFiniteNumberOf16BitsIsEncodedTheSame) {
  for (const Codec* codec : all_codecs()) {
    for (const Side side : {Side::key, Side::value}) {
      for (const DType row_type : {DType::f16, DType::bf16}) {
        const TileShape shape{side, 256, 256, 0};
        if (!test::stores(*codec, shape)) continue;
        Bytes rows(65536 * 2);
        for (std::uint32_t bits = 0; bits < 65536; ++bits) {
          auto kept = static_cast<std::uint16_t>(bits);
          if (!(std::fabs(load_element(row_type, &kept, 0)) <= codec->largest)) kept = 0;
          std::memcpy(rows.data() + 2 * bits, &kept, 2);
        }
        ASSERT_NO_FATAL_FAILURE(expect_same(*codec, shape, row_type, rows));
        // Neighbours in one column, so that a row of int8 has all magnitudes.
        Bytes turned(rows.size());
        for (std::size_t i = 0; i < 65536; ++i) {
          std::memcpy(turned.data() + 2 * i, rows.data() + 2 * (i % 256 * 256 + i / 256), 2);
        }
        ASSERT_NO_FATAL_FAILURE(expect_same(*codec, shape, row_type, turned));
      }
    }
  }
}

// Every midpoint between two numbers of the small formats, and what lies beside it.
TEST(Encode, MidpointsGoToTheEvenCode) {
  for (const char* name : {"f16", "bf16", "fp8_e4m3", "fp8_e5m2"}) {
    const Codec& codec = *find_codec(name);
    const test::NumberOracle& oracle = *test::definition(codec).oracle;
    std::vector<float> values;
    for (std::uint32_t code = 0; code < oracle.codes(); ++code) {
      const auto middle = static_cast<float>(oracle.midpoint(code));
      for (const float x :
           {std::nextafterf(middle, 0.0f), middle, std::nextafterf(middle, INFINITY)}) {
        if (std::fabs(x) <= codec.largest) values.insert(values.end(), {x, -x});
      }
    }
    while (values.size() % (256 * 5) != 0) values.push_back(0.0f);
    for (std::size_t at = 0; at < values.size(); at += 256 * 5) {
      const std::vector<float> page(values.begin() + static_cast<std::ptrdiff_t>(at),
                                    values.begin() + static_cast<std::ptrdiff_t>(at + 256 * 5));
      const TileShape shape{Side::key, 256, 5, 0};
      ASSERT_NO_FATAL_FAILURE(expect_same(codec, shape, DType::f32, rounded(DType::f32, page)));
    }
  }
}

// Rows whose scale is every f16 number, with quotients that are ties and what lies beside them.
TEST(Encode, Int8TiesAreTheSameForEveryScale) {
  const Codec& codec = *find_codec("int8");
  constexpr int kDim = 128;
  std::mt19937_64 random(test::announce_seed());
  std::vector<float> rows;
  for (std::uint32_t bits = 1; bits < 0x7c00; ++bits) {
    const float scale = f32_from_f16(static_cast<std::uint16_t>(bits));
    std::vector<float> row = {127.0f * scale};
    while (row.size() < kDim) {
      const auto k = static_cast<float>(static_cast<int>(random() % 254) - 127);
      const float tie = (k + 0.5f) * scale;
      const float beside = std::nextafterf(tie, random() % 2 == 0 ? 0.0f : 1e9f);
      row.push_back(random() % 2 == 0 ? tie : beside);
    }
    rows.insert(rows.end(), row.begin(), row.end());
    if (rows.size() < 256 * kDim && bits + 1 < 0x7c00) continue;
    const int slots = static_cast<int>(rows.size()) / kDim;
    for (const Side side : {Side::key, Side::value}) {
      const TileShape shape{side, slots, kDim, 0};
      ASSERT_NO_FATAL_FAILURE(expect_same(codec, shape, DType::f32, rounded(DType::f32, rows)));
    }
    rows.clear();
  }
}

}  // namespace
}  // namespace quire
