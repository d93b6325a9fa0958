// tq2 to tq6: rotated rows with the levels of a normal variable; see tq.cc.
#pragma once

#include "codec/codec.h"

namespace quire {

extern const Codec kTq2Codec;
extern const Codec kTq3Codec;
extern const Codec kTq4Codec;
extern const Codec kTq5Codec;
extern const Codec kTq6Codec;

}  // namespace quire
