// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_KERNELS_CONVERT_H_
#define CASTOR_OFFLOAD_KERNELS_CONVERT_H_

// Conversions between fp32 and the low-precision types. Values are rounded to
// nearest even; denormals are kept, and a NaN becomes the canonical NaN. Bits
// equal those of bfloat16.h and float16.h on every path and in every
// floating-point mode of the caller. Pure functions, thread-safe.

#include <cstdint>

#include "chunk/base/dtype.h"
#include "offload/kernels/numbers/bfloat16.h"

namespace castor {

// `count` elements of `dtype` (kF32, kBF16, kF16, kU8 or blocks of 8 bits) at
// `from` widened to fp32, exactly; a NaN of fp16 or of a block is made
// canonical. The ranges do not overlap and need element alignment only, blocks
// that of fp32, and begin with a block.
void ConvertToFloat(const void* from, DType dtype, int64_t count, float* to);

// fp32 rounded to one of these types, NaN made canonical in each. Blocks are
// written to the last one's end, with zeros past `count`. Of kU8 what is below
// 0 or NaN becomes 0, and what is above 255 becomes 255. The ranges do not
// overlap and need element alignment only.
void ConvertFromFloat(const float* from, int64_t count, DType dtype, void* to);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_KERNELS_CONVERT_H_
