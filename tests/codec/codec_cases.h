// Shapes, rows and the independent definition of every codec, shared by the codec tests.
//
// `reference` builds the sealed bytes of one side of one head from the formulas of docs/format.md
// and the oracles of tests/base alone, code by code; the tests compare whole buffers with it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/number_oracle.h"
#include "codec/codec.h"

namespace quire::test {

using Bytes = std::vector<std::byte>;

struct Sealed {
  Bytes data;
  Bytes scales;
  bool operator==(const Sealed&) const = default;
};

inline std::string describe(const Codec& codec, const TileShape& shape) {
  return std::string(codec.name) + (shape.side == Side::key ? " key" : " value") + ", " +
         std::to_string(shape.slots) + " slots, dim " + std::to_string(shape.dim) + ", split " +
         std::to_string(shape.split);
}

// Whether a codec can store that: a layer of it would be refused otherwise.
inline bool stores(const Codec& codec, const TileShape& shape) {
  return (shape.side == Side::key || codec.encodes_values) &&
         (codec.takes == nullptr || codec.takes(shape)) &&
         (shape.parts() == 1 || codec.encodes_latents);
}

// Calls f(codec, shape) for every codec, side, dim and page size of the tests that a codec stores.
// The last dim is a latent of 512 channels with a rotary part of 64, for codecs that store those.
inline void for_each_case(const std::function<void(const Codec&, const TileShape&)>& f) {
  for (const Codec* codec : all_codecs()) {
    for (const Side side : {Side::key, Side::value}) {
      for (const int slots : {1, 5, 16, 64, 100, 256}) {
        for (const int dim : {1, 3, 64, 80, 128, 576}) {
          const int split = dim == 576 && codec->encodes_latents ? 512 : 0;
          const TileShape shape{side, slots, dim, split, 5};
          if (!stores(*codec, shape)) continue;
          SCOPED_TRACE(describe(*codec, shape));
          f(*codec, shape);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

inline std::size_t size_of(int n) { return static_cast<std::size_t>(n); }

// [slots][dim], each row of one of several kinds; every value fits every codec.
inline std::vector<float> random_rows(const TileShape& shape, std::mt19937_64& random) {
  std::normal_distribution<float> gauss;
  std::uniform_int_distribution<int> kinds(0, 5);
  std::uniform_int_distribution<int> exponents(-40, 14);
  std::vector<float> rows;
  for (int slot = 0; slot < shape.slots; ++slot) {
    const int kind = kinds(random);
    const float row_scale = std::ldexp(1.0f, exponents(random));
    for (int ch = 0; ch < shape.dim; ++ch) {
      float x = std::clamp(gauss(random), -3.9f, 3.9f);
      if (kind == 0) x *= row_scale;                            // some rows small, some large
      if (kind == 1) x = std::ldexp(x, exponents(random));      // all exponents in one row
      if (kind == 2) x = std::copysign(0.0f, x);                // zeros of both signs
      if (kind == 3) x = std::ldexp(std::round(4.0f * x), -9);  // ties
      rows.push_back(x);
    }
  }
  return rows;
}

inline Sealed encode(const Codec& codec, const TileShape& shape, const std::vector<float>& rows) {
  // Not zero beforehand: encode has to write every byte.
  Sealed sealed{Bytes(codec.data_bytes(shape), std::byte{0xa5}),
                Bytes(codec.scale_bytes(shape), std::byte{0xa5})};
  const auto count = rows.size() / size_of(shape.dim);
  codec.encode(shape, rows.data(), static_cast<int>(count), sealed.data.data(),
               sealed.scales.data());
  return sealed;
}

inline std::vector<float> decode(const Codec& codec, const TileShape& shape, const Sealed& sealed,
                                 int first, int count) {
  std::vector<float> rows(size_of(count) * size_of(shape.dim), -12345.0f);
  codec.decode(shape, sealed.data.data(), sealed.scales.data(), first, count, rows.data());
  return rows;
}

inline std::string hex(const Bytes& bytes) {
  std::string out;
  for (const std::byte byte : bytes) {
    out += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
    out += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15u];
  }
  return out;
}

// How a codec writes elements, for the reference. Codecs that rotate, and those of llama.cpp, have
// none; their golden bytes were made by programs of their own.
inline bool is_defined(const Codec& codec) {
  return codec.rotate[0] == nullptr && codec.encodes_latents;
}

struct Definition {
  std::size_t code_bytes;
  std::size_t pack;            // c of keys, r of values
  const NumberOracle* oracle;  // null for f32 and int8
};

inline Definition definition(const Codec& codec) {
  const std::string name = codec.name;
  if (name == "f32") return {4, 1, nullptr};
  if (name == "f16") return {2, 1, &f16_oracle()};
  if (name == "bf16") return {2, 2, &bf16_oracle()};
  if (name == "fp8_e4m3") return {1, 4, &e4m3_oracle()};
  if (name == "fp8_e5m2") return {1, 4, &e5m2_oracle()};
  if (name == "int8") return {1, 4, nullptr};
  throw std::logic_error("no definition of codec " + name);
}

inline std::size_t padded_dim(const TileShape& shape, std::size_t pack) {
  const std::size_t dim = size_of(shape.dim);
  return shape.side == Side::value || dim % pack == 0 ? dim : dim + pack - dim % pack;
}

inline std::size_t code_index(const TileShape& shape, std::size_t pack, std::size_t t,
                              std::size_t ch) {
  const std::size_t dim = padded_dim(shape, pack);
  if (shape.side == Side::key) {
    return (t / 16) * 16 * dim + (ch / pack) * 16 * pack + (t % 16) * pack + ch % pack;
  }
  return (t / pack) * pack * dim + ch * pack + t % pack;
}

inline void put_little_endian(Bytes& bytes, std::size_t at, std::uint32_t value,
                              std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    bytes.at(at + i) = static_cast<std::byte>((value >> (8 * i)) & 0xffu);
  }
}

struct Reference {
  Sealed sealed;
  std::vector<float> decoded;  // [slots][dim]
};

// Scale and codes of one part of one row of int8. Double holds all of it: nearbyint rounds half to
// even in the default mode.
struct Int8Part {
  std::uint32_t scale_bits = 0;
  std::vector<int> codes;
};

inline Int8Part int8_part(const float* row, std::size_t count) {
  double largest = 0;
  for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(double{row[i]}));
  Int8Part part{f16_oracle().encode(largest / 127.0), std::vector<int>(count, 0)};
  const double scale = f16_oracle().decode(part.scale_bits);
  if (scale == 0) return part;
  for (std::size_t i = 0; i < count; ++i) {
    part.codes[i] = static_cast<int>(std::clamp(std::nearbyint(row[i] / scale), -127.0, 127.0));
  }
  return part;
}

inline Reference reference(const Codec& codec, const TileShape& shape,
                           const std::vector<float>& rows) {
  const auto [code_bytes, pack, oracle] = definition(codec);
  const std::size_t padded_slots = (size_of(shape.slots) + 15) / 16 * 16;
  const std::size_t dim = size_of(shape.dim);
  const bool is_int8 = std::string(codec.name) == "int8";
  std::vector<std::size_t> ends = {dim};
  if (shape.split > 0) ends = {size_of(shape.split), dim};

  Reference out;
  out.sealed.data.resize(padded_slots * padded_dim(shape, pack) * code_bytes);
  if (is_int8) out.sealed.scales.resize(ends.size() * padded_slots * 2);
  out.decoded.resize(rows.size());
  for (std::size_t t = 0; t < rows.size() / dim; ++t) {
    std::size_t begin = 0;
    for (std::size_t p = 0; p < ends.size(); ++p) {
      Int8Part part;
      if (is_int8) {
        part = int8_part(&rows[t * dim + begin], ends[p] - begin);
        put_little_endian(out.sealed.scales, (p * padded_slots + t) * 2, part.scale_bits, 2);
      }
      for (std::size_t ch = begin; ch < ends[p]; ++ch) {
        const float x = rows[t * dim + ch];
        std::uint32_t code = 0;
        float& decoded = out.decoded[t * dim + ch];
        if (is_int8) {
          const int n = part.codes[ch - begin];
          code = static_cast<std::uint32_t>(n) & 0xffu;
          decoded = static_cast<float>(n * f16_oracle().decode(part.scale_bits));
        } else if (oracle != nullptr) {
          code = oracle->encode(x);
          decoded = static_cast<float>(oracle->decode(code));
        } else {
          code = std::bit_cast<std::uint32_t>(x);
          decoded = x;
        }
        put_little_endian(out.sealed.data, code_index(shape, pack, t, ch) * code_bytes, code,
                          code_bytes);
      }
      begin = ends[p];
    }
  }
  return out;
}

// Bit for bit, so that zeros have signs.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
           return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
         });
}

}  // namespace quire::test
