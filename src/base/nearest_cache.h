// What the nearest cache of this processor is good for.
//
// Thread-safety: any thread.
#pragma once

#include <cstddef>

namespace quire {

// Bytes that are best fetched into the nearest cache while as many are multiplied, and not into the
// one behind: 0 where nothing is. AMD's processors with 48 KiB (Zen 5) take a third of them, and
// decode of int8 by one thread is a quarter faster for it. With 32 KiB (Zen 4) it is half as fast,
// and Intel's with 48 KiB (Sapphire Rapids), which can wait for fewer lines there, lose a tenth to
// a third.
std::size_t nearest_fetch_bytes() noexcept;

}  // namespace quire
