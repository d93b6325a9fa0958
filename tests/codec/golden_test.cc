// Golden bytes of the codecs that write each element by itself, or with a scale for each row. They
// were computed from docs/format.md with exact rational arithmetic, apart from this library. They
// never change: sealed pages are kept and travel.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "codec_cases.h"

namespace quire {
namespace {

struct Golden {
  const char* codec;
  Side side;
  int split;
  const char* data;  // hex, spaces for the eye
  const char* scales;
};

// Five tokens of three channels in a page of five slots, sealed as one tile of 16.
const std::vector<float> kRows = {
    1.0f,     -2.5f,     0.1f,         // plain values
    0.0f,     -0.0f,     65504.0f,     // zeros of both signs; the largest f16
    0x1p-15f, -0x1p-10f, 1e-8f,        // subnormals, ties and underflow of the small formats
    448.0f,   -464.0f,   57344.0f,     // the largest e4m3, its saturation; the largest e5m2
    -0.3f,    0.7f,      1.0f / 3.0f,  // rounding
};

// clang-format off
const Golden kGolden[] = {
      {"f32", Side::key, 0,
       "0000803f 00000000 00000038 0000e043 9a9999be 00000000 00000000 00000000"
       "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000"
       "000020c0 00000080 000080ba 0000e8c3 3333333f 00000000 00000000 00000000"
       "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000"
       "cdcccc3d 00e07f47 77cc2b32 00006047 abaaaa3e 00000000 00000000 00000000"
       "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
       ""},
      {"f32", Side::value, 0,
       "0000803f 000020c0 cdcccc3d 00000000 00000080 00e07f47 00000038 000080ba"
       "77cc2b32 0000e043 0000e8c3 00006047 9a9999be 3333333f abaaaa3e 00000000"
       "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000"
       "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000"
       "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000"
       "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
       ""},
      {"f16", Side::key, 0,
       "003c0000 0002005f cdb40000 00000000 00000000 00000000 00000000 00000000"
       "00c10080 009440df 9a390000 00000000 00000000 00000000 00000000 00000000"
       "662eff7b 0000007b 55350000 00000000 00000000 00000000 00000000 00000000",
       ""},
      {"f16", Side::value, 0,
       "003c00c1 662e0000 0080ff7b 00020094 0000005f 40df007b cdb49a39 55350000"
       "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000"
       "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
       ""},
      {"bf16", Side::key, 0,
       "803f20c0 00000080 003880ba e043e8c3 9abe333f 00000000 00000000 00000000"
       "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000"
       "cd3d0000 80470000 2c320000 60470000 ab3e0000 00000000 00000000 00000000"
       "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
       ""},
      {"bf16", Side::value, 0,
       "803f0000 20c00080 cd3d8047 0038e043 80bae8c3 2c326047 9abe0000 333f0000"
       "ab3e0000 00000000 00000000 00000000 00000000 00000000 00000000 00000000"
       "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
       ""},
      {"fp8_e4m3", Side::key, 0,
       "38c21d00 00807e00 00800000 7efe7e00 aa332b00 00000000 00000000 00000000"
       "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
       ""},
      {"fp8_e4m3", Side::value, 0,
       "3800007e c28080fe 1d7e007e aa000000 33000000 2b000000 00000000 00000000"
       "00000000 00000000 00000000 00000000",
       ""},
      {"fp8_e5m2", Side::key, 0,
       "3cc12e00 00807b00 02940000 5fdf7b00 b53a3500 00000000 00000000 00000000"
       "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
       ""},
      {"fp8_e5m2", Side::value, 0,
       "3c00025f c18094df 2e7b007b b5000000 3a000000 35000000 00000000 00000000"
       "00000000 00000000 00000000 00000000",
       ""},
      {"int8", Side::key, 0,
       "33810500 00007f00 04810000 01ff7f00 ca7f3c00 00000000 00000000 00000000"
       "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
       "0a250860 81000e5f a51d0000 00000000 00000000 00000000 00000000 00000000"},
      {"int8", Side::key, 2,
       "33817f00 00007f00 04810000 7b817f00 ca7f7f00 00000000 00000000 00000000"
       "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
       "0a250000 81004f43 a51d0000 00000000 00000000 00000000 00000000 00000000"
       "73120860 00000e5f 60190000 00000000 00000000 00000000 00000000 00000000"},
      {"int8", Side::value, 0,
       "33000401 810081ff 057f007f ca000000 7f000000 3c000000 00000000 00000000"
       "00000000 00000000 00000000 00000000",
       "0a250860 81000e5f a51d0000 00000000 00000000 00000000 00000000 00000000"},
      {"int8", Side::value, 2,
       "3300047b 81008181 7f7f007f ca000000 7f000000 7f000000 00000000 00000000"
       "00000000 00000000 00000000 00000000",
       "0a250000 81004f43 a51d0000 00000000 00000000 00000000 00000000 00000000"
       "73120860 00000e5f 60190000 00000000 00000000 00000000 00000000 00000000"},
};
// clang-format on

std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

TEST(Golden, BytesNeverChange) {
  for (const Golden& golden : kGolden) {
    const Codec* codec = find_codec(golden.codec);
    ASSERT_NE(codec, nullptr) << golden.codec;
    const TileShape shape{golden.side, 5, 3, golden.split};
    SCOPED_TRACE(test::describe(*codec, shape));
    const test::Sealed sealed = test::encode(*codec, shape, kRows);
    EXPECT_EQ(test::hex(sealed.data), without_spaces(golden.data));
    EXPECT_EQ(test::hex(sealed.scales), without_spaces(golden.scales));
  }
}

TEST(Golden, CoversEveryCodecAndSideWithADefinition) {
  for (const Codec* codec : all_codecs()) {
    if (!test::is_defined(*codec)) continue;
    for (const Side side : {Side::key, Side::value}) {
      bool found = false;
      for (const Golden& golden : kGolden) {
        found = found || (golden.side == side && std::string(golden.codec) == codec->name);
      }
      EXPECT_TRUE(found) << codec->name;
    }
  }
}

}  // namespace
}  // namespace quire
