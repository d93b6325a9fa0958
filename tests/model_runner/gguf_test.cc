#include "model/gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/seed.h"
#include "gguf_writer.h"
#include "tokenizer_fixture.h"

namespace quire::model {
namespace {

using quire::test::GgufWriter;
using test::default_model;
using Bytes = std::vector<std::byte>;

GgufWriter small_file(std::uint32_t version = 3) {
  GgufWriter writer(version);
  writer.add("u8", std::uint8_t{200});
  writer.add("i8", std::int8_t{-100});
  writer.add("u16", std::uint16_t{60000});
  writer.add("i16", std::int16_t{-30000});
  writer.add("u32", std::uint32_t{4000000000});
  writer.add("i32", std::int32_t{-2000000000});
  writer.add("u64", std::uint64_t{1} << 62);
  writer.add("i64", -(std::int64_t{1} << 62));
  writer.add("huge", std::uint64_t{1} << 63);
  writer.add("f32", 0.5f);
  writer.add("f64", -0.25);
  writer.add("endless", INFINITY);
  writer.add_bool("yes", true);
  writer.add_bool("no", false);
  writer.add("text", "some words");
  writer.add("empty", "");
  writer.add("texts", std::vector<std::string>{"a", "", "longer"});
  writer.add("wholes", std::vector<std::int32_t>{-1, 0, 7});
  writer.add("reals", std::vector<float>{0.5f, -2});
  writer.add("none", std::vector<std::uint64_t>{});
  writer.add_f32("vector", {3}, {1, 2, 3});
  writer.add_tensor("matrix", {32, 2}, 8, Bytes(2 * 34));
  return writer;
}

Result<Gguf> parse(const Bytes& bytes) { return Gguf::parse(bytes, "test"); }

// The error of a file that must be refused, or "".
std::string refusal(const Bytes& bytes) {
  const Result<Gguf> file = parse(bytes);
  return file ? "" : file.error().text;
}

TEST(Gguf, ValuesOfEveryType) {
  for (const std::uint32_t version : {2u, 3u}) {
    const Bytes bytes = small_file(version).bytes();
    const Gguf file = parse(bytes).value();
    EXPECT_EQ(file.version(), static_cast<int>(version));
    EXPECT_EQ(file.integer("u8").value(), 200);
    EXPECT_EQ(file.integer("i8").value(), -100);
    EXPECT_EQ(file.integer("u16").value(), 60000);
    EXPECT_EQ(file.integer("i16").value(), -30000);
    EXPECT_EQ(file.integer("u32").value(), 4000000000);
    EXPECT_EQ(file.integer("i32").value(), -2000000000);
    EXPECT_EQ(file.integer("u64").value(), std::int64_t{1} << 62);
    EXPECT_EQ(file.integer("i64").value(), -(std::int64_t{1} << 62));
    EXPECT_EQ(file.number("f32").value(), 0.5);
    EXPECT_EQ(file.number("f64").value(), -0.25);
    EXPECT_EQ(file.number("u16").value(), 60000.0);
    EXPECT_EQ(file.number("huge").value(), 0x1p63);
    EXPECT_TRUE(file.boolean("yes").value());
    EXPECT_FALSE(file.boolean("no").value());
    EXPECT_EQ(file.string("text").value(), "some words");
    EXPECT_EQ(file.string("empty").value(), "");
    EXPECT_EQ(file.strings("texts").value(), (std::vector<std::string>{"a", "", "longer"}));
    EXPECT_EQ(file.integers("wholes").value(), (std::vector<std::int64_t>{-1, 0, 7}));
    EXPECT_EQ(file.numbers("reals").value(), (std::vector<double>{0.5, -2}));
    EXPECT_EQ(file.numbers("wholes").value(), (std::vector<double>{-1, 0, 7}));
    EXPECT_TRUE(file.integers("none").value().empty());
    EXPECT_TRUE(file.has("u8") && file.is_array("none"));
    EXPECT_FALSE(file.has("vector") || file.is_array("u8") || file.is_array("absent"));
  }
}

TEST(Gguf, AValueOfAnotherTypeIsRefusedByName) {
  const Bytes bytes = small_file().bytes();
  const Gguf file = parse(bytes).value();
  const auto refused = [](const auto& result, const std::string& part) {
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().text.find(part), std::string::npos) << result.error().text;
  };
  refused(file.integer("absent"), "no value absent");
  refused(file.integer("f32"), "f32 is not a whole number");
  refused(file.integer("huge"), "huge is not a whole number below 2^63");
  refused(file.integer("text"), "text");
  refused(file.integer("wholes"), "wholes is an array");
  refused(file.number("yes"), "yes is not a number");
  refused(file.number("endless"), "endless is inf");
  refused(file.boolean("u8"), "u8 is not a truth value");
  refused(file.string("u8"), "u8 is not a text");
  refused(file.strings("text"), "text is not an array");
  refused(file.strings("wholes"), "wholes is not an array of texts");
  refused(file.integers("reals"), "reals is not an array of whole numbers");
  refused(file.numbers("texts"), "texts is not an array of numbers");
  refused(file.numbers("absent"), "no value absent");
}

TEST(Gguf, TensorsLieWhereTheFileSays) {
  const Bytes bytes = small_file().bytes();
  const Gguf file = parse(bytes).value();
  ASSERT_EQ(file.tensors().size(), 2u);
  const GgufTensor* vector = file.find("vector");
  ASSERT_NE(vector, nullptr);
  EXPECT_EQ(vector, &file.tensors()[0]);
  EXPECT_EQ(vector->shape, (std::vector<std::int64_t>{3}));
  EXPECT_EQ(vector->elements, 3);
  std::vector<float> values(3);
  expand(vector->type, vector->data, values);
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
  const GgufTensor* matrix = file.find("matrix");
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->type, BlockType::q8_0);
  EXPECT_EQ(matrix->shape, (std::vector<std::int64_t>{32, 2}));
  EXPECT_EQ(matrix->data.size(), 68u);
  EXPECT_EQ(matrix->data.data() + 68, bytes.data() + bytes.size());
  EXPECT_EQ(file.find("absent"), nullptr);
}

TEST(Gguf, AMappedFileIsTheSame) {
  const Bytes bytes = small_file().bytes();
  const auto path = std::filesystem::temp_directory_path() /
                    ("quire_gguf_" + std::to_string(std::random_device{}()) + ".gguf");
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  {
    Result<Gguf> opened = Gguf::open(path.string());
    std::filesystem::remove(path);
    const Gguf file = std::move(opened).value();  // moved: views stay
    EXPECT_EQ(file.string("text").value(), "some words");
    std::vector<float> values(3);
    expand(BlockType::f32, file.find("vector")->data, values);
    EXPECT_EQ(values[2], 3);
  }
  EXPECT_NE(Gguf::open(path.string()).error().text.find("cannot be opened"), std::string::npos);
  EXPECT_NE(Gguf::open(path.parent_path().string()).error().text.find("not a file"),
            std::string::npos);
}

TEST(Gguf, FaultsAreNamed) {
  const auto expect = [](const Bytes& bytes, const std::string& part) {
    EXPECT_NE(refusal(bytes).find(part), std::string::npos) << refusal(bytes);
  };
  const auto with = [](auto&& change) {
    GgufWriter writer;
    change(writer);
    return writer.bytes();
  };
  expect({}, "does not begin with \"GGUF\"");
  expect(Bytes(64), "does not begin with \"GGUF\"");
  for (const std::uint32_t version : {0u, 1u, 4u, 0x03000000u}) {
    expect(GgufWriter(version).bytes(), "known are 2 and 3");
  }
  expect(with([](GgufWriter& w) { w.add("k", 1.0f), w.add("k", 1.0f); }), "k comes twice");
  expect(with([](GgufWriter& w) { w.add_raw("k", 13, Bytes(8)); }), "k has type 13");
  expect(with([](GgufWriter& w) { w.add_raw("k", 7, Bytes(1, std::byte{2})); }), "truth value");
  Bytes nested(12);
  nested[0] = std::byte{9};
  expect(with([&](GgufWriter& w) { w.add_raw("k", 9, nested); }), "array of arrays");
  Bytes endless(12, std::byte{0xff});
  std::fill(endless.begin(), endless.begin() + 4, std::byte{0});
  expect(with([&](GgufWriter& w) { w.add_raw("k", 9, endless); }), "an array's length");
  expect(with([&](GgufWriter& w) { w.add_raw("k", 8, Bytes(8, std::byte{0xff})); }), "a string of");
  expect(with([](GgufWriter& w) { w.add("general.alignment", std::uint32_t{24}); }),
         "general.alignment is 24");
  expect(with([](GgufWriter& w) { w.add_f32("t", {1}, {1}), w.add_f32("t", {1}, {1}); }),
         "tensor t comes twice");
  expect(with([](GgufWriter& w) { w.add_tensor("t", {}, 0, Bytes(4)); }), "0 dimensions");
  Bytes cut = with([](GgufWriter& w) { w.add_f32("t", {64}, std::vector<float>(64)); });
  cut.pop_back();
  expect(cut, "the file is cut short, or its header wrong: tensor t has 256 bytes from 0 on");
  expect(with([](GgufWriter& w) {
           w.add_tensor("t", {1, 1, 1, 1, 1}, 0, Bytes(4));
         }),
         "5 dimensions");
  expect(with([](GgufWriter& w) { w.add_tensor("t", {0}, 0, Bytes(4)); }), "is 0 long");
  expect(with([](GgufWriter& w) {
           w.add_tensor("t", {std::uint64_t{1} << 33, std::uint64_t{1} << 33}, 0, Bytes(4));
         }),
         "is 8589934592 long");
  expect(with([](GgufWriter& w) { w.add_tensor("t", {8}, 16, Bytes(8)); }), "has type 16");
  expect(with([](GgufWriter& w) { w.add_tensor("t", {33}, 8, Bytes(68)); }), "rows of 33");
  expect(with([](GgufWriter& w) { w.add_tensor("t", {8}, 0, Bytes(28)); }), "has 32 bytes");
}

// Reads all that a reader of the file would; nothing may crash or take much memory.
void use(const Bytes& bytes) {
  const Result<Gguf> file = parse(bytes);
  if (!file) {
    EXPECT_FALSE(file.error().text.empty());
    return;
  }
  for (const char* key : {"u8", "huge", "f64", "yes", "text", "texts", "wholes", "reals",
                          "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"}) {
    (void)file->integer(key), (void)file->number(key), (void)file->boolean(key);
    (void)file->string(key), (void)file->strings(key);
    (void)file->integers(key), (void)file->numbers(key);
  }
  for (const GgufTensor& tensor : file->tensors()) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements));
    expand(tensor.type, tensor.data, values);
  }
}

TEST(Gguf, EveryTruncationIsRefused) {
  const Bytes bytes = small_file().bytes();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const Bytes part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_NE(refusal(part), "") << size;
  }
}

TEST(Gguf, DamagedFilesDoNoHarm) {
  std::mt19937_64 random(quire::test::announce_seed());
  const Bytes bytes = small_file().bytes();
  const std::size_t header = small_file().header_bytes();
  for (int round = 0; round < 20000; ++round) {
    Bytes damaged = bytes;
    for (std::uint64_t i = 0; i <= random() % 4; ++i) {
      const std::byte value{static_cast<std::uint8_t>(random() % 3 == 0 ? 0xff : random())};
      damaged[random() % header] = value;
    }
    if (random() % 8 == 0) damaged.resize(random() % damaged.size());
    use(damaged);
  }
}

TEST(Gguf, TheRealHeaderDamagedDoesNoHarm) {
  const std::optional<std::string> path = default_model();
  if (!path) GTEST_SKIP() << test::kNoModel;
  Bytes bytes(1800000);  // the header and the first rows of the first tensor
  std::ifstream(*path, std::ios::binary).read(reinterpret_cast<char*>(bytes.data()), 1800000);
  EXPECT_NE(refusal(bytes).find("tensor token_embd.weight"), std::string::npos);
  std::mt19937_64 random(quire::test::announce_seed());
  for (int round = 0; round < 100; ++round) {
    Bytes damaged = bytes;
    // Half of the damage where values begin, where lengths are thicker.
    const std::size_t range = round % 2 == 0 ? 4096 : bytes.size();
    for (int i = 0; i < 4; ++i) damaged[random() % range] = static_cast<std::byte>(random());
    EXPECT_NE(refusal(damaged), "");
  }
}

}  // namespace
}  // namespace quire::model
