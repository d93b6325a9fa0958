// q8_0 and q4_0: the blocks of llama.cpp, byte for byte; see ggml.cc.
#pragma once

#include "codec/codec.h"

namespace quire {

extern const Codec kQ80Codec;
extern const Codec kQ40Codec;

}  // namespace quire
