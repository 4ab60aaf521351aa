// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_CKPT_TENSOR_DISTANCE_H_
#define CASTOR_TOOLS_COMMANDS_CKPT_TENSOR_DISTANCE_H_

// How far two runs of numbers of one type are from each other. Pure functions,
// thread-safe.

#include <cstdint>

#include "chunk/base/dtype.h"

namespace castor {

struct TensorDistance {
  int64_t elements = 0;   // compared
  int64_t differing = 0;  // whose bits differ
  int64_t nans = 0;       // of these, where either is not a number
  // Over those that are numbers. A ULP is a step to the next number of the
  // type; -0 and +0 are one apart.
  uint64_t max_ulp = 0;
  double max_difference = 0;
};

// Adds `count` elements of `a` and `b` to `distance`. Of types other than F32,
// BF16 and F16 only the bits are compared. REQUIRES: elements of whole bytes.
void AddDistance(const void* a, const void* b, DType dtype, int64_t count,
                 TensorDistance* distance);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_CKPT_TENSOR_DISTANCE_H_
