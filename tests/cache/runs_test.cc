// Lent bytes, decoded by hand as docs/format.md describes them.
#include <gtest/gtest.h>

#include <cstring>

#include "base/numbers.h"
#include "cache/fixture.h"

namespace quire::test {
namespace {

template <typename T>
T load(const std::byte* data, std::size_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}

float element(const std::string& type, const std::byte* data, std::size_t index) {
  if (type == "f32") return load<float>(data, index);
  if (type == "f16") return f32_from_f16(load<std::uint16_t>(data, index));
  if (type == "bf16") return f32_from_bf16(load<std::uint16_t>(data, index));
  if (type == "fp8_e4m3") return f32_from_e4m3(load<std::uint8_t>(data, index));
  if (type == "fp8_e5m2") return f32_from_e5m2(load<std::uint8_t>(data, index));
  return load<std::int8_t>(data, index);
}

std::size_t pack_of(const std::string& codec) {
  if (codec == "bf16") return 2;
  return codec == "f32" || codec == "f16" ? 1 : 4;
}

// Channel `ch` of slot `t` of one side with D channels. `split`: channels of the first of two
// scales, or D.
float decode(const RunView& run, Side tiles, std::size_t d, std::size_t split, std::size_t t,
             std::size_t ch) {
  const std::string kind = run.layout.substr(0, run.layout.find('/'));
  const std::string type = run.layout.substr(run.layout.find('/') + 1);
  if (kind == "rows") return element(type, run.data, t * d + ch);
  const std::size_t c = pack_of(type);
  const std::size_t dp = (d + c - 1) / c * c;
  const std::size_t at = tiles == Side::key
                             ? t / 16 * 16 * dp + ch / c * 16 * c + t % 16 * c + ch % c
                             : t / c * c * d + ch * c + t % c;
  const float code = element(type, run.data, at);
  if (type != "int8") return code;
  const std::size_t padded = index_of((run.page_slots + 15) / 16 * 16);
  const std::size_t part = ch < split ? 0 : 1;
  return code * element("f16", run.scales, part * padded + t);
}

void expect_runs_are_what_read_gives(const CacheSpec& spec, const Sequence& sequence) {
  const LayerSpec& layer = spec.layers[0];
  const std::vector<RunView> runs = sequence.runs(0).value();
  for (const Side side : {Side::key, Side::value}) {
    const bool latent = layer.mla && side == Side::value;
    const std::size_t dim = index_of(side == Side::key ? layer.key_dim : layer.value_dim);
    const std::size_t stored = latent ? index_of(layer.key_dim) : dim;
    const std::size_t split = layer.mla ? index_of(layer.value_dim) : stored;
    const std::vector<float> rows = read_all(sequence, 0, side);
    for (int head = 0; head < layer.kv_heads; ++head) {
      std::size_t token = 0;
      for (const RunView& run : runs) {
        if (run.side != side || run.head != head) continue;
        EXPECT_EQ(run.first_position, run.positions.at(0));
        EXPECT_EQ(run.last_slot - run.first_slot, static_cast<int>(run.positions.size()));
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(run.data) % 2, 0u);
        for (int slot = run.first_slot; slot < run.last_slot; ++slot, ++token) {
          for (std::size_t ch = 0; ch < dim; ++ch) {
            const Side tiles = layer.mla ? Side::key : side;
            ASSERT_EQ(decode(run, tiles, stored, split, index_of(slot), ch),
                      rows.at((token * index_of(layer.kv_heads) + index_of(head)) * dim + ch))
                << run.layout << " slot " << slot << " channel " << ch;
          }
        }
      }
      EXPECT_EQ(static_cast<std::int64_t>(token), sequence.length().value());
    }
  }
}

// Codecs whose bytes the test decodes by itself: one element, or one with a scale for its row.
const std::vector<std::string> kPlainCodecs = {"f32",      "f16",      "bf16",
                                               "fp8_e4m3", "fp8_e5m2", "int8"};

TEST(Runs, BytesOfEveryPlainCodecDecodeToWhatReadGives) {
  for (const std::string& codec : kPlainCodecs) {
    for (const int page : {4, 20, 64}) {
      SCOPED_TRACE(codec + ", pages of " + std::to_string(page));
      CacheSpec spec = small_spec(1, codec);
      spec.page_tokens = page;
      spec.rollback = 0;
      spec.layers[0].key_dim = 5;  // no multiple of a tile
      spec.layers[0].value_dim = 7;
      Cache cache = Cache::create(spec).value();
      const Sequence sequence = filled(cache, 2 * page + 2);
      expect_runs_are_what_read_gives(spec, sequence);
      sequence.remove(1, 3, true).value();  // pages in pieces
      expect_runs_are_what_read_gives(spec, sequence);
      sequence.truncate(page + 1).value();
      expect_runs_are_what_read_gives(spec, sequence);
    }
  }
}

TEST(Runs, BytesOfAnMlaLayerAreThoseOfItsLatentOnBothSides) {
  for (const std::string& codec : kPlainCodecs) {
    CacheSpec spec = CacheSpec::mla(1, 2, 6, 4);
    spec.set_codec(codec, codec);
    spec.page_tokens = 4;
    Cache cache = Cache::create(spec).value();
    const Sequence sequence = filled(cache, 10);
    expect_runs_are_what_read_gives(spec, sequence);
    const std::vector<RunView> runs = sequence.runs(0).value();
    ASSERT_GE(runs.size(), 2u);
    EXPECT_EQ(runs[0].data, runs[1].data);
    EXPECT_EQ(runs[1].side, Side::value);
  }
}

TEST(Runs, SizesAreThoseOfTheFormat) {
  CacheSpec spec = small_spec(1, "int8");
  spec.page_tokens = 20;
  spec.layers[0].key_dim = 5;
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 22);
  const std::vector<RunView> runs = sequence.runs(0).value();
  ASSERT_EQ(runs.size(), 8u) << "2 pages, 2 sides, 2 heads";
  for (const RunView& run : runs) {
    const bool sealed = run.positions[0] == 0;
    const bool key = run.side == Side::key;
    EXPECT_EQ(run.layout, sealed ? "tiles/int8" : "rows/f16");
    EXPECT_EQ(run.data_bytes, sealed ? 32u * (key ? 8 : 4) : 20u * (key ? 5 : 4) * 2);
    EXPECT_EQ(run.scale_bytes, sealed ? 64u : 0u);
    EXPECT_EQ(run.scales != nullptr, sealed);
    EXPECT_EQ(run.page_slots, 20);
    EXPECT_EQ(run.first_slot, 0);
    EXPECT_EQ(run.last_slot, sealed ? 20 : 2);
    EXPECT_EQ(run.turn, 0);
  }
}

TEST(Runs, RowTypesAreNamed) {
  for (const auto& [codec, tag] :
       {std::pair("f32", "rows/f32"), std::pair("bf16", "rows/bf16"), std::pair("f16", "rows/f16"),
        std::pair("fp8_e5m2", "rows/f16")}) {
    Cache cache = Cache::create(small_spec(1, codec)).value();
    EXPECT_EQ(filled(cache, 2).runs(0).value().at(0).layout, tag);
  }
}

TEST(Runs, OfAStepShowItsOwnTokensAtOnce) {
  const CacheSpec spec = small_spec(1, "f32");
  Cache cache = Cache::create(spec).value();
  const Sequence sequence = filled(cache, 6);
  Step step = stepped(cache, batch_of(sequence, 6, 3));
  EXPECT_EQ(columns_of(step, 0, sequence.id()), range(0, 9));
  const std::vector<RunView> runs = step.runs(0, sequence.id()).value();
  const RunView& last = runs.at(runs.size() - 4);  // key of head 0
  ASSERT_EQ(last.side, Side::key);
  EXPECT_EQ(decode(last, Side::key, 4, 4, 0, 2), value_of(0, 0, Side::key, 8, 0, 2));
  EXPECT_EQ(sequence.runs(0).value().size(), 8u) << "two pages were committed";
}

TEST(Runs, ForkedSequencesAreLentTheSameBytes) {
  Cache cache = Cache::create(small_spec()).value();
  const Sequence parent = filled(cache, 6);
  const Sequence child = parent.fork().value();
  EXPECT_EQ(parent.runs(0).value().at(0).data, child.runs(0).value().at(0).data);
}

}  // namespace
}  // namespace quire::test
