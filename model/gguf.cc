#include "model/gguf.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "model/error.h"

namespace quire::model {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF numbers are read as they lie");

constexpr std::size_t kMostDims = 4;
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kMostAlignment = 1 << 20;

// Types of metadata, by their numbers in the file.
enum ValueType : int {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// Bytes of one value; 0 for strings and arrays, whose size is in the file.
constexpr std::uint64_t kValueBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

template <typename T>
T load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

bool is_real(int type) { return type == kF32 || type == kF64; }
bool is_number(int type) { return type != kBool && type != kString && type != kArray; }

// Requires: is_number(type).
double real_of(int type, const std::byte* data) {
  switch (type) {
    case kU8:
      return load<std::uint8_t>(data);
    case kI8:
      return load<std::int8_t>(data);
    case kU16:
      return load<std::uint16_t>(data);
    case kI16:
      return load<std::int16_t>(data);
    case kU32:
      return load<std::uint32_t>(data);
    case kI32:
      return load<std::int32_t>(data);
    case kF32:
      return load<float>(data);
    case kU64:
      return static_cast<double>(load<std::uint64_t>(data));
    case kI64:
      return static_cast<double>(load<std::int64_t>(data));
    default:
      return load<double>(data);
  }
}

// Requires: a whole number's type. False when it does not fit.
bool whole_of(int type, const std::byte* data, std::int64_t* out) {
  if (type == kU64 || type == kI64) {
    *out = load<std::int64_t>(data);
    return type == kI64 || *out >= 0;
  }
  *out = static_cast<std::int64_t>(real_of(type, data));  // at most 32 bits: exact
  return true;
}

}  // namespace

// Walks the bytes once, in order, and knows where it is.
class Gguf::Reader {
 public:
  Reader(Gguf& file, std::span<const std::byte> bytes) : file_(file), bytes_(bytes) {}

  Result<void> read();

 private:
  std::uint64_t left() const { return bytes_.size() - at_; }

  template <typename... Args>
  Error error(fmt::format_string<Args...> text, Args&&... args) const {
    return refuse("{}: at byte {} of {}: {}", file_.name_, at_, bytes_.size(),
                  fmt::format(text, std::forward<Args>(args)...));
  }

  template <typename T>
  Result<T> number(const char* what) {
    if (left() < sizeof(T)) {
      return error("{} needs {} bytes, {} are left", what, sizeof(T), left());
    }
    const T value = load<T>(bytes_.data() + at_);
    at_ += sizeof(T);
    return value;
  }

  Result<std::string_view> text(const char* what) {
    MODEL_TRY(const std::uint64_t length, number<std::uint64_t>(what));
    if (length > left()) {
      return error("{} of {} bytes, {} are left", what, length, left());
    }
    const auto* data = reinterpret_cast<const char*>(bytes_.data() + at_);
    at_ += length;
    return std::string_view(data, length);
  }

  // A count of things of at least `least_bytes` each, so that it is bounded by what is there.
  Result<std::uint64_t> count(const char* what, std::uint64_t least_bytes) {
    MODEL_TRY(const std::uint64_t found, number<std::uint64_t>(what));
    if (found > left() / least_bytes) {
      return error("{} is {}, the {} bytes that are left hold at most {}", what, found, left(),
                   left() / least_bytes);
    }
    return found;
  }

  Result<int> type(const std::string& key) {
    MODEL_TRY(const std::uint32_t found, number<std::uint32_t>("a value's type"));
    if (found >= std::size(kValueBytes)) {
      return error("{} has type {}, types are 0 to {}", key, found, std::size(kValueBytes) - 1);
    }
    return static_cast<int>(found);
  }

  Result<void> read_header();
  Result<void> read_value();
  Result<void> skip_items(const std::string& key, const Value& value);
  Result<GgufTensor> read_tensor();
  Result<void> place_tensors();

  Gguf& file_;
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t value_count_ = 0;
  std::vector<std::uint64_t> offsets_;  // of tensors, from the start of the data
};

Result<void> Gguf::Reader::read() {
  MODEL_CHECK(read_header());
  for (std::uint64_t i = 0; i < value_count_; ++i) {
    MODEL_CHECK(read_value());
  }
  for (std::uint64_t i = 0; i < tensor_count_; ++i) {
    MODEL_TRY(GgufTensor tensor, read_tensor());
    if (!file_.tensor_of_name_.emplace(tensor.name, file_.tensors_.size()).second) {
      return error("tensor {} comes twice", tensor.name);
    }
    file_.tensors_.push_back(std::move(tensor));
  }
  return place_tensors();
}

Result<void> Gguf::Reader::read_header() {
  if (left() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0) {
    return error("not a GGUF file: it does not begin with \"GGUF\"");
  }
  at_ = 4;
  MODEL_TRY(const std::uint32_t version, number<std::uint32_t>("the version"));
  if (version != 2 && version != 3) {
    return error("version {} (as little endian), known are 2 and 3", version);
  }
  file_.version_ = static_cast<int>(version);
  // A tensor: name's length, dimensions, type, offset. A value: key's length, type, one byte.
  MODEL_TRY(const std::uint64_t tensors, count("the number of tensors", 8 + 4 + 4 + 8));
  tensor_count_ = tensors;
  MODEL_TRY(const std::uint64_t values, count("the number of values", 8 + 4 + 1));
  value_count_ = values;
  return {};
}

Result<void> Gguf::Reader::read_value() {
  MODEL_TRY(const std::string_view found, text("a key"));
  const std::string key(found);
  Value value;
  MODEL_TRY(value.type, type(key));
  if (value.type == kArray) {
    value.is_array = true;
    MODEL_TRY(value.type, type(key));
    if (value.type == kArray) return error("{} is an array of arrays", key);
    MODEL_TRY(const std::uint64_t items,
              count("an array's length", value.type == kString ? 8 : kValueBytes[value.type]));
    value.count = items;
  }
  value.data = bytes_.data() + at_;
  MODEL_CHECK(skip_items(key, value));
  if (!file_.values_.emplace(key, value).second) return error("{} comes twice", key);
  return {};
}

Result<void> Gguf::Reader::skip_items(const std::string& key, const Value& value) {
  if (value.type == kString) {
    for (std::uint64_t i = 0; i < value.count; ++i) {
      MODEL_CHECK(text("a string"));
    }
    return {};
  }
  const std::uint64_t item_bytes = kValueBytes[value.type];
  if (value.count > left() / item_bytes) {
    return error("{} needs {} bytes, {} are left", key, item_bytes, left());
  }
  if (value.type == kBool) {
    for (std::uint64_t i = 0; i < value.count; ++i) {
      if (const auto byte = load<std::uint8_t>(value.data + i); byte > 1) {
        return error("{} is a truth value of {}, not 0 or 1", key, byte);
      }
    }
  }
  at_ += item_bytes * value.count;
  return {};
}

Result<GgufTensor> Gguf::Reader::read_tensor() {
  GgufTensor tensor;
  MODEL_TRY(const std::string_view name, text("a tensor's name"));
  tensor.name = std::string(name);
  MODEL_TRY(const std::uint32_t dims, number<std::uint32_t>("a tensor's dimensions"));
  if (dims < 1 || dims > kMostDims) {
    return error("tensor {} has {} dimensions, allowed are 1 to {}", tensor.name, dims, kMostDims);
  }
  // No tensor has more elements than eight per byte of the file, which bounds every product.
  const std::uint64_t most = std::uint64_t{8} * bytes_.size();
  std::uint64_t elements = 1;
  for (std::uint32_t d = 0; d < dims; ++d) {
    MODEL_TRY(const std::uint64_t size, number<std::uint64_t>("a tensor's size"));
    if (size < 1 || size > most / elements) {
      return error("tensor {} is {} long in dimension {}, the file holds at most {}", tensor.name,
                   size, d, most / elements);
    }
    elements *= size;
    tensor.shape.push_back(static_cast<std::int64_t>(size));
  }
  tensor.elements = static_cast<std::int64_t>(elements);
  MODEL_TRY(const std::uint32_t number_of_type, number<std::uint32_t>("a tensor's type"));
  const std::optional<BlockType> known = block_type_of(number_of_type);
  if (!known) {
    return error(
        "tensor {} has type {}; known are F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 "
        "Q5_1 Q4_K Q5_K Q6_K",
        tensor.name, number_of_type);
  }
  tensor.type = *known;
  const BlockShape block = shape_of(tensor.type);
  if (tensor.shape[0] % block.elements != 0) {
    return error("tensor {} has rows of {} elements, blocks of {} have {}", tensor.name,
                 tensor.shape[0], model::name_of(tensor.type), block.elements);
  }
  MODEL_TRY(const std::uint64_t offset, number<std::uint64_t>("a tensor's offset"));
  offsets_.push_back(offset);
  return tensor;
}

Result<void> Gguf::Reader::place_tensors() {
  std::uint64_t alignment = kDefaultAlignment;
  if (file_.has("general.alignment")) {
    MODEL_TRY(const std::int64_t given, file_.integer("general.alignment"));
    alignment = static_cast<std::uint64_t>(given);
    if (!std::has_single_bit(alignment) || alignment > kMostAlignment) {
      return error("general.alignment is {}, not a power of two up to {}", given, kMostAlignment);
    }
  }
  const std::uint64_t padding = (alignment - at_ % alignment) % alignment;
  if (file_.tensors_.empty()) return {};
  if (padding > left()) return error("the file ends before the tensors' data");
  const std::uint64_t begin = at_ + padding;
  const std::uint64_t size = bytes_.size() - begin;
  for (std::size_t i = 0; i < file_.tensors_.size(); ++i) {
    GgufTensor& tensor = file_.tensors_[i];
    const BlockShape block = shape_of(tensor.type);
    const std::uint64_t bytes = static_cast<std::uint64_t>(tensor.elements / block.elements) *
                                static_cast<std::uint64_t>(block.bytes);
    if (offsets_[i] % alignment != 0) {
      return error("tensor {} begins at byte {} of the data, which is aligned to {}", tensor.name,
                   offsets_[i], alignment);
    }
    if (offsets_[i] > size || bytes > size - offsets_[i]) {
      return error(
          "the file is cut short, or its header wrong: tensor {} has {} bytes from {} on, "
          "and there are {} of data",
          tensor.name, bytes, offsets_[i], size);
    }
    tensor.data = bytes_.subspan(begin + offsets_[i], bytes);
  }
  return {};
}

Result<Gguf> Gguf::parse(std::span<const std::byte> bytes, const std::string& name) {
  Gguf file;
  file.name_ = name;
  MODEL_CHECK(Reader(file, bytes).read());
  return file;
}

Result<Gguf> Gguf::open(const std::string& path) {
  const auto refused = [&](const char* what) {
    return refuse("{}: {}: {}", path, what, std::strerror(errno));
  };
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return refused("cannot be opened");
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    const Error error = refused("cannot be looked at");
    ::close(descriptor);
    return error;
  }
  const auto bytes = static_cast<std::size_t>(status.st_size);
  if (!S_ISREG(status.st_mode) || bytes == 0) {
    ::close(descriptor);
    return refuse("{}: not a file, or empty", path);
  }
  void* address = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const Error unmapped = refused("cannot be mapped");
  ::close(descriptor);
  if (address == MAP_FAILED) return unmapped;
  std::shared_ptr<const void> mapping(
      address, [bytes](const void* at) { ::munmap(const_cast<void*>(at), bytes); });
  Result<Gguf> file = parse({static_cast<const std::byte*>(address), bytes}, path);
  if (file) file->mapping_ = std::move(mapping);
  return file;
}

Result<const Gguf::Value*> Gguf::scalar(const std::string& key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return refuse("{}: no value {}", name_, key);
  if (found->second.is_array) return refuse("{}: {} is an array", name_, key);
  return &found->second;
}

Result<const Gguf::Value*> Gguf::array(const std::string& key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return refuse("{}: no value {}", name_, key);
  if (!found->second.is_array) return refuse("{}: {} is not an array", name_, key);
  return &found->second;
}

bool Gguf::is_array(const std::string& key) const {
  const auto found = values_.find(key);
  return found != values_.end() && found->second.is_array;
}

Result<std::int64_t> Gguf::integer(const std::string& key) const {
  MODEL_TRY(const Value* value, scalar(key));
  std::int64_t whole = 0;
  if (!is_number(value->type) || is_real(value->type) ||
      !whole_of(value->type, value->data, &whole)) {
    return refuse("{}: {} is not a whole number below 2^63", name_, key);
  }
  return whole;
}

Result<double> Gguf::number(const std::string& key) const {
  MODEL_TRY(const Value* value, scalar(key));
  if (!is_number(value->type)) {
    return refuse("{}: {} is not a number", name_, key);
  }
  const double real = real_of(value->type, value->data);
  if (!std::isfinite(real)) return refuse("{}: {} is {}", name_, key, real);
  return real;
}

Result<bool> Gguf::boolean(const std::string& key) const {
  MODEL_TRY(const Value* value, scalar(key));
  if (value->type != kBool) {
    return refuse("{}: {} is not a truth value", name_, key);
  }
  return load<std::uint8_t>(value->data) != 0;
}

Result<std::string> Gguf::string(const std::string& key) const {
  MODEL_TRY(const Value* value, scalar(key));
  if (value->type != kString) return refuse("{}: {} is not a text", name_, key);
  const auto* data = reinterpret_cast<const char*>(value->data + 8);
  return std::string(data, load<std::uint64_t>(value->data));
}

Result<std::vector<std::int64_t>> Gguf::integers(const std::string& key) const {
  MODEL_TRY(const Value* value, array(key));
  const int type = value->type;
  std::vector<std::int64_t> items;
  const bool whole = type == kBool || (is_number(type) && !is_real(type));
  for (std::uint64_t i = 0; whole && i < value->count; ++i) {
    const std::byte* item = value->data + i * kValueBytes[type];
    items.push_back(0);
    if (type == kBool) {
      items.back() = load<std::uint8_t>(item);
    } else if (!whole_of(type, item, &items.back())) {
      return refuse("{}: item {} of {} is not below 2^63", name_, i, key);
    }
  }
  if (!whole) return refuse("{}: {} is not an array of whole numbers", name_, key);
  return items;
}

Result<std::vector<double>> Gguf::numbers(const std::string& key) const {
  MODEL_TRY(const Value* value, array(key));
  const int type = value->type;
  if (!is_number(type)) {
    return refuse("{}: {} is not an array of numbers", name_, key);
  }
  std::vector<double> items;
  for (std::uint64_t i = 0; i < value->count; ++i) {
    items.push_back(real_of(type, value->data + i * kValueBytes[type]));
  }
  return items;
}

Result<std::vector<std::string>> Gguf::strings(const std::string& key) const {
  MODEL_TRY(const Value* value, array(key));
  if (value->type != kString) {
    return refuse("{}: {} is not an array of texts", name_, key);
  }
  std::vector<std::string> items;
  items.reserve(value->count);
  const std::byte* at = value->data;
  for (std::uint64_t i = 0; i < value->count; ++i) {
    const auto length = load<std::uint64_t>(at);
    items.emplace_back(reinterpret_cast<const char*>(at + 8), length);
    at += 8 + length;
  }
  return items;
}

const GgufTensor* Gguf::find(const std::string& name) const {
  const auto found = tensor_of_name_.find(name);
  return found == tensor_of_name_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace quire::model
