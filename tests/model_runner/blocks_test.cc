#include "model/blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace quire::model {
namespace {

std::vector<std::byte> bytes_of(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

TEST(Blocks, EveryTypeExpandsAsGgmlDoes) {
  const auto path = std::filesystem::path(QUIRE_FIXTURES) / "blocks_truth.jsonl";
  std::ifstream file(path);
  int types = 0;
  for (std::string line; std::getline(file, line); ++types) {
    const nlohmann::json truth = nlohmann::json::parse(line);
    const std::string name = truth["type"];
    SCOPED_TRACE(name);
    const std::vector<std::byte> blocks = bytes_of(truth["blocks"]);
    const std::vector<std::byte> wanted = bytes_of(truth["values"]);
    const std::optional<BlockType> type = block_type_of(truth["number"]);
    ASSERT_TRUE(type);
    EXPECT_EQ(name_of(*type), name);
    const BlockShape shape = shape_of(*type);
    const std::size_t count = blocks.size() / static_cast<std::size_t>(shape.bytes);
    ASSERT_EQ(count * static_cast<std::size_t>(shape.bytes), blocks.size());
    std::vector<float> values(count * static_cast<std::size_t>(shape.elements));
    ASSERT_EQ(values.size() * sizeof(float), wanted.size());
    expand(*type, blocks, values);
    std::vector<float> expected(values.size());
    std::memcpy(expected.data(), wanted.data(), wanted.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(expected[i]))
          << "element " << i << ": " << values[i] << ", expected " << expected[i];
    }
  }
  EXPECT_EQ(types, 11);
}

TEST(Blocks, UnknownTypesAreNone) {
  for (const std::uint32_t number : {4u, 5u, 9u, 10u, 11u, 15u, 24u, 31u, 0xffffffffu}) {
    EXPECT_FALSE(block_type_of(number)) << number;
  }
}

TEST(Blocks, HalfFloatsOfEveryKind) {
  EXPECT_EQ(f16_to_f32(0x0000), 0.0f);
  EXPECT_TRUE(std::signbit(f16_to_f32(0x8000)));
  EXPECT_EQ(f16_to_f32(0x0001), 0x1p-24f);
  EXPECT_EQ(f16_to_f32(0x83ff), -1023 * 0x1p-24f);
  EXPECT_EQ(f16_to_f32(0x0400), 0x1p-14f);
  EXPECT_EQ(f16_to_f32(0x3c00), 1.0f);
  EXPECT_EQ(f16_to_f32(0xfbff), -65504.0f);
  EXPECT_EQ(f16_to_f32(0x7c00), INFINITY);
  EXPECT_EQ(f16_to_f32(0xfc00), -INFINITY);
  EXPECT_TRUE(std::isnan(f16_to_f32(0x7e00)));
}

}  // namespace
}  // namespace quire::model
