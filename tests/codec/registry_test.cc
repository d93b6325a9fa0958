#include <gtest/gtest.h>

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

}  // namespace
}  // namespace quire
