#include "noise.h"

#include <algorithm>
#include <bit>
#include <random>

namespace quire::tool {
namespace {

constexpr std::size_t kDrawn = 1000003;  // a prime: no shape has rows or pages that repeat

// Rounds towards zero; what is below the smallest normal number becomes zero.
// Requires: |number| < 65,504.
std::uint16_t to_f16(float number) {
  const auto bits = std::bit_cast<std::uint32_t>(number);
  const std::uint32_t sign = bits >> 16 & 0x8000;
  const std::uint32_t rest = bits & 0x7fffffff;
  constexpr std::uint32_t kSmallest = 113u << 23;  // 2^-14
  return static_cast<std::uint16_t>(rest < kSmallest ? sign : sign | (rest - (112u << 23)) >> 13);
}

// Rounds towards zero.
std::uint16_t to_bf16(float number) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(number) >> 16);
}

std::vector<std::uint16_t> normal(std::size_t count, std::uint16_t (*to_bits)(float)) {
  std::mt19937 engine(1);
  std::normal_distribution<float> distribution;
  std::vector<std::uint16_t> numbers(count);
  const std::size_t drawn = std::min(count, kDrawn);
  for (std::size_t i = 0; i < drawn; ++i) numbers[i] = to_bits(distribution(engine));
  for (std::size_t i = drawn; i < count; ++i) numbers[i] = numbers[i - drawn];
  return numbers;
}

}  // namespace

std::vector<std::uint16_t> normal_f16(std::size_t count) { return normal(count, to_f16); }
std::vector<std::uint16_t> normal_bf16(std::size_t count) { return normal(count, to_bf16); }

}  // namespace quire::tool
