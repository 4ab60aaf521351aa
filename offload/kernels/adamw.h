// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_KERNELS_ADAMW_H_
#define CASTOR_OFFLOAD_KERNELS_ADAMW_H_

// AdamW (Loshchilov and Hutter 2019) as PyTorch computes it, in fp32 with
// separate multiplies and adds, IEEE division and square root, so that a
// parameter gets the same bits on every instruction set and for every split of
// the work:
//
//   g  = grad * grad_factor
//   p  = p * (1 - lr * weight_decay)
//   m  = m * beta1 + g * (1 - beta1)
//   v  = v * beta2 + (g * g) * (1 - beta2)
//   p  = p - step_size * (m / (sqrt(v) / sqrt(bias2) + eps))
//
// with step_size = lr / bias1, bias_i = 1 - beta_i^step; the scalars are
// computed once in double and rounded to fp32. A NaN is stored as the canonical
// one of bfloat16.h, and the caller's floating-point mode does not matter. Pure
// functions, thread-safe.

#include <cstdint>

#include "chunk/base/dtype.h"

namespace castor {

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
};

struct AdamWScalars {
  float decay = 1;
  float beta1 = 0;
  float one_minus_beta1 = 0;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  float step_size = 0;
  float sqrt_bias2 = 1;
  float eps = 0;
};

// REQUIRES: step >= 1 (the number of the step being made).
AdamWScalars ComputeAdamWScalars(const AdamWOptions& options, int64_t step);

struct AdamWBuffers {
  const void* grad = nullptr;
  DType grad_dtype = DType::kF32;  // kF32 or kBF16
  float* param = nullptr;          // fp32 parameter or master weights
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  // Where the low-precision parameter goes; null when the parameter is fp32.
  void* low = nullptr;
  DType low_dtype = DType::kBF16;  // kBF16
};

// One fused pass over `count` elements: unscale and clip (one multiply by
// `grad_factor`), update, low-precision write-back. Buffers do not overlap and
// need element alignment only.
void AdamWStep(const AdamWBuffers& buffers, int64_t count,
               const AdamWScalars& scalars, float grad_factor);

// The same in plain scalar code: what the vector paths are tested against.
void AdamWStepScalar(const AdamWBuffers& buffers, int64_t count,
                     const AdamWScalars& scalars, float grad_factor);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_KERNELS_ADAMW_H_
