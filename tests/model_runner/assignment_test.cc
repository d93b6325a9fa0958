#include "model/assignment.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace quire::model {
namespace {

std::string at(const std::string& path) { return fmt::format("@{}", path); }

TEST(Assignment, OnePairIsForAllLayers) {
  CacheSpec spec = CacheSpec::mha(3, 2, 64);
  find_assignment("balanced").value().apply_to(spec).value();
  for (const LayerSpec& layer : spec.layers) EXPECT_EQ(layer.codec, (CodecPair{"dual4", "tq4"}));
}

TEST(Assignment, EachLayerHasItsOwnPair) {
  const Assignment assignment = parse_assignment(R"({"version": 1, "model": "any", "other": [],
      "layers": ["dual4/tq3", "int8", "tiny"]})",
                                                 "file")
                                    .value();
  CacheSpec spec = CacheSpec::mha(3, 2, 64);
  assignment.apply_to(spec).value();
  EXPECT_EQ(spec.layers[0].codec, (CodecPair{"dual4", "tq3"}));
  EXPECT_EQ(spec.layers[1].codec, (CodecPair{"int8", "int8"}));
  EXPECT_EQ(spec.layers[2].codec, (CodecPair{"dual3", "tq3"}));
}

TEST(Assignment, AnotherNumberOfLayersIsRefusedAndNothingChanges) {
  const Assignment assignment{{}, {{"int8", "int8"}, {"int8", "int8"}}};
  for (const int layers : {1, 3}) {
    CacheSpec spec = CacheSpec::mha(layers, 2, 64);
    const Result<void> applied = assignment.apply_to(spec);
    ASSERT_FALSE(applied);
    EXPECT_EQ(applied.error().text,
              "codecs of 2 layers were given, the model has " + std::to_string(layers));
    for (const LayerSpec& layer : spec.layers) EXPECT_EQ(layer.codec, CodecPair{});
  }
}

TEST(Assignment, AFileIsNamedWithAnAt) {
  const std::string path = testing::TempDir() + "quire_assignment_test.json";
  std::ofstream(path) << R"({"version": 1, "layers": ["int8/f16"]})";
  EXPECT_EQ(find_assignment(at(path)).value(), (Assignment{{}, {{"int8", "f16"}}}));
  std::ofstream(path) << std::string((1 << 20) + 1, ' ');
  EXPECT_NE(find_assignment(at(path)).error().text.find("more than 1048576 bytes"),
            std::string::npos);
  std::remove(path.c_str());
  EXPECT_EQ(find_assignment(at(path)).error().text, path + ": No such file or directory");
  EXPECT_FALSE(find_assignment("@"));
  EXPECT_FALSE(find_assignment(at(testing::TempDir())));
  EXPECT_NE(find_assignment("f17").error().text.find("\"f17\""), std::string::npos);
}

TEST(Assignment, WrongContentIsNamed) {
  const auto expect = [](const std::string& content, const std::string& part) {
    const Result<Assignment> result = parse_assignment(content, "a.json");
    ASSERT_FALSE(result) << content;
    EXPECT_EQ(result.error().text.find("a.json: "), 0u) << result.error().text;
    EXPECT_NE(result.error().text.find(part), std::string::npos) << result.error().text;
  };
  expect("", "not JSON, byte 1 of 0");
  expect(R"({"version": 1, "layers": ["int8")", "not JSON, byte 33 of 32");
  expect(R"({"version": 1, "layers": ["int8"]} x)", "not JSON");
  expect("\xff", "not JSON");
  for (const char* content : {"3", "null", "[]", "\"int8\"", "{}", R"({"layers": ["int8"]})"}) {
    expect(content, "an object with \"version\" and \"layers\" is expected");
  }
  expect(R"({"version": 2, "layers": ["int8"]})", "version 2, only 1 is known");
  expect(R"({"version": "1", "layers": ["int8"]})", "version \"1\", only 1 is known");
  expect(R"({"version": "\ud83d", "layers": ["int8"]})", "not JSON");
  for (const char* layers : {"", R"(, "layers": "int8")", R"(, "layers": [])",
                             R"(, "layers": {"0": "int8"})", R"(, "layers": null)"}) {
    expect(std::string(R"({"version": 1)") + layers + "}", "\"layers\" is not a list of codecs");
  }
  expect(R"({"version": 1, "layers": ["int8", 4]})", "layer 1 is number, not a text");
  expect(R"({"version": 1, "layers": ["int8", "int9"]})", "layer 1: codec \"int9\"");
  expect(R"({"version": 1, "layers": ["tq4/dual4"]})", "dual4 encodes keys only");
}

}  // namespace
}  // namespace quire::model
