// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_KERNELS_OPTIMIZER_KERNELS_H_
#define CASTOR_OFFLOAD_KERNELS_OPTIMIZER_KERNELS_H_

// The vector kernels behind OptimizerStep, one for each formula, each compiled
// for every instruction set in a file of its own. All update whole vectors, in
// the default floating-point mode that the caller has set, and return how many
// elements that were; types have been checked. Pure functions.

#include <cstdint>

#include "offload/kernels/optimizer.h"

namespace castor {

using OptimizerKernel = int64_t(const OptimizerBuffers& buffers, int64_t count,
                                const OptimizerScalars& scalars,
                                float grad_factor);

OptimizerKernel AdamVectors;  // Adam and AdamW
OptimizerKernel SgdVectors;   // without momentum
OptimizerKernel MomentumVectors;
OptimizerKernel LionVectors;

}  // namespace castor

#endif  // CASTOR_OFFLOAD_KERNELS_OPTIMIZER_KERNELS_H_
