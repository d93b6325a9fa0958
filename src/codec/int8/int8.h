// The int8 codec: one f16 scale per token, head and part, and codes from -127 to 127.
#pragma once

#include "codec/codec.h"

namespace quire {

extern const Codec kInt8Codec;

}  // namespace quire
