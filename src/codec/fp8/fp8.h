// The fp8 codecs: every element rounded to eight bits by itself, without a scale. Values beyond the
// largest finite one, 448 for E4M3 and 57344 for E5M2, saturate.
#pragma once

#include "codec/codec.h"

namespace quire {

extern const Codec kFp8E4m3Codec;
extern const Codec kFp8E5m2Codec;

}  // namespace quire
