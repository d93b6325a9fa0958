// Numbers as an engine might hand them in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire::tool {

// Normally distributed numbers as the bits of f16 or bf16, the same on every run. They repeat after
// about a million, which no codec and no attention sees.
std::vector<std::uint16_t> normal_f16(std::size_t count);
std::vector<std::uint16_t> normal_bf16(std::size_t count);

}  // namespace quire::tool
