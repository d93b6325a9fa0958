// Memory is every byte a cache keeps: blocks of known sizes, a free list for each size, and one
// limit over their sum that is never exceeded, not even for a moment.
//
//     system --take--> used --give--> free --take--> used
//                                      |__shrink, or room needed elsewhere--> system
//
// Two kinds of blocks: those of page classes have the exact size they were registered with; tables
// come through the std::pmr interface and are rounded up to a power of two. Free blocks count as
// held, so `bytes_held` is what the source has really given.
//
// Blocks can be kept for the next begin (keep, then a Draw while it runs): other takers leave them
// alone.
//
// Thread-safety: none; callers hold the store's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <string>
#include <vector>

#include "quire/memory.hpp"
#include "quire/result.hpp"

namespace quire {

// Thrown by take when the limit, or the system, has no room. Becomes an Error at the surface.
class MemoryError : public std::bad_alloc {
 public:
  MemoryError(ErrorCode error_code, std::size_t asked, std::size_t held, std::size_t limit) noexcept
      : code(error_code), bytes_asked(asked), bytes_held(held), bytes_limit(limit) {}
  const char* what() const noexcept override { return "quire: no memory"; }
  // "<operation>: the next 4096 bytes do not fit, 1000 are free of a limit of 8192"
  Error to_error(const char* operation) const;

  ErrorCode code;
  std::size_t bytes_asked;
  std::size_t bytes_held;
  std::size_t bytes_limit;
};

enum class BlockClass : std::uint32_t {};

class Memory : public std::pmr::memory_resource {
 public:
  // `source` null: the system's own memory.
  Memory(MemorySource* source, std::size_t limit_bytes);
  ~Memory() override;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Registers a size for blocks that are all alike.
  BlockClass add_class(std::size_t bytes);

  // A block aligned to 64. Throws MemoryError; nothing has changed then.
  void* take(BlockClass block_class);
  void give(BlockClass block_class, void* block) noexcept;

  // How many blocks of each class to keep.
  class KeepList {
   public:
    void add(BlockClass block_class, std::size_t count);
    void add_table(std::size_t bytes, std::size_t count);

   private:
    friend class Memory;
    std::vector<std::size_t> counts_;  // [class]
  };
  // Keeps these free blocks for a Draw, instead of those kept before. Throws MemoryError; those
  // kept before are then kept still.
  void keep(const KeepList& wanted);
  // Makes kept blocks ordinary free blocks again.
  void forget_kept() noexcept;

  // While alive, take may use kept blocks. restore_kept says they came back, so that they are kept
  // again: for a begin that failed or a step that was dropped.
  class Draw {
   public:
    explicit Draw(Memory& memory);
    ~Draw();
    std::vector<std::uint32_t> release_kept();

   private:
    Memory& memory_;
    std::vector<std::uint32_t> kept_before_;
  };
  void restore_kept(const std::vector<std::uint32_t>& kept) noexcept;

  // Gives free blocks that are not kept back to the system; returns their bytes.
  std::size_t shrink() noexcept;

  // What a table of `bytes` takes.
  static std::size_t table_bytes(std::size_t bytes) noexcept;

  void set_limit(std::size_t limit_bytes) noexcept { limit_bytes_ = limit_bytes; }
  std::size_t bytes_limit() const noexcept { return limit_bytes_; }
  std::size_t bytes_held() const noexcept { return bytes_held_; }
  std::size_t bytes_free() const noexcept { return bytes_free_; }
  std::size_t bytes_used(BlockClass block_class) const noexcept;
  std::size_t blocks_used(BlockClass block_class) const noexcept;
  std::size_t blocks_free(BlockClass block_class) const noexcept;
  std::size_t bytes_used_tables() const noexcept;

 private:
  struct Class {
    std::size_t bytes = 0;
    void* free_list = nullptr;  // linked through the blocks' first word
    std::uint32_t free = 0;
    std::uint32_t used = 0;
    std::uint32_t kept = 0;
  };

  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }
  static std::size_t table_class(std::size_t bytes) noexcept;
  void* take_new(Class& c);
  void push_free(Class& c, void* block) noexcept;
  void* pop_free(Class& c) noexcept;

  MemorySource* source_;
  std::size_t limit_bytes_;
  std::size_t bytes_held_ = 0;
  std::size_t bytes_free_ = 0;
  bool drawing_ = false;
  bool any_kept_ = false;
  std::vector<Class> classes_;  // [0, kTableClasses) are powers of two, then page classes
};

// The system's memory: aligned allocation for blocks below 256 KiB, mappings for all others, so
// that they go back to the system when released. Both kinds of mapped blocks lie in huge pages
// where the system has them: those of 2 MiB and more are aligned to 2 MiB, smaller ones of one size
// lie side by side, in small pages until they fill a huge one. None takes more than its bytes.
//
// Thread-safety: any thread, any number of caches.
MemorySource& system_memory() noexcept;

}  // namespace quire
