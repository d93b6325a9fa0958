// A cache as text and as JSON.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cache/fixture.h"

namespace quire::test {
namespace {

CacheSpec printed_spec() {
  CacheSpec spec = pattern_spec({Pattern::causal(), Pattern::window(8, 16), Pattern::window(5),
                                 Pattern::chunked(32), Pattern::cross(), Pattern::causal()});
  spec.layers[0].rotation = Rotation::with_rope({});
  spec.layers[5].rotation = spec.layers[0].rotation;
  spec.layers[1].rotation = Rotation::none();
  spec.layers[1].codec = {"int8", "f16"};
  spec.layers[2].soft_cap = 30.0f;
  spec.layers[5].kv_of = 0;
  spec.max_tokens = 1000;
  spec.seed = std::uint64_t{1} << 63;
  spec.memory_limit_bytes = 1 << 20;
  return spec;
}

TEST(Print, JsonHoldsTheSpec) {
  const Cache cache = Cache::create(printed_spec()).value();
  const nlohmann::json json = nlohmann::json::parse(cache.json());
  EXPECT_EQ(json["spec"]["page_tokens"], 4);
  EXPECT_EQ(json["spec"]["rollback"], 8);
  EXPECT_EQ(json["spec"]["seed"], std::uint64_t{1} << 63);
  EXPECT_EQ(json["spec"]["max_tokens"], 1000);
  EXPECT_TRUE(json["spec"]["max_batch"].is_null());
  EXPECT_EQ(json["spec"]["groups"], 5);
  ASSERT_EQ(json["layers"].size(), 6u);
  const auto patterns = [&] {
    std::vector<std::string> all;
    for (const auto& layer : json["layers"]) all.push_back(layer["pattern"]);
    return all;
  }();
  EXPECT_EQ(patterns, (std::vector<std::string>{"causal", "window 8 of 16", "window 5",
                                                "chunked 32", "cross", "causal"}));
  const auto& layer = json["layers"][1];
  EXPECT_EQ(layer["key_codec"], "int8");
  EXPECT_EQ(layer["value_codec"], "f16");
  EXPECT_EQ(layer["row_type"], "f16");
  EXPECT_EQ(layer["kv_heads"], 2);
  EXPECT_EQ(layer["key_dim"], 4);
  EXPECT_EQ(layer["group"], 1);
  EXPECT_EQ(layer["rotation"], "none");
  EXPECT_EQ(json["layers"][0]["rotation"], "rope");
  EXPECT_EQ(json["layers"][2]["rotation"], "unknown");
  EXPECT_EQ(json["layers"][2]["soft_cap"], 30.0);
  EXPECT_EQ(json["layers"][0]["scale"], 0.5);
  EXPECT_EQ(json["layers"][5]["kv_of"], 0);
}

TEST(Print, JsonHoldsSequencesAndStats) {
  Cache cache = Cache::create(printed_spec()).value();
  const Sequence a = filled(cache, 10);
  const Sequence b = cache.open().value();
  Batch batch = batch_of(b, 5, 2);
  batch.cross.push_back({b.id(), 7, 5, 6});
  stepped(cache, batch).commit().value();
  const Step step = cache.begin(batch_of(a, 10, 1)).value();
  const nlohmann::json json = nlohmann::json::parse(cache.json());
  ASSERT_EQ(json["sequences"].size(), 2u);
  EXPECT_EQ(json["sequences"][0]["id"], static_cast<std::uint64_t>(a.id()));
  EXPECT_EQ(json["sequences"][0]["length"], 10);
  EXPECT_EQ(json["sequences"][0]["busy"], true);
  EXPECT_EQ(json["sequences"][1]["next_position"], 7);
  EXPECT_EQ(json["sequences"][1]["cross_length"], 7);
  EXPECT_EQ(json["sequences"][1]["busy"], false);
  EXPECT_EQ(json["sequences"][1]["exact"], true);
  const Stats stats = cache.stats();
  EXPECT_EQ(json["stats"]["bytes"], stats.bytes);
  EXPECT_EQ(json["stats"]["bytes_limit"], 1 << 20);
  EXPECT_EQ(json["stats"]["pages_used"], stats.pages_used);
  EXPECT_EQ(json["stats"]["open_steps"], 1);
  EXPECT_EQ(json["stats"]["tokens"], 12);
  EXPECT_EQ(json["stats"]["bits_per_value"], stats.bits_per_value);
}

TEST(Print, WithoutALimitJsonSaysNull) {
  const Cache cache = Cache::create(small_spec()).value();
  EXPECT_TRUE(nlohmann::json::parse(cache.json())["stats"]["bytes_limit"].is_null());
}

TEST(Print, TextHoldsTheFactsForPeople) {
  Cache cache = Cache::create(printed_spec()).value();
  filled(cache, 10);
  const std::string text = cache.text();
  for (const std::string& part :
       {std::string("6 layers"), std::string("5 groups"), std::string("pages of 4"),
        std::string("seed 9223372036854775808"), std::string("window 8 of 16"),
        std::string("chunked 32"), std::string("int8/f16"), std::string("of layer 0"),
        std::string("1 sequences with 10 tokens"), std::string("a limit of 1048576"),
        std::to_string(cache.stats().bytes) + " bytes"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

}  // namespace
}  // namespace quire::test
