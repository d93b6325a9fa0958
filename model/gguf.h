// A GGUF file, mapped: its metadata by key and its tensors by name.
//
// Versions 2 and 3, little endian. Everything is checked when the file is opened: each length,
// count and offset lies inside the file, each tensor's type is known and its bytes are there. A
// damaged or hostile file is refused with a text that names the place. What is kept are views into
// the mapping and a name each, so opening takes memory in proportion to the header that is really
// there.
//
// Thread-safety: an open file is read-only. Views live as long as the Gguf they come from. A file
// that another program shortens while it is mapped ends this one, as with any mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/blocks.h"
#include "quire/result.hpp"

namespace quire::model {

// A tensor of the file. shape[0] is the fastest dimension: a matrix of `shape[1]` rows has
// `shape[0]` columns.
struct GgufTensor {
  std::string name;
  BlockType type = BlockType::f32;
  std::vector<std::int64_t> shape;
  std::int64_t elements = 0;
  std::span<const std::byte> data;
};

class Gguf {
 public:
  // Maps the file.
  static Result<Gguf> open(const std::string& path);
  // Reads bytes that the caller keeps alive; `name` is for error texts.
  static Result<Gguf> parse(std::span<const std::byte> bytes, const std::string& name);

  const std::string& name() const { return name_; }
  int version() const { return version_; }

  bool has(const std::string& key) const { return values_.contains(key); }
  // The value of a key: absent keys and other types are errors that name the key. A number may be
  // stored in any width; a whole number read by `integer` may not be a fraction, and fits int64.
  Result<std::int64_t> integer(const std::string& key) const;
  Result<double> number(const std::string& key) const;
  Result<bool> boolean(const std::string& key) const;
  Result<std::string> string(const std::string& key) const;
  Result<std::vector<std::int64_t>> integers(const std::string& key) const;
  Result<std::vector<double>> numbers(const std::string& key) const;
  Result<std::vector<std::string>> strings(const std::string& key) const;
  bool is_array(const std::string& key) const;

  // In the order of the file.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  // Null when there is none of that name.
  const GgufTensor* find(const std::string& name) const;

 private:
  struct Value {
    int type = 0;  // of the value, or of an array's items
    bool is_array = false;
    std::uint64_t count = 1;
    const std::byte* data = nullptr;  // of the first item
  };
  class Reader;

  Result<const Value*> scalar(const std::string& key) const;
  Result<const Value*> array(const std::string& key) const;

  std::string name_;
  int version_ = 0;
  std::shared_ptr<const void> mapping_;  // empty when the caller owns the bytes
  std::map<std::string, Value> values_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, std::size_t> tensor_of_name_;
};

}  // namespace quire::model
