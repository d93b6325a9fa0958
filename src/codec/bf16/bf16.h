// The bf16 codec: every element rounded to the upper half of an f32.
#pragma once

#include "codec/codec.h"

namespace quire {

extern const Codec kBf16Codec;

}  // namespace quire
