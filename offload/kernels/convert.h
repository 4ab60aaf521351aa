// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_KERNELS_CONVERT_H_
#define CASTOR_OFFLOAD_KERNELS_CONVERT_H_

// Conversions between fp32 and the low-precision types: rounding to nearest
// even, denormals kept, one canonical NaN, the same bits on every path. Pure
// functions, thread-safe.

#include <cstdint>

#include "chunk/base/dtype.h"

namespace castor {

float BFloat16ToFloat(uint16_t bits);
uint16_t FloatToBFloat16(float value);

// `count` elements of `dtype` (kF32 or kBF16) at `from` widened to fp32.
void ConvertToFloat(const void* from, DType dtype, int64_t count, float* to);
// fp32 rounded to `dtype`.
void ConvertFromFloat(const float* from, int64_t count, DType dtype, void* to);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_KERNELS_CONVERT_H_
