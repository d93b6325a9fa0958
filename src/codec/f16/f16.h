// The f16 codec: every element rounded to IEEE binary16.
#pragma once

#include "codec/codec.h"

namespace quire {

extern const Codec kF16Codec;

}  // namespace quire
