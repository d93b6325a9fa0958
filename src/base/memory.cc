#include "base/memory.h"

#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace quire {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kTableClasses = 48;  // 64 bytes to 2^53
constexpr std::size_t kMapBytes = std::size_t{2} << 20;
constexpr std::size_t kMapUnit = 4096;  // what the system maps at least

class SystemMemory : public MemorySource {
 public:
  void* allocate(std::size_t bytes) noexcept override {
    if (bytes < kMapBytes) return std::aligned_alloc(kAlignment, round_up(bytes));
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return data == MAP_FAILED ? nullptr : data;
  }
  void release(void* data, std::size_t bytes) noexcept override {
    if (bytes < kMapBytes) {
      std::free(data);
    } else {
      ::munmap(data, bytes);
    }
  }

 private:
  static std::size_t round_up(std::size_t bytes) noexcept {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
};

}  // namespace

MemorySource& system_memory() noexcept {
  static SystemMemory memory;
  return memory;
}

Error MemoryError::to_error(const char* operation) const {
  if (code == ErrorCode::over_limit) {
    return fail(code, "{}: {} bytes more are needed, {} are free of a limit of {}", operation,
                bytes_asked, bytes_limit > bytes_held ? bytes_limit - bytes_held : 0, bytes_limit);
  }
  return fail(code, "{}: the memory source has no {} bytes more, {} are held", operation,
              bytes_asked, bytes_held);
}

Memory::Memory(MemorySource* source, std::size_t limit_bytes)
    : source_(source != nullptr ? source : &system_memory()), limit_bytes_(limit_bytes) {
  classes_.resize(kTableClasses);
  for (std::size_t i = 0; i < kTableClasses; ++i) classes_[i].bytes = kAlignment << i;
}

Memory::~Memory() {
  forget_kept();
  shrink();
}

BlockClass Memory::add_class(std::size_t bytes) {
  Class added;
  const std::size_t unit = bytes < kMapBytes ? kAlignment : kMapUnit;
  added.bytes = (bytes + unit - 1) / unit * unit;
  classes_.push_back(added);
  return static_cast<BlockClass>(classes_.size() - 1);
}

std::size_t Memory::table_class(std::size_t bytes) noexcept {
  const std::size_t units = (bytes + kAlignment - 1) / kAlignment;
  return units <= 1 ? 0 : static_cast<std::size_t>(std::bit_width(units - 1));
}

std::size_t Memory::table_bytes(std::size_t bytes) noexcept {
  return kAlignment << table_class(bytes);
}

void* Memory::take(BlockClass block_class) {
  Class& c = classes_[static_cast<std::size_t>(block_class)];
  const std::uint32_t untouchable = drawing_ ? 0 : c.kept;
  if (c.free > untouchable) {
    void* block = pop_free(c);
    if (c.free < c.kept) c.kept = c.free;
    ++c.used;
    return block;
  }
  return take_new(c);
}

void* Memory::take_new(Class& c) {
  if (c.bytes > limit_bytes_ || bytes_held_ > limit_bytes_ - c.bytes) shrink();
  if (c.bytes > limit_bytes_ || bytes_held_ > limit_bytes_ - c.bytes) {
    throw MemoryError(ErrorCode::over_limit, c.bytes, bytes_held_, limit_bytes_);
  }
  void* block = source_->allocate(c.bytes);
  if (block == nullptr && shrink() > 0) block = source_->allocate(c.bytes);
  if (block == nullptr) {
    throw MemoryError(ErrorCode::out_of_memory, c.bytes, bytes_held_, limit_bytes_);
  }
  bytes_held_ += c.bytes;
  ++c.used;
  return block;
}

void Memory::give(BlockClass block_class, void* block) noexcept {
  Class& c = classes_[static_cast<std::size_t>(block_class)];
  --c.used;
  push_free(c, block);
}

void Memory::push_free(Class& c, void* block) noexcept {
  std::memcpy(block, &c.free_list, sizeof c.free_list);
  c.free_list = block;
  ++c.free;
  bytes_free_ += c.bytes;
}

void* Memory::pop_free(Class& c) noexcept {
  void* block = c.free_list;
  std::memcpy(&c.free_list, block, sizeof c.free_list);
  --c.free;
  bytes_free_ -= c.bytes;
  return block;
}

void Memory::KeepList::add(BlockClass block_class, std::size_t count) {
  const auto index = static_cast<std::size_t>(block_class);
  if (counts_.size() <= index) counts_.resize(index + 1);
  counts_[index] += count;
}

void Memory::KeepList::add_table(std::size_t bytes, std::size_t count) {
  add(static_cast<BlockClass>(table_class(bytes)), count);
}

void Memory::keep(const KeepList& wanted) {
  std::vector<std::uint32_t> before;
  before.reserve(classes_.size());
  for (const Class& c : classes_) before.push_back(c.kept);
  const auto count_of = [&](std::size_t i) {
    return i < wanted.counts_.size() ? wanted.counts_[i] : 0;
  };
  // Said at once when it cannot be, not after all other free blocks have been given up for it.
  std::size_t total = 0;
  for (std::size_t i = 0; i < classes_.size(); ++i) total += count_of(i) * classes_[i].bytes;
  if (total > limit_bytes_) {
    throw MemoryError(ErrorCode::over_limit, total, bytes_held_, limit_bytes_);
  }
  try {
    // Each is kept as soon as it is there: at the limit, take_new gives free blocks that are not
    // kept back to the system. Blocks pass through "used" so that its accounting is the only one.
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      for (Class& c = classes_[i]; c.kept < count_of(i); ++c.kept) {
        if (c.free == c.kept) give(static_cast<BlockClass>(i), take_new(c));
      }
    }
  } catch (...) {
    for (std::size_t i = 0; i < classes_.size(); ++i) classes_[i].kept = before[i];
    throw;
  }
  any_kept_ = false;
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    classes_[i].kept = static_cast<std::uint32_t>(count_of(i));
    any_kept_ = any_kept_ || classes_[i].kept > 0;
  }
}

void Memory::forget_kept() noexcept {
  for (Class& c : classes_) c.kept = 0;
  any_kept_ = false;
}

Memory::Draw::Draw(Memory& memory) : memory_(memory) {
  if (memory_.any_kept_) {
    kept_before_.reserve(memory_.classes_.size());
    for (const Class& c : memory_.classes_) kept_before_.push_back(c.kept);
  }
  memory_.drawing_ = true;
}

Memory::Draw::~Draw() { memory_.drawing_ = false; }

std::vector<std::uint32_t> Memory::Draw::release_kept() { return std::move(kept_before_); }

void Memory::restore_kept(const std::vector<std::uint32_t>& kept) noexcept {
  for (std::size_t i = 0; i < kept.size(); ++i) {
    Class& c = classes_[i];
    const std::uint32_t wanted = kept[i] < c.free ? kept[i] : c.free;
    if (wanted > c.kept) c.kept = wanted;
  }
}

std::size_t Memory::shrink() noexcept {
  std::size_t bytes = 0;
  for (Class& c : classes_) {
    while (c.free > c.kept) {
      source_->release(pop_free(c), c.bytes);
      bytes += c.bytes;
    }
  }
  bytes_held_ -= bytes;
  return bytes;
}

std::size_t Memory::bytes_used(BlockClass block_class) const noexcept {
  const Class& c = classes_[static_cast<std::size_t>(block_class)];
  return c.bytes * c.used;
}

std::size_t Memory::blocks_used(BlockClass block_class) const noexcept {
  return classes_[static_cast<std::size_t>(block_class)].used;
}

std::size_t Memory::blocks_free(BlockClass block_class) const noexcept {
  return classes_[static_cast<std::size_t>(block_class)].free;
}

std::size_t Memory::bytes_used_tables() const noexcept {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < kTableClasses; ++i) bytes += classes_[i].bytes * classes_[i].used;
  return bytes;
}

void* Memory::do_allocate(std::size_t bytes, std::size_t) {
  return take(static_cast<BlockClass>(table_class(bytes)));
}

void Memory::do_deallocate(void* block, std::size_t bytes, std::size_t) {
  give(static_cast<BlockClass>(table_class(bytes)), block);
}

}  // namespace quire
