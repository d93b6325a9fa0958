#include "base/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <bitset>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kTableClasses = 48;  // 64 bytes to 2^53
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kMapBytes = std::size_t{256} << 10;    // blocks from here on are mapped
constexpr std::size_t kRangeBytes = std::size_t{256} << 20;  // of addresses, for blocks of one size

std::size_t round_up(std::size_t bytes, std::size_t unit) noexcept {
  return (bytes + unit - 1) / unit * unit;
}

std::size_t system_page() noexcept {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

// Addresses without memory, aligned to a huge page; null when there are none.
std::byte* reserve(std::size_t bytes) noexcept {
  if (bytes > SIZE_MAX / 2) return nullptr;
  bytes = round_up(bytes, system_page());
  void* mapped = ::mmap(nullptr, bytes + kHugePage, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* start = static_cast<std::byte*>(mapped);
  const auto address = reinterpret_cast<std::uintptr_t>(mapped);
  const std::size_t before = round_up(address, kHugePage) - address;
  if (before > 0) ::munmap(start, before);
  if (before < kHugePage) ::munmap(start + before + bytes, kHugePage - before);
  return start + before;
}

// Puts memory behind reserved addresses, in huge pages where the system has them.
bool commit(std::byte* data, std::size_t bytes) noexcept {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (::mmap(data, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0) == MAP_FAILED) return false;
#if defined(MADV_HUGEPAGE)
  ::madvise(data, bytes, MADV_HUGEPAGE);
#endif
  return true;
}

// Makes a huge page of small ones that have come to fill it. A wish: a system that does not know
// this call does the same by itself, some time later.
void collapse(std::byte* page) noexcept {
#if defined(__linux__)
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, of Linux 6.1
  ::madvise(page, kHugePage, kCollapse);
#else
  static_cast<void>(page);
#endif
}

// Gives the memory back and keeps the addresses.
void decommit(std::byte* data, std::size_t bytes) noexcept {
  // First lets the system split huge pages of which this is a part. Without it, the part would be
  // of use to others only when the system runs short.
  ::madvise(data, bytes, MADV_FREE);
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
  if (::mmap(data, bytes, PROT_NONE, kFlags, -1, 0) == MAP_FAILED) {
    ::madvise(data, bytes, MADV_DONTNEED);
  }
}

// A range of addresses for blocks of one size that lie side by side, so that huge pages hold them:
// attend reads a piece of one block after the other, and small pages would cost a page walk each.
//
//     |used|used|hole|used|used|....no memory....|
//                              ^top
//
// Memory lies behind used places alone. The system makes a huge page only where all of it has
// memory, so the last one begins as small pages; once places fill it, it is collapsed.
class Range {
 public:
  Range(std::byte* start, std::size_t block_bytes) noexcept
      : start_(start), block_bytes_(block_bytes), places_(kRangeBytes / block_bytes) {}
  bool full() const noexcept { return used_count_ == places_; }
  bool empty() const noexcept { return used_count_ == 0; }

  // Requires: !full(). The lowest place, so that blocks lie close; null without memory.
  std::byte* take() noexcept {
    std::size_t place = 0;
    while (used_[place]) ++place;
    std::byte* block = start_ + place * block_bytes_;
    if (!commit(block, block_bytes_)) return nullptr;
    if (place >= top_) {
      const std::size_t page = place * block_bytes_ / kHugePage * kHugePage;
      const bool has_small = page < place * block_bytes_;
      if (has_small && page + kHugePage <= (place + 1) * block_bytes_) collapse(start_ + page);
      top_ = place + 1;
    }
    used_.set(place);
    ++used_count_;
    return block;
  }

  void give(std::byte* block) noexcept {
    const std::size_t place = static_cast<std::size_t>(block - start_) / block_bytes_;
    used_.reset(place);
    --used_count_;
    decommit(block, block_bytes_);
    while (top_ > 0 && !used_[top_ - 1]) --top_;
  }

 private:
  std::byte* start_;
  std::size_t block_bytes_;
  std::size_t places_;
  std::size_t used_count_ = 0;
  std::size_t top_ = 0;  // one more than the last used place
  std::bitset<kRangeBytes / kMapBytes> used_;
};

// Blocks of a huge page and more have a mapping of their own, those from kMapBytes on lie in
// ranges.
class SystemMemory : public MemorySource {
 public:
  void* allocate(std::size_t bytes) noexcept override {
    if (bytes < kMapBytes) return std::aligned_alloc(kAlignment, round_up(bytes, kAlignment));
    if (bytes < kHugePage) return allocate_in_range(round_up(bytes, system_page()));
    std::byte* data = reserve(bytes);
    if (data == nullptr || commit(data, bytes)) return data;
    ::munmap(data, bytes);
    return nullptr;
  }
  void release(void* data, std::size_t bytes) noexcept override {
    if (bytes < kMapBytes) {
      std::free(data);
    } else if (bytes < kHugePage) {
      release_in_range(static_cast<std::byte*>(data), round_up(bytes, system_page()));
    } else {
      ::munmap(data, bytes);
    }
  }

 private:
  // Block size and start. Ranges of a size stand in the order of their addresses.
  using RangeKey = std::pair<std::size_t, std::uintptr_t>;

  void* allocate_in_range(std::size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    auto at = ranges_.lower_bound({bytes, 0});
    while (at != ranges_.end() && at->first.first == bytes && at->second.full()) ++at;
    if (at == ranges_.end() || at->first.first != bytes) {
      std::byte* start = reserve(kRangeBytes);
      if (start == nullptr) return nullptr;
      try {
        const RangeKey key{bytes, reinterpret_cast<std::uintptr_t>(start)};
        at = ranges_.try_emplace(key, start, bytes).first;
      } catch (const std::bad_alloc&) {
        ::munmap(start, kRangeBytes);
        return nullptr;
      }
    }
    void* block = at->second.take();
    remove_if_empty(at);
    return block;
  }

  void release_in_range(std::byte* block, std::size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    const RangeKey key{bytes, reinterpret_cast<std::uintptr_t>(block)};
    const auto at = std::prev(ranges_.upper_bound(key));
    at->second.give(block);
    remove_if_empty(at);
  }

  void remove_if_empty(std::map<RangeKey, Range>::iterator at) noexcept {
    if (!at->second.empty()) return;
    ::munmap(reinterpret_cast<void*>(at->first.second), kRangeBytes);
    ranges_.erase(at);
  }

  std::mutex mutex_;  // all caches share the ranges
  std::map<RangeKey, Range> ranges_;
};

}  // namespace

MemorySource& system_memory() noexcept {
  // Never destroyed: caches may live as long as the program.
  alignas(SystemMemory) static std::byte place[sizeof(SystemMemory)];
  static SystemMemory* memory = new (place) SystemMemory;
  return *memory;
}

Error MemoryError::to_error(const char* operation) const {
  if (code == ErrorCode::over_limit) {
    return fail(code, "{}: the next {} bytes do not fit, {} are free of a limit of {}", operation,
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
  added.bytes = round_up(bytes, bytes < kMapBytes ? kAlignment : system_page());
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
