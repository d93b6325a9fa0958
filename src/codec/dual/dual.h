// dual3 to dual6: rotated keys with a norm for each token and a range for each channel; see
// dual.cc.
#pragma once

#include "codec/codec.h"

namespace quire {

extern const Codec kDual3Codec;
extern const Codec kDual4Codec;
extern const Codec kDual5Codec;
extern const Codec kDual6Codec;

}  // namespace quire
