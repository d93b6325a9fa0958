#include "model/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace quire::model {
namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

void* HugePages::do_allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes > PTRDIFF_MAX - 2 * kPage || alignment > kPage) throw std::bad_alloc();
  const std::size_t whole = whole_pages(bytes);
  // A page too much, so that an aligned part can be kept.
  void* const mapped =
      ::mmap(nullptr, whole + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* const begin = static_cast<std::byte*>(mapped);
  const std::size_t past = reinterpret_cast<std::uintptr_t>(begin) % kPage;
  const std::size_t before = past == 0 ? 0 : kPage - past;
  std::byte* const data = begin + before;
  if (before > 0) ::munmap(begin, before);
  if (before < kPage) ::munmap(data + whole, kPage - before);
#if defined(MADV_HUGEPAGE)
  ::madvise(data, whole, MADV_HUGEPAGE);  // a wish: small pages do as well
#endif
  return data;
}

void HugePages::do_deallocate(void* data, std::size_t bytes, std::size_t) {
  ::munmap(data, whole_pages(bytes));
}

bool HugePages::do_is_equal(const std::pmr::memory_resource& other) const noexcept {
  return dynamic_cast<const HugePages*>(&other) != nullptr;
}

}  // namespace quire::model
