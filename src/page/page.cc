#include "page/page.h"

#include <new>

namespace quire {
namespace {

std::size_t header_size(int page_tokens) {
  return sizeof(Page) + static_cast<std::size_t>(page_tokens) * 2 * sizeof(std::int64_t);
}

}  // namespace

PagePool::PagePool(Memory& memory, int page_tokens, std::size_t rows_bytes,
                   std::size_t sealed_bytes)
    : memory_(memory),
      page_tokens_(page_tokens),
      rows_bytes_(rows_bytes),
      sealed_bytes_(sealed_bytes),
      header_bytes_((header_size(page_tokens) + 63) / 64 * 64),
      header_class_(memory.add_class(header_bytes_)),
      rows_class_(memory.add_class(rows_bytes)),
      sealed_class_(memory.add_class(sealed_bytes)) {}

Page* PagePool::make(int slots, std::int64_t first_ordinal) {
  auto* block = static_cast<std::byte*>(memory_.take(header_class_));
  Page* page = new (block) Page;
  page->slots = slots;
  page->first_ordinal = first_ordinal;
  const auto tokens = static_cast<std::size_t>(page_tokens_);
  page->positions = new (block + sizeof(Page)) std::int64_t[tokens]{};
  page->keys = new (block + sizeof(Page) + tokens * sizeof(std::int64_t)) std::uint64_t[tokens]{};
  return page;
}

void PagePool::add_rows(Page& page) {
  page.rows = static_cast<std::byte*>(memory_.take(rows_class_));
}

void PagePool::add_sealed(Page& page) {
  page.sealed = static_cast<std::byte*>(memory_.take(sealed_class_));
}

void PagePool::drop_rows(Page& page) noexcept {
  if (page.rows != nullptr) memory_.give(rows_class_, page.rows);
  page.rows = nullptr;
}

void PagePool::drop_sealed(Page& page) noexcept {
  if (page.sealed != nullptr) memory_.give(sealed_class_, page.sealed);
  page.sealed = nullptr;
}

void PagePool::release(Page& page) noexcept {
  if (--page.refs == 0) discard(page);
}

void PagePool::release_rows(Page& page) noexcept {
  if (--page.row_refs == 0) drop_rows(page);
}

void PagePool::discard(Page& page) noexcept {
  drop_rows(page);
  drop_sealed(page);
  memory_.give(header_class_, &page);
}

}  // namespace quire
