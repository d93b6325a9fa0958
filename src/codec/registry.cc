// The list of codecs. A new one is an include and a line here.
#include <string>
#include <vector>

#include "codec/bf16/bf16.h"
#include "codec/codec.h"
#include "codec/dual/dual.h"
#include "codec/f16/f16.h"
#include "codec/f32/f32.h"
#include "codec/fp8/fp8.h"
#include "codec/ggml/ggml.h"
#include "codec/int8/int8.h"
#include "codec/tq/tq.h"

namespace quire {
namespace {

// From the widest to the narrowest: floats, codes of rows, codes of pages, those of llama.cpp.
constexpr const Codec* kCodecs[] = {
    &kF32Codec,      //
    &kF16Codec,      //
    &kBf16Codec,     //
    &kFp8E4m3Codec,  //
    &kFp8E5m2Codec,  //
    &kInt8Codec,     //
    &kTq6Codec,      //
    &kTq5Codec,      //
    &kTq4Codec,      //
    &kTq3Codec,      //
    &kTq2Codec,      //
    &kDual6Codec,    //
    &kDual5Codec,    //
    &kDual4Codec,    //
    &kDual3Codec,    //
    &kQ80Codec,      //
    &kQ40Codec,      //
};

}  // namespace

std::span<const Codec* const> all_codecs() noexcept { return kCodecs; }

const Codec* find_codec(std::string_view name) noexcept {
  for (const Codec* codec : kCodecs) {
    if (name == codec->name) return codec;
  }
  return nullptr;
}

std::uint64_t head_seed(std::uint64_t seed, int layer, int head, Side side) noexcept {
  // The finaliser of splitmix64, once for each number.
  const auto mixed = [](std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  };
  for (const int number : {layer, head, static_cast<int>(side)}) {
    seed = mixed(seed + 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(number));
  }
  return seed;
}

std::vector<std::string> codec_names() {
  std::vector<std::string> names;
  names.reserve(all_codecs().size());
  for (const Codec* codec : all_codecs()) names.emplace_back(codec->name);
  return names;
}

}  // namespace quire
