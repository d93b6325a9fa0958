#if defined(__x86_64__)

#include "base/elements_avx512.h"
// After the lanes it is written with.
#include "base/convert_kernel.h"

namespace quire {

const ConvertRows kConvertAvx512[kDTypes][kDTypes] = {
    {convert<DType::f32, DType::f32>, convert<DType::f32, DType::f16>,
     convert<DType::f32, DType::bf16>},
    {convert<DType::f16, DType::f32>, convert<DType::f16, DType::f16>,
     convert<DType::f16, DType::bf16>},
    {convert<DType::bf16, DType::f32>, convert<DType::bf16, DType::f16>,
     convert<DType::bf16, DType::bf16>},
};

}  // namespace quire

#endif
