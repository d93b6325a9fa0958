// Where a layer's keys and values lie, what may be written there and what comes back.
#include "attend/layer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include "attend/history.h"
#include "base/stream.h"

namespace quire::test {
namespace {

using Bytes = std::vector<std::byte>;

Geometry geometry_of(int heads, int key_dim, int value_dim, DType row_type, const char* key_codec,
                     const char* value_codec, int page_tokens = 16) {
  Geometry g;
  g.kv_heads = heads;
  g.query_heads = heads;
  g.key_dim = key_dim;
  g.value_dim = value_dim;
  g.row_type = row_type;
  g.key_codec = key_codec;
  g.value_codec = value_codec;
  g.page_tokens = page_tokens;
  return g;
}

Geometry latent_of(int latent, int rotary, DType row_type, const char* codec,
                   int page_tokens = 16) {
  Geometry g = geometry_of(1, latent + rotary, latent, row_type, codec, codec, page_tokens);
  g.mla = true;
  return g;
}

// A store alone in its blocks, with a rows block of a known pattern.
struct Fixture {
  LayerStore store;
  std::size_t rows_bytes = 0;
  std::size_t sealed_bytes = 0;
  Bytes rows;
  Bytes sealed;

  explicit Fixture(const Geometry& g) : store(make_store(g)) {
    store.index = 3;
    place(store, rows_bytes, sealed_bytes);
    rows.assign(rows_bytes, std::byte{0xab});
    sealed.assign(sealed_bytes, std::byte{0xcd});
  }

  void fill(Random& random, int count) {
    const Matrix keys = random_matrix(random, count, store.heads, store.key_dim);
    const Matrix values = random_matrix(random, count, store.heads, store.value_dim);
    for (int slot = 0; slot < count; ++slot) {
      write_row(store, Side::key, keys.view(), slot, rows.data(), slot).value();
      write_row(store, Side::value, values.view(), slot, rows.data(), slot).value();
    }
  }

  // [slot][dim] of one head.
  std::vector<float> read(Side side, int head, int first, int count, bool from_sealed) const {
    const int dim = side == Side::key ? store.key_dim : store.value_dim;
    std::vector<float> out(size_of(count * dim), -77.0f);
    if (from_sealed) {
      read_sealed(store, side, head, sealed.data(), first, count, out.data());
    } else {
      read_rows(store, side, head, rows.data(), first, count, out.data());
    }
    return out;
  }
};

std::vector<Geometry> geometries() {
  std::vector<Geometry> all;
  for (const Codec* codec : all_codecs()) {
    const DType row_type = codec->lossless.value_or(DType::f16);
    for (const int page : {1, 5, 16, 24, 64}) {
      const std::string beside = values_beside(*codec);
      for (const Geometry& g : {geometry_of(3, 12, 20, row_type, codec->name, beside.c_str(), page),
                                geometry_of(2, 7, 5, DType::f32, codec->name, "int8", page),
                                geometry_of(2, 64, 32, row_type, codec->name, beside.c_str(), page),
                                latent_of(13, 6, row_type, codec->name, page)}) {
        if (is_storable(g)) all.push_back(g);
      }
    }
  }
  return all;
}

TEST(Layer, PartsLieApartInsideTheirBlocks) {
  std::vector<LayerStore> stores;
  std::size_t rows_bytes = 0;
  std::size_t sealed_bytes = 0;
  for (const Geometry& g : geometries()) {
    LayerStore& store = stores.emplace_back(make_store(g));
    const std::size_t rows_before = rows_bytes;
    const std::size_t sealed_before = sealed_bytes;
    place(store, rows_bytes, sealed_bytes);
    EXPECT_EQ(store.rows_offset, rows_before);
    EXPECT_EQ(store.sealed_offset, sealed_before);
    EXPECT_EQ(store.rows_offset + store.rows_bytes, rows_bytes);
    EXPECT_EQ(store.sealed_offset + store.sealed_bytes, sealed_bytes);
    EXPECT_EQ(rows_bytes % 64, 0u);
    EXPECT_EQ(sealed_bytes % 64, 0u);
  }
  Bytes rows(rows_bytes);
  Bytes sealed(sealed_bytes);
  std::vector<int> row_owners(rows_bytes, 0);
  std::vector<int> sealed_owners(sealed_bytes, 0);
  for (const LayerStore& store : stores) {
    for (int head = 0; head < store.heads; ++head) {
      for (const Side side : {Side::key, Side::value}) {
        if (store.mla && side == Side::value) continue;
        const TileShape tile = store.tile(side, head);
        const std::size_t row_begin =
            size_of(rows_part(store, side, head, rows.data()) - rows.data());
        const std::size_t row_count =
            size_of(store.page_tokens * tile.dim) * bytes_of(store.row_type);
        ASSERT_GE(row_begin, store.rows_offset);
        ASSERT_LE(row_begin + row_count, store.rows_offset + store.rows_bytes);
        for (std::size_t i = 0; i < row_count; ++i) ++row_owners[row_begin + i];

        const SealedPart part = sealed_part(store, side, head, sealed.data());
        const std::size_t data_begin = size_of(part.data - sealed.data());
        EXPECT_EQ(data_begin % 64, 0u);
        ASSERT_LE(data_begin + part.data_bytes, store.sealed_offset + store.sealed_bytes);
        for (std::size_t i = 0; i < part.data_bytes; ++i) ++sealed_owners[data_begin + i];
        EXPECT_EQ(part.scales == nullptr, part.scale_bytes == 0);
        if (part.scales == nullptr) continue;
        const std::size_t scale_begin = size_of(part.scales - sealed.data());
        EXPECT_EQ(scale_begin % 64, 0u);
        ASSERT_LE(scale_begin + part.scale_bytes, store.sealed_offset + store.sealed_bytes);
        for (std::size_t i = 0; i < part.scale_bytes; ++i) ++sealed_owners[scale_begin + i];
      }
    }
  }
  EXPECT_LE(*std::max_element(row_owners.begin(), row_owners.end()), 1);
  EXPECT_LE(*std::max_element(sealed_owners.begin(), sealed_owners.end()), 1);
}

TEST(Layer, LatentsTakeNoSpaceForValues) {
  const Fixture latent(latent_of(32, 16, DType::f16, "f16"));
  EXPECT_EQ(latent.rows_bytes, 16u * 48u * 2u);
  EXPECT_EQ(latent.sealed_bytes, 16u * 48u * 2u);
  const TileShape tile = latent.store.tile(Side::value, 0);
  EXPECT_EQ(tile.side, Side::key);
  EXPECT_EQ(tile.dim, 48);
  EXPECT_EQ(tile.split, 32);
  Bytes sealed(latent.sealed_bytes);
  EXPECT_EQ(sealed_part(latent.store, Side::value, 0, sealed.data()).data, sealed.data());
}

TEST(Layer, RowsAreHeadThenSlotThenChannelKeysBeforeValues) {
  Fixture f(geometry_of(2, 3, 2, DType::f32, "f32", "f32", 4));
  Matrix keys(1, 2, 3);
  keys.data = {1, 2, 3, 4, 5, 6};
  Matrix values(1, 2, 2);
  values.data = {7, 8, 9, 10};
  ASSERT_TRUE(write_row(f.store, Side::key, keys.view(), 0, f.rows.data(), 1));
  ASSERT_TRUE(write_row(f.store, Side::value, values.view(), 0, f.rows.data(), 1));
  const auto at = [&](std::size_t i) { return load_element(DType::f32, f.rows.data(), i); };
  EXPECT_EQ(at(3), 1.0f);   // head 0, slot 1
  EXPECT_EQ(at(15), 4.0f);  // head 1, slot 1: 4 slots of 3 before it
  EXPECT_EQ(at(26), 7.0f);  // values after 2 heads of 4 x 3
  EXPECT_EQ(at(34), 9.0f);
}

TEST(Layer, RowsAreRoundedToTheRowTypeOnce) {
  Random random(20);
  for (const DType row_type : {DType::f32, DType::f16, DType::bf16}) {
    Fixture f(geometry_of(2, 9, 6, row_type, "fp8_e4m3", "int8"));
    Matrix keys = random_matrix(random, 3, 2, 9);
    keys.data[0] = 1.0f + 0x1p-11f;  // a tie in f16: to even, down
    keys.data[1] = 1.0f + 3 * 0x1p-11f;
    keys.data[2] = 1.0f + 0x1p-8f;  // a tie in bf16
    keys.data[3] = -0.0f;
    keys.data[4] = 0x1p-25f;  // below the subnormals of f16
    ASSERT_TRUE(write_row(f.store, Side::key, keys.view(), 0, f.rows.data(), 7));
    for (int head = 0; head < 2; ++head) {
      const std::vector<float> row = f.read(Side::key, head, 7, 1, false);
      for (int c = 0; c < 9; ++c) {
        const float expected = round_to(row_type, keys.at(0, head)[c]);
        EXPECT_EQ(row[size_of(c)], expected) << name_of(row_type) << ' ' << c;
        EXPECT_EQ(std::signbit(row[size_of(c)]), std::signbit(expected));
      }
    }
    if (row_type == DType::f16) {
      const std::vector<float> row = f.read(Side::key, 0, 7, 1, false);
      EXPECT_EQ(row[0], 1.0f);
      EXPECT_EQ(row[1], 1.0f + 0x1p-9f);
    }
  }
}

TEST(Layer, ViewsOfAnyTypeAndStrideGiveTheSameRows) {
  Random random(21);
  const int tokens = 5, heads = 3, dim = 7;
  const Matrix plain = random_matrix(random, tokens, heads, dim, DType::bf16);
  Fixture expected(geometry_of(heads, dim, dim, DType::f32, "f32", "f32"));
  for (int t = 0; t < tokens; ++t) {
    write_row(expected.store, Side::key, plain.view(), t, expected.rows.data(), t).value();
  }
  struct Strides {
    std::int64_t token, head, base;
  };
  const Strides all[] = {
      {heads * dim, dim, 0},                      // token_major
      {dim, tokens * dim, 0},                     // head_major
      {heads * dim + 5, dim, 3},                  // padded tokens, odd base
      {101, 13, 1},                               // holes everywhere
      {-heads * dim, dim, tokens * heads * dim},  // tokens backwards
      {7, -50, 3 * 50},                           // heads backwards
  };
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const Strides& s : all) {
      Bytes memory(1000 * bytes_of(dtype) + 1, std::byte{0x7f});
      std::byte* base = memory.data() + s.base * static_cast<std::int64_t>(bytes_of(dtype));
      for (int t = 0; t < tokens; ++t) {
        for (int h = 0; h < heads; ++h) {
          for (int c = 0; c < dim; ++c) {
            store_element(
                dtype,
                base + (t * s.token + h * s.head) * static_cast<std::int64_t>(bytes_of(dtype)),
                size_of(c), plain.at(t, h)[c]);
          }
        }
      }
      const TensorView view{base, dtype, tokens, heads, dim, s.token, s.head};
      Fixture f(geometry_of(heads, dim, dim, DType::f32, "f32", "f32"));
      for (int t = 0; t < tokens; ++t) {
        ASSERT_TRUE(write_row(f.store, Side::key, view, t, f.rows.data(), t));
      }
      if (dtype == DType::f16) {
        const std::vector<float> row = f.read(Side::key, 1, 2, 1, false);
        for (int c = 0; c < dim; ++c) {
          EXPECT_EQ(row[size_of(c)], round_to(DType::f16, plain.at(2, 1)[c]));
        }
      } else {
        EXPECT_EQ(f.rows, expected.rows)
            << name_of(dtype) << " strides " << s.token << ' ' << s.head;
      }
    }
  }
}

struct Refusal {
  DType row_type;
  const char* codec;
  float value;
  const char* reason;  // null: taken
};

TEST(Layer, RefusesWhatDoesNotFitAndSaysWhere) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Refusal all[] = {
      {DType::f16, "f16", kInf, "inf does not fit f16 rows"},
      {DType::f16, "f16", -kInf, "-inf does not fit f16 rows"},
      {DType::f16, "f16", nan, "nan does not fit f16 rows"},
      {DType::f16, "f16", 65520.0f, "65520 does not fit f16 rows"},
      {DType::f16, "f16", 65519.0f, nullptr},
      {DType::f16, "int8", 65504.0f, nullptr},
      {DType::f16, "fp8_e4m3", 60000.0f, nullptr},  // saturates
      {DType::bf16, "bf16", 3.4e38f, "3.4e+38 does not fit bf16 rows"},
      {DType::bf16, "bf16", 3.38e38f, nullptr},
      {DType::f32, "f32", kInf, "inf does not fit f32 rows"},
      {DType::f32, "f32", 3.4e38f, nullptr},
      {DType::f32, "f16", -70000.0f, "-70000 does not fit f16 codes"},
      {DType::f32, "int8", 9e6f, "9000000 does not fit int8 codes"},
      {DType::f32, "int8", 8e6f, nullptr},
      {DType::f32, "fp8_e5m2", 3e38f, nullptr},
  };
  for (const Refusal& r : all) {
    for (const Side side : {Side::key, Side::value}) {
      Fixture f(geometry_of(2, 19, 18, r.row_type, r.codec, r.codec));
      Matrix rows(6, 2, side == Side::key ? 19 : 18);
      rows.at(5, 1)[17] = r.value;
      const Bytes before = f.rows;
      const Result<void> result = write_row(f.store, side, rows.view(), 5, f.rows.data(), 4);
      if (r.reason == nullptr) {
        EXPECT_TRUE(result) << result.error().text;
        continue;
      }
      ASSERT_FALSE(result) << r.reason;
      EXPECT_EQ(result.code(), ErrorCode::non_finite);
      EXPECT_EQ(result.error().text, std::string("put: layer 3 ") +
                                         (side == Side::key ? "key" : "value") +
                                         " of token 5, head 1, channel 17: " + r.reason);
      // Only slot 4 may have changed.
      const std::size_t row = size_of(rows.dim) * bytes_of(r.row_type);
      Bytes after = f.rows;
      for (int head = 0; head < 2; ++head) {
        const auto at = rows_part(f.store, side, head, f.rows.data()) - f.rows.data() +
                        static_cast<std::ptrdiff_t>(4 * row);
        std::copy_n(before.begin() + at, row, after.begin() + at);
      }
      EXPECT_EQ(after, before);
    }
  }
}

TEST(Layer, RefusalNamesTheCallThatWasMade) {
  Fixture f(geometry_of(1, 2, 2, DType::f16, "f16", "f16"));
  Matrix row(1, 1, 2);
  row.data[1] = kInf;
  const Result<void> result =
      write_row(f.store, Side::value, row.view(), 0, f.rows.data(), 0, "overwrite");
  EXPECT_EQ(result.error().text,
            "overwrite: layer 3 value of token 0, head 0, channel 1: inf does not fit f16 rows");
}

TEST(Layer, ValuesOfALatentAreNotWritten) {
  Fixture f(latent_of(4, 2, DType::f16, "f16"));
  Matrix row(1, 1, 4);
  row.data[0] = kInf;
  const Bytes before = f.rows;
  EXPECT_TRUE(write_row(f.store, Side::value, row.view(), 0, f.rows.data(), 0));
  EXPECT_EQ(f.rows, before);
}

// What a codec by itself makes of the rows is what the page holds.
TEST(Layer, SealsEachHeadAndSideByItsCodec) {
  Random random(22);
  for (const Geometry& g : geometries()) {
    Fixture f(g);
    const int count = std::max(1, g.page_tokens - 3);
    f.fill(random, count);
    seal(f.store, f.rows.data(), count, f.sealed.data());
    for (int head = 0; head < f.store.heads; ++head) {
      for (const Side side : {Side::key, Side::value}) {
        const Codec& codec = side == Side::key || g.mla ? *f.store.key_codec : *f.store.value_codec;
        const Side stored = g.mla ? Side::key : side;
        const int dim = stored == Side::key ? g.key_dim : g.value_dim;
        const TileShape tile{stored, g.page_tokens, dim, g.mla ? g.value_dim : 0,
                             head_seed(f.store.seed, f.store.index, head, stored)};
        const std::vector<float> rows = f.read(stored, head, 0, count, false);
        Bytes data(codec.data_bytes(tile));
        Bytes scales(codec.scale_bytes(tile));
        codec.encode(tile, rows.data(), count, data.data(), scales.data());
        const SealedPart part = sealed_part(f.store, side, head, f.sealed.data());
        ASSERT_EQ(part.data_bytes, data.size());
        ASSERT_EQ(part.scale_bytes, scales.size());
        EXPECT_EQ(std::memcmp(part.data, data.data(), data.size()), 0) << codec.name;
        if (!scales.empty()) {
          EXPECT_EQ(std::memcmp(part.scales, scales.data(), scales.size()), 0) << codec.name;
        }

        std::vector<float> decoded(size_of(count * dim));
        codec.decode(tile, data.data(), scales.data(), 0, count, decoded.data());
        const int shown = side == Side::key ? g.key_dim : g.value_dim;
        const std::vector<float> all = f.read(side, head, 0, count, true);
        for (int t = 0; t < count; ++t) {
          const std::vector<float> one = f.read(side, head, t, 1, true);
          for (int c = 0; c < shown; ++c) {
            const float expected = decoded[size_of(t * dim + c)];
            EXPECT_EQ(all[size_of(t * shown + c)], expected);
            EXPECT_EQ(one[size_of(c)], expected);
          }
        }
      }
    }
  }
}

TEST(Layer, SealedBytesDependOnRowsAlone) {
  Random random(23);
  for (const Geometry& g : geometries()) {
    Fixture f(g);
    f.fill(random, g.page_tokens);
    Bytes other(f.sealed_bytes, std::byte{0x11});
    seal(f.store, f.rows.data(), g.page_tokens, f.sealed.data());
    seal(f.store, f.rows.data(), g.page_tokens, other.data());
    EXPECT_EQ(f.sealed, other) << g.key_codec << ' ' << g.page_tokens;
  }
}

// Every unit writes what write_row writes, from views of any type and stride, and refuses the same.
TEST(Layer, BlocksOfRowsAreWrittenAsRowsAre) {
  Random random(26);
  struct Strides {
    std::int64_t token, head, base;
  };
  for (const Isa isa : isas_found()) {
    for (const DType row_type : {DType::f32, DType::f16, DType::bf16}) {
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        const Geometry g = geometry_of(3, 20, 64, row_type, "int8", "fp8_e4m3", 24);
        for (const Side side : {Side::key, Side::value}) {
          const int dim = side == Side::key ? g.key_dim : g.value_dim;
          for (const Strides& s :
               {Strides{3 * dim, dim, 0}, Strides{dim, 9 * dim, 0}, Strides{-250, 70, 9 * 250}}) {
            Bytes memory(size_of(4000) * bytes_of(dtype));
            for (std::size_t i = 0; i < 4000; ++i) {
              store_element(dtype, memory.data(), i, random.normal(100.0f));
            }
            if (random.integer(0, 1) == 0) {
              const float bad[] = {kInf, -kInf, std::numeric_limits<float>::quiet_NaN(), 9e6f};
              const auto at = size_of(s.base + random.integer(0, 8) * s.token +
                                      random.integer(0, 2) * s.head + random.integer(0, dim - 1));
              store_element(dtype, memory.data(), at, bad[random.integer(0, 3)]);
            }
            const TensorView view{memory.data() + size_of(s.base) * bytes_of(dtype),
                                  dtype,
                                  9,
                                  3,
                                  dim,
                                  s.token,
                                  s.head};
            Fixture expected(g), found(g), streamed(g);
            bool fit = true;
            for (int i = 2; i < 9; ++i) {
              fit &= write_row(expected.store, side, view, i, expected.rows.data(), 10 + i).ok();
            }
            Scratch scratch;
            bool found_fit = true;
            bool streamed_fit = true;
            for (const HeadRange heads : {HeadRange{0, 2}, HeadRange{2, 3}}) {
              const auto at = [&](Fixture& f) {
                return rows_part(f.store, side, heads.begin, f.rows.data(), 12);
              };
              found_fit &= write_rows(found.store, side, heads, view, 2, 7, at(found), isa);
              streamed_fit &=
                  stream_rows(streamed.store, side, heads, view, 2, 7, at(streamed), scratch, isa);
            }
            EXPECT_EQ(found_fit, fit);
            EXPECT_EQ(streamed_fit, fit);
            stream_fence();
            if (!fit) continue;
            EXPECT_EQ(found.rows, expected.rows) << name_of(isa);
            EXPECT_EQ(streamed.rows, expected.rows) << name_of(isa);
          }
        }
      }
    }
  }
}

TEST(Layer, EverySetSealsTheSameBytes) {
  Random random(27);
  for (const Geometry& g : geometries()) {
    Fixture f(g);
    const int count = static_cast<int>(random.integer(0, g.page_tokens));
    f.fill(random, count);
    seal(f.store, f.rows.data(), count, f.sealed.data(), Isa::scalar);
    for (const Isa isa : isas_found()) {
      Bytes sealed(f.sealed_bytes, std::byte{0x11});
      seal(f.store, f.rows.data(), count, sealed.data(), isa);
      EXPECT_EQ(sealed, f.sealed) << g.key_codec << ' ' << name_of(isa);
      Bytes streamed(f.sealed_bytes, std::byte{0x11});
      Scratch scratch;
      for (int head = 0; head < g.kv_heads; ++head) {
        for (const Side side : {Side::key, Side::value}) {
          if (g.mla && side == Side::value) continue;
          seal_part(f.store, side, head, rows_part(f.store, side, head, f.rows.data()), count,
                    streamed.data(), &scratch, isa);
        }
      }
      stream_fence();
      EXPECT_EQ(streamed, f.sealed) << g.key_codec << ' ' << name_of(isa);
    }
  }
}

TEST(Layer, LosslessLayersGiveTheirRowsBack) {
  Random random(24);
  int lossless = 0;
  for (const Geometry& g : geometries()) {
    Fixture f(g);
    const bool expected = f.store.key_codec->lossless == g.row_type &&
                          (g.mla || f.store.value_codec->lossless == g.row_type);
    EXPECT_EQ(f.store.lossless(), expected);
    f.fill(random, g.page_tokens);
    seal(f.store, f.rows.data(), g.page_tokens, f.sealed.data());
    Bytes back(f.rows_bytes, std::byte{0xab});
    unseal(f.store, f.sealed.data(), g.page_tokens, back.data());
    if (f.store.lossless()) {
      ++lossless;
      EXPECT_EQ(back, f.rows) << g.key_codec;
    } else {
      // The decoded values, rounded to the row type.
      Fixture rebuilt(g);
      rebuilt.rows = back;
      const std::vector<float> decoded = f.read(Side::key, 0, 0, g.page_tokens, true);
      const std::vector<float> rows = rebuilt.read(Side::key, 0, 0, g.page_tokens, false);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        EXPECT_EQ(rows[i], round_to(g.row_type, decoded[i]));
      }
    }
  }
  EXPECT_GT(lossless, 0);
}

TEST(Layer, UnsealTouchesOnlyTheSlotsAskedFor) {
  Random random(25);
  Fixture f(geometry_of(2, 4, 6, DType::f16, "f16", "f16"));
  f.fill(random, 16);
  seal(f.store, f.rows.data(), 16, f.sealed.data());
  Bytes back(f.rows_bytes, std::byte{0xab});
  unseal(f.store, f.sealed.data(), 5, back.data());
  Fixture partial(geometry_of(2, 4, 6, DType::f16, "f16", "f16"));
  partial.rows = back;
  for (int head = 0; head < 2; ++head) {
    EXPECT_EQ(partial.read(Side::value, head, 0, 5, false), f.read(Side::value, head, 0, 5, false));
    const std::byte* after = rows_part(f.store, Side::value, head, back.data()) + 5 * 6 * 2;
    EXPECT_TRUE(
        std::all_of(after, after + 11 * 6 * 2, [](std::byte b) { return b == std::byte{0xab}; }));
  }
}

}  // namespace
}  // namespace quire::test
