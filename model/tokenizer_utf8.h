// UTF-8 as bytes: how long the character at the front of a text is, and whether it is one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace quire::model {

enum class Utf8 { whole, cut, invalid };

struct Utf8Front {
  Utf8 kind = Utf8::invalid;
  std::size_t bytes = 1;   // whole: of the character; cut: of all that is there; invalid: 1
  char32_t character = 0;  // whole only
};

// Looks at the front of a text that is not empty. `cut` is a beginning of a character that more
// bytes could complete. Overlong forms, surrogates and numbers above 10FFFF are invalid.
inline Utf8Front utf8_front(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {Utf8::whole, 1, lead};
  if (lead < 0xc2 || lead > 0xf4) return {};
  const std::size_t bytes = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  char32_t character = lead & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if (i == text.size()) return {Utf8::cut, i, 0};
    // The second byte decides about overlong forms, surrogates and the upper end.
    const unsigned least = i > 1 ? 0x80 : lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned most = i > 1 ? 0xbf : lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (byte(i) < least || byte(i) > most) return {};
    character = character << 6 | (byte(i) & 0x3f);
  }
  return {Utf8::whole, bytes, character};
}

// Text that comes in pieces, given on in whole characters.
//
// A piece that ends inside a character is held back until the rest comes: at most three bytes.
// Nothing is lost or changed: what was given on, and finish() at the end, are the bytes that came
// in. Bytes that cannot become a character are given on as they are.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes) {
    held_ += bytes;
    std::size_t front = 0;
    while (front < held_.size()) {
      const Utf8Front found = utf8_front(std::string_view(held_).substr(front));
      if (found.kind == Utf8::cut) break;
      front += found.bytes;
    }
    std::string ready = held_.substr(0, front);
    held_.erase(0, front);
    return ready;
  }

  // What is still held back. The stream is empty afterwards.
  std::string finish() { return std::exchange(held_, {}); }

 private:
  std::string held_;
};

}  // namespace quire::model
