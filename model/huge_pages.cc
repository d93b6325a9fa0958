#include "model/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace quire::model {
namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;

}  // namespace

void* HugePages::do_allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes > PTRDIFF_MAX - kPage) throw std::bad_alloc();
  const std::size_t whole = (bytes + kPage - 1) / kPage * kPage;
  void* const data = std::aligned_alloc(std::max(alignment, kPage), whole);
  if (data == nullptr) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
  ::madvise(data, whole, MADV_HUGEPAGE);  // a wish: small pages do as well
#endif
  return data;
}

void HugePages::do_deallocate(void* data, std::size_t, std::size_t) { std::free(data); }

bool HugePages::do_is_equal(const std::pmr::memory_resource& other) const noexcept {
  return dynamic_cast<const HugePages*>(&other) != nullptr;
}

}  // namespace quire::model
