// Writes small GGUF files for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace quire::test {

class GgufWriter {
 public:
  explicit GgufWriter(std::uint32_t version = 3) : version_(version) {}

  template <typename T>
  void add(const std::string& key, T value) {
    begin_value(key, type_of(value));
    put(values_, value);
  }
  void add(const std::string& key, const char* value) { add_string(key, value); }
  void add(const std::string& key, const std::string& value) { add_string(key, value); }
  void add(const std::string& key, const std::vector<std::string>& items) {
    begin_array(key, 8, items.size());
    for (const std::string& item : items) put_string(values_, item);
  }
  template <typename T>
  void add(const std::string& key, const std::vector<T>& items) {
    begin_array(key, type_of(T{}), items.size());
    for (const T& item : items) put(values_, item);
  }
  void add_bool(const std::string& key, bool value) {
    begin_value(key, 7);
    put(values_, static_cast<std::uint8_t>(value));
  }
  // Any bytes after a key and a type, right or wrong.
  void add_raw(const std::string& key, std::uint32_t type, const std::vector<std::byte>& bytes) {
    begin_value(key, type);
    values_.insert(values_.end(), bytes.begin(), bytes.end());
  }

  // shape[0] is the fastest dimension.
  void add_tensor(const std::string& name, const std::vector<std::uint64_t>& shape,
                  std::uint32_t type, const std::vector<std::byte>& bytes) {
    pad(data_, 32);
    put_string(tensors_, name);
    put(tensors_, static_cast<std::uint32_t>(shape.size()));
    for (const std::uint64_t size : shape) put(tensors_, size);
    put(tensors_, type);
    put(tensors_, static_cast<std::uint64_t>(data_.size()));
    data_.insert(data_.end(), bytes.begin(), bytes.end());
    ++tensor_count_;
  }
  void add_f32(const std::string& name, const std::vector<std::uint64_t>& shape,
               const std::vector<float>& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    add_tensor(name, shape, 0, bytes);
  }

  // The header ends at header_bytes(); what follows is padding and data.
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> file = header();
    pad(file, 32);
    file.insert(file.end(), data_.begin(), data_.end());
    return file;
  }
  std::size_t header_bytes() const { return header().size(); }

 private:
  using Bytes = std::vector<std::byte>;

  static std::uint32_t type_of(std::uint8_t) { return 0; }
  static std::uint32_t type_of(std::int8_t) { return 1; }
  static std::uint32_t type_of(std::uint16_t) { return 2; }
  static std::uint32_t type_of(std::int16_t) { return 3; }
  static std::uint32_t type_of(std::uint32_t) { return 4; }
  static std::uint32_t type_of(std::int32_t) { return 5; }
  static std::uint32_t type_of(float) { return 6; }
  static std::uint32_t type_of(std::uint64_t) { return 10; }
  static std::uint32_t type_of(std::int64_t) { return 11; }
  static std::uint32_t type_of(double) { return 12; }

  template <typename T>
  static void put(Bytes& to, T value) {
    const auto* begin = reinterpret_cast<const std::byte*>(&value);
    to.insert(to.end(), begin, begin + sizeof value);
  }
  static void put_string(Bytes& to, const std::string& text) {
    put(to, static_cast<std::uint64_t>(text.size()));
    const auto* begin = reinterpret_cast<const std::byte*>(text.data());
    to.insert(to.end(), begin, begin + text.size());
  }
  static void pad(Bytes& to, std::size_t alignment) {
    to.resize((to.size() + alignment - 1) / alignment * alignment);
  }
  void begin_value(const std::string& key, std::uint32_t type) {
    put_string(values_, key);
    put(values_, type);
    ++value_count_;
  }
  void begin_array(const std::string& key, std::uint32_t type, std::size_t count) {
    begin_value(key, 9);
    put(values_, type);
    put(values_, static_cast<std::uint64_t>(count));
  }
  void add_string(const std::string& key, const std::string& value) {
    begin_value(key, 8);
    put_string(values_, value);
  }
  Bytes header() const {
    Bytes file = {std::byte{'G'}, std::byte{'G'}, std::byte{'U'}, std::byte{'F'}};
    put(file, version_);
    put(file, tensor_count_);
    put(file, value_count_);
    file.insert(file.end(), values_.begin(), values_.end());
    file.insert(file.end(), tensors_.begin(), tensors_.end());
    return file;
  }

  std::uint32_t version_;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t value_count_ = 0;
  Bytes values_;
  Bytes tensors_;
  Bytes data_;
};

}  // namespace quire::test
