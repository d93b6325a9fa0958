#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "codec/codec.h"

namespace quire {
namespace {

TEST(Registry, ListsEveryCodecOnce) {
  EXPECT_EQ(codec_names(),
            (std::vector<std::string>{"f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "tq6",
                                      "tq5", "tq4", "tq3", "tq2", "dual6", "dual5", "dual4",
                                      "dual3", "q8_0", "q4_0"}));
  ASSERT_EQ(all_codecs().size(), codec_names().size());
  for (const Codec* codec : all_codecs()) EXPECT_EQ(find_codec(codec->name), codec);
}

TEST(Registry, UnknownNamesGiveNull) {
  for (const char* name : {"", "int", "int88", "INT8", " f16", "f16 ", "fp8", "q3_k"}) {
    EXPECT_EQ(find_codec(name), nullptr) << name;
  }
}

TEST(Registry, EveryCodecHasAllItsFunctions) {
  for (const Codec* codec : all_codecs()) {
    EXPECT_NE(codec->data_bytes, nullptr) << codec->name;
    EXPECT_NE(codec->scale_bytes, nullptr) << codec->name;
    EXPECT_GE(codec->largest, 65504.0f) << codec->name;
    EXPECT_NE(codec->encode, nullptr) << codec->name;
    EXPECT_NE(codec->decode, nullptr) << codec->name;
    // Both or none; none for codecs that look at all tokens of a page.
    const bool by_page = std::string(codec->name).starts_with("dual");
    EXPECT_EQ(codec->encode_slot == nullptr, by_page) << codec->name;
    EXPECT_EQ(codec->copy_slot == nullptr, by_page) << codec->name;
    EXPECT_EQ(codec->encodes_values, !by_page) << codec->name;
    for (std::size_t isa = 0; isa < kIsas; ++isa) {
      EXPECT_EQ(codec->rotate[isa] == nullptr, codec->rotate_back[isa] == nullptr) << codec->name;
    }
  }
}

// Computed from docs/format.md, apart from this library. They never change: the codes of sealed
// pages are those of rows with these signs.
TEST(HeadSeed, IsThatOfTheFormat) {
  EXPECT_EQ(head_seed(0, 0, 0, Side::key), 0x238275bc38fcbe91u);
  EXPECT_EQ(head_seed(0, 0, 0, Side::value), 0x421daf3033e887a3u);
  EXPECT_EQ(head_seed(0, 0, 1, Side::key), 0x94926c2e801cb6f9u);
  EXPECT_EQ(head_seed(0, 1, 0, Side::key), 0xb18a02f46d8d86c3u);
  EXPECT_EQ(head_seed(20261, 31, 7, Side::value), 0xe852fac8c019e579u);
  EXPECT_EQ(head_seed(~std::uint64_t{0}, 63, 15, Side::key), 0x91151783c0dfb72cu);
}

TEST(HeadSeed, DiffersBetweenLayersHeadsAndSides) {
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
    std::set<std::uint64_t> seeds = {seed};
    for (int layer = 0; layer < 64; ++layer) {
      for (int head = 0; head < 16; ++head) {
        for (const Side side : {Side::key, Side::value}) {
          EXPECT_TRUE(seeds.insert(head_seed(seed, layer, head, side)).second)
              << seed << ": layer " << layer << ", head " << head;
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire
