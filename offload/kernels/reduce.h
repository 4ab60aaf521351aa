// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_KERNELS_REDUCE_H_
#define CASTOR_OFFLOAD_KERNELS_REDUCE_H_

// Sums with a fixed order, so that no layout, split or instruction set changes
// a bit. Pure functions, thread-safe.

#include <cstdint>
#include <span>

#include "chunk/base/dtype.h"

namespace castor {

// to[i] = round(((s0[i] + s1[i]) + s2[i]) + ...), added in fp32 in the order
// given, rounded once to `dtype` (kF32, kBF16 or kF16; NaN made canonical in
// each). `to` may be one of the sources; no range overlaps another otherwise,
// and all need element alignment only. REQUIRES: at least one source.
void SumInOrder(std::span<const void* const> sources, DType dtype,
                int64_t count, void* to);

// total[i] = round(total[i] + part[i]), as SumInOrder({total, part}).
void AddInto(void* total, const void* part, DType dtype, int64_t count);

// data[i] = round(data[i] * factor), multiplied in fp32, rounded as SumInOrder
// does.
void Scale(void* data, DType dtype, int64_t count, float factor);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_KERNELS_REDUCE_H_
