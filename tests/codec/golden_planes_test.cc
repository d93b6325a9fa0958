// Golden bytes of the codecs below 8 bits and of llama.cpp's blocks. Those of tq and dual were
// computed from docs/format.md by a program apart from this library, those of q8_0 and q4_0 by the
// Python package `gguf` 0.19. They never change: sealed pages are kept and travel.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "codec/rotation/rotation.h"
#include "codec_cases.h"

namespace quire {
namespace {

struct Golden {
  const char* codec;
  Side side;
  int dim;
  const char* data;      // the first bytes
  const char* scales;    // the first bytes
  std::uint64_t digest;  // FNV-1a of all data, then all scales
};

// 21 tokens in a page of 24 slots, sealed as two tiles of 16, with the signs of seed 99.
TileShape golden_shape(const Golden& golden) { return {golden.side, 24, golden.dim, 0, 99}; }

// clang-format off
const Golden kGolden[] = {
    {"tq6", Side::key, 64, "fc675343b7175734410111d600000000", "e3367c39433d0000fb457c35",
     0x585b7d8414049b6eu},
    {"tq6", Side::key, 80, "1ed00ff7f1bb30209b802b4a00000000", "47360c39053e000041452935",
     0x831d1510e70a0f06u},
    {"tq6", Side::value, 64, "4cb7d1006707d100c3d7d100e3840600", "e2367b39423d0000fb457b35",
     0x0238115c6028de48u},
    {"tq6", Side::value, 80, "7ea18b00802bf0003f100b0067e08a00", "46360c39043e000040452835",
     0x19f815c90ae5f920u},
    {"tq5", Side::key, 64, "b9f8e6edafc8e86d6cbccc3f00000000", "e13677395a3d0000ef457035",
     0x97abfb6067005674u},
    {"tq5", Side::key, 80, "5aabb4a7bc11dccb018452e800000000", "30360e39013e000042453435",
     0x7aa211b828018020u},
    {"tq5", Side::value, 64, "599f9c00f8c83c002638ac00ad7d4f00", "dd367539573d0000ed456d35",
     0x0ca93cc4c22877a6u},
    {"tq5", Side::value, 80, "8a1c01007b51b400d4ccb20077ab0800", "2c360c39fe3d000040453135",
     0x33d35a333b31720eu},
    {"tq4", Side::key, 64, "e47c7bf6d75c7cb6265e6e9700000000", "f3366339443d000011467a35",
     0x9f6a7a1c1ed5badcu},
    {"tq4", Side::key, 80, "a5555a53d6896e6580ca29f400000000", "28362939f33d000039455935",
     0x527d9d9b2d3ee022u},
    {"tq4", Side::value, 64, "244746007cec9e009b9cde005636a700", "e4365939393d000004466d35",
     0x0e47823805bc9fddu},
    {"tq4", Side::value, 80, "c586800035295a006a6e5900c3558400", "1d361d39e93d00002e454d35",
     0x36608ca7647355d1u},
    {"tq4", Side::key, 104, "76556ac7e88a66a98828c9c700000000", "da355739bf3d0000b644e034",
     0xee176550a76b7cb4u},
    {"tq4", Side::value, 104, "c6c8d80095aa38007ad6890087897700", "d0354d39b33d0000ac44d734",
     0xb90efd051c5319b4u},
    {"tq4", Side::key, 112, "e2588cb8dc6d8d76c4387e9800000000", "c3352739e43d00006b45c035",
     0x35565f58c7987ec3u},
    {"tq4", Side::value, 112, "826ca400a8bd38003c3dbe00a8567800", "b7351c39d63d00005f45b235",
     0xdd227212227ade02u},
    {"tq3", Side::key, 64, "8e3e5d2f7b1a1e0727dbbff300000000", "ec36cd39253d00006c464635",
     0xdba0f173822f176fu},
    {"tq3", Side::key, 80, "d67a39d95fb05f2ea08994ce00000000", "53362b39913e000089455035",
     0x2c9500b75f8d1687u},
    {"tq3", Side::value, 64, "f62b0b006e9e930061223b007b97a700", "bb36a639f83c000039462635",
     0x79d71a721790b931u},
    {"tq3", Side::value, 80, "bad3e0002684d9005daff800d9cac200", "2e360239583e00005c451335",
     0xde1aa91395fb32b4u},
    {"tq2", Side::key, 64, "cd97269d9d27a7a99167375900000000", "be372d3ae83d00005146b935",
     0xfd9b59777bd55642u},
    {"tq2", Side::key, 80, "e93596c4ad7a2795586e224c00000000", "c9369739e03e0000b045b535",
     0xed6a915e8caebc30u},
    {"tq2", Side::value, 64, "5195050097ffeb00babb9f0015015900", "e4367539553d0000cc454835",
     0xa295cdb632d7dc1du},
    {"tq2", Side::value, 80, "dd69d80091624600065756006ce5e800", "37360f39db3d00001645f034",
     0x8a6f2371939ac6b1u},
    {"dual6", Side::key, 64, "ced8c0f25238d7a4082f690800000000", "e0367739483d000000467435",
     0xbbd2c1947d320327u},
    {"dual6", Side::key, 80, "a060c704e7b05f58f0f8b2fc00000000", "453610390a3e000043453235",
     0x799399c895ecbb05u},
    {"dual5", Side::key, 64, "ef6460f1a91463d2041f3c8300000000", "e0367739483d000000467435",
     0x51abcda988e8c479u},
    {"dual5", Side::key, 80, "d8b063027b58af2c80fc51f600000000", "453610390a3e000043453235",
     0x705b805c848e3558u},
    {"dual4", Side::key, 64, "e7baa8f8dc89b9690a8f9e4900000000", "e0367739483d000000467435",
     0xc0b80a8d7467c272u},
    {"dual4", Side::key, 80, "6b50a901bda4df1640f638f300000000", "453610390a3e000043453235",
     0x02f2bc4d4c3c560fu},
    {"dual3", Side::key, 64, "0fc4c4bcda70d49c70a3f24800000000", "e0367739483d000000467435",
     0x8edac21171801fadu},
    {"dual3", Side::key, 80, "fda884f0e636bb97081fa49d00000000", "453610390a3e000043453235",
     0x8dc82ab9bd9e4cefu},
    {"q8_0", Side::key, 64, "9724eeec0f09dc07067f0400ea0a03f4", "",
     0x4cfe90ce6e441243u},
    {"q8_0", Side::value, 64, "9724eeec0f09dc07067f0400ea0a03f4", "",
     0x4cfe90ce6e441243u},
    {"q4_0", Side::key, 64, "8eb4a98967879a887880687879a79889", "",
     0x488661f2d356e61au},
    {"q4_0", Side::value, 64, "8eb4a98967879a887880687879a79889", "",
     0x488661f2d356e61au},
};
// clang-format on

// Sums of four random 16-bit numbers about 0, with a channel that stands out, tokens of five
// magnitudes and one of zeros. All of it is exact in f32.
std::vector<float> golden_rows(int dim) {
  std::vector<float> rows;
  for (int t = 0; t < 21; ++t) {
    for (int ch = 0; ch < dim; ++ch) {
      const std::uint64_t word = sign_word(20, t * dim + ch);
      int sum = -131070;
      for (int part = 0; part < 4; ++part) sum += static_cast<int>(word >> (16 * part) & 0xffffu);
      float x = std::ldexp(static_cast<float>(sum), -15);
      if (ch == 7) x += 8.0f;
      rows.push_back(t == 3 ? 0.0f : std::ldexp(x, t % 5 - 2));
    }
  }
  return rows;
}

std::uint64_t digest_of(const test::Sealed& sealed) {
  std::uint64_t digest = 0xcbf29ce484222325u;
  for (const test::Bytes* bytes : {&sealed.data, &sealed.scales}) {
    for (const std::byte byte : *bytes) {
      digest = (digest ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3u;
    }
  }
  return digest;
}

TEST(GoldenPlanes, BytesNeverChange) {
  for (const Golden& golden : kGolden) {
    const Codec* codec = find_codec(golden.codec);
    ASSERT_NE(codec, nullptr) << golden.codec;
    const TileShape shape = golden_shape(golden);
    SCOPED_TRACE(test::describe(*codec, shape));
    const test::Sealed sealed = test::encode(*codec, shape, golden_rows(golden.dim));
    const std::string data = test::hex(sealed.data);
    const std::string scales = test::hex(sealed.scales);
    EXPECT_EQ(data.substr(0, 32), golden.data);
    EXPECT_EQ(scales.substr(0, 24), golden.scales);
    EXPECT_EQ(digest_of(sealed), golden.digest);
  }
}

TEST(GoldenPlanes, CoversEveryCodecAndSideWithoutADefinition) {
  for (const Codec* codec : all_codecs()) {
    if (test::is_defined(*codec)) continue;
    for (const Side side : {Side::key, Side::value}) {
      if (!test::stores(*codec, {side, 16, 64, 0})) continue;
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
