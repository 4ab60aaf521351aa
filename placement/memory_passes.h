// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_MEMORY_PASSES_H_
#define CASTOR_PLACEMENT_MEMORY_PASSES_H_

// How many bytes of memory a pass over a chunk reads and writes. Bounds of a
// step, simulated steps and measured machines all count by these functions.
// Values and pure functions, thread-safe.

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"

namespace castor {

// An optimizer's pass over a chunk.
struct UpdatePass {
  DType grad = DType::kF32;
  DType param = DType::kF32;  // a type with less bits has a master in fp32
  DType state = DType::kF32;
  int states = 0;  // of the optimizer, of an element
};

// Gradients are read, values in fp32 and states read and written, and
// parameters beside masters written.
Bytes UpdateBytes(const UpdatePass& pass, Elements elements);

// AdamW in bf16, by which `castor probe` measures: 28 bytes an element.
inline constexpr UpdatePass kProbedUpdate = {DType::kBF16, DType::kBF16,
                                             DType::kF32, 2};

// `grad` bytes of a gradient are copied to their home, or added to the sum that
// is there.
Bytes DepositBytes(Bytes grad, bool adds);
// The squares of `grad` bytes of a gradient are summed up.
Bytes SquaresBytes(Bytes grad);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_MEMORY_PASSES_H_
