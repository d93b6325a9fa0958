// The f32 codec: rows as they came, in tiles.
#pragma once

#include "codec/codec.h"

namespace quire {

extern const Codec kF32Codec;

}  // namespace quire
