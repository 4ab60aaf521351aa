// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_KERNELS_OPTIMIZER_H_
#define CASTOR_OFFLOAD_KERNELS_OPTIMIZER_H_

// The optimizer step on the host: one fused pass that unscales and clips the
// gradient, updates the fp32 parameter and its moments (optimizer_math.h has
// the formulas) and writes the parameter back in low precision. An element gets
// the same bits on every instruction set, for every split of the work, and on a
// device; the caller's floating-point mode does not matter, denormals are kept
// and a NaN is stored as the canonical one of bfloat16.h. Pure functions,
// thread-safe on ranges that do not overlap.

#include <cstdint>

#include "chunk/base/dtype.h"
#include "offload/kernels/numbers/stochastic_rounding.h"
#include "offload/kernels/optimizer_math.h"
#include "offload/kernels/optimizer_options.h"

namespace castor {

// Computed in double, rounded once.
// REQUIRES: step >= 1 (the number of the step being made).
OptimizerScalars ComputeOptimizerScalars(const OptimizerOptions& options,
                                         int64_t step);

// How moments in bf16 and in blocks of 8 bits are rounded; the parameter itself
// always goes to nearest even, and is computed from the moments as they are
// before rounding.
struct MomentRounding {
  bool stochastic = false;  // else to nearest
  StochasticKey key = {};   // MakeStochasticKey(seed, parameter, step)
  // Where the buffers begin, in elements from the parameter's start.
  int64_t first_element = 0;
};

// That of a parameter's elements from `first_element` on, in its step `step`;
// `param` tells it from others.
MomentRounding MakeMomentRounding(const OptimizerOptions& options,
                                  uint64_t param, int64_t step,
                                  int64_t first_element);

struct OptimizerBuffers {
  const void* grad = nullptr;
  DType grad_dtype = DType::kF32;  // kF32, kBF16 or kF16
  float* param = nullptr;          // fp32 parameter or master weights
  // As many as MomentsOf() says, zero before the first step; others are not
  // looked at.
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  // Where new values go, all of them or none; null: over the old ones. On the
  // host alone.
  float* new_param = nullptr;
  void* new_exp_avg = nullptr;
  void* new_exp_avg_sq = nullptr;
  // kF32, kBF16 or kBlocks8, with which exp_avg_sq is of kBlocks8Positive.
  DType moment_dtype = DType::kF32;
  MomentRounding rounding = {};
  // Where the low-precision parameter goes; null when the parameter is fp32.
  void* low = nullptr;
  DType low_dtype = DType::kBF16;  // kBF16 or kF16
};

// The same buffers without their first `count` elements. REQUIRES: where
// moments are blocks, `count` is a multiple of kScaleBlock.
OptimizerBuffers SkipElements(const OptimizerBuffers& buffers, int64_t count);

// Updates `count` elements. `grad_factor` unscales, averages and clips: one
// multiply. Buffers do not overlap and need element alignment only, blocks that
// of fp32. Moments in blocks begin with a block, and are written to a block's
// end.
void OptimizerStep(const OptimizerBuffers& buffers, int64_t count,
                   const OptimizerScalars& scalars, float grad_factor);

// The same in plain scalar code: what the vector paths are tested against.
void OptimizerStepScalar(const OptimizerBuffers& buffers, int64_t count,
                         const OptimizerScalars& scalars, float grad_factor);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_KERNELS_OPTIMIZER_H_
