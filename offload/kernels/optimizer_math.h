// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_KERNELS_OPTIMIZER_MATH_H_
#define CASTOR_OFFLOAD_KERNELS_OPTIMIZER_MATH_H_

// One element's update, for each optimizer, as PyTorch computes it (torch.optim
// Adam, AdamW and SGD; Lion as in Chen et al. 2023), in fp32 with every
// multiplication rounded before it is added and correctly rounded division and
// square root. The same code is the reference for vector code on the host and
// the body of the kernel on a device: the bits are the same everywhere. A
// gradient comes in already multiplied by its factor; what comes out may be any
// NaN, which storing makes canonical. Pure functions, thread-safe. Part of the
// optimizers' options (optimizer_options.h).

#include <cstdint>

#include "offload/kernels/numbers/host_device.h"

namespace castor {

enum class OptimizerKind : uint8_t {
  kAdam,   // weight decay added to the gradient
  kAdamW,  // weight decay apart from it (Loshchilov and Hutter 2019)
  kSgd,    // with momentum or without
  kLion,
  kCustom,  // the program's own, which nothing here computes
};

// What one step's updates are computed with: fp32, rounded once from what
// ComputeOptimizerScalars (optimizer.h) has in double. Each kind uses some.
struct OptimizerScalars {
  OptimizerKind kind = OptimizerKind::kAdamW;
  bool nesterov = false;
  float l2 = 0;            // of the parameter, added to the gradient
  float decay = 1;         // the parameter's factor
  float step_size = 0;     // Adam: lr / (1 - beta1^step); else lr
  float beta1 = 0;         // SGD: momentum; 0: there is no moment
  float grad_weight1 = 0;  // 1 - beta1; SGD: 1 - dampening, at step 1: 1
  float beta2 = 0;
  float grad_weight2 = 0;  // 1 - beta2
  float sqrt_bias2 = 1;    // sqrt(1 - beta2^step)
  float eps = 0;
};

// Adam and AdamW:
//   g = g + l2 * p         unless l2 is zero
//   m = m * beta1 + g * (1 - beta1)
//   v = v * beta2 + (g * g) * (1 - beta2)
//   p = p * decay - step_size * (m / (sqrt(v) / sqrt_bias2 + eps))
CASTOR_HOST_DEVICE inline void AdamUpdate(const OptimizerScalars& s, float g,
                                          float* p, float* m, float* v) {
  if (s.l2 != 0) g = g + *p * s.l2;
  *m = *m * s.beta1 + g * s.grad_weight1;
  *v = *v * s.beta2 + (g * g) * s.grad_weight2;
  const float denominator = SquareRoot(*v) / s.sqrt_bias2 + s.eps;
  *p = *p * s.decay - s.step_size * (*m / denominator);
}

// SGD without momentum:
//   g = g + l2 * p         unless l2 is zero
//   p = p - lr * g
CASTOR_HOST_DEVICE inline void SgdUpdate(const OptimizerScalars& s, float g,
                                         float* p) {
  if (s.l2 != 0) g = g + *p * s.l2;
  *p = *p - s.step_size * g;
}

// SGD with momentum, whose moment starts at zero:
//   g = g + l2 * p         unless l2 is zero
//   m = m * momentum + g * (1 - dampening)       at the first step m = g
//   p = p - lr * m         with Nesterov's: p - lr * (g + m * momentum)
CASTOR_HOST_DEVICE inline void MomentumUpdate(const OptimizerScalars& s,
                                              float g, float* p, float* m) {
  if (s.l2 != 0) g = g + *p * s.l2;
  *m = *m * s.beta1 + g * s.grad_weight1;
  const float direction = s.nesterov ? g + *m * s.beta1 : *m;
  *p = *p - s.step_size * direction;
}

// Lion:
//   p = p * decay - lr * sign(m * beta1 + g * (1 - beta1))
//   m = m * beta2 + g * (1 - beta2)
// where the sign of zero is zero and that of NaN is NaN.
CASTOR_HOST_DEVICE inline void LionUpdate(const OptimizerScalars& s, float g,
                                          float* p, float* m) {
  const float blend = *m * s.beta1 + g * s.grad_weight1;
  float step = blend;  // NaN
  if (blend > 0) step = s.step_size;
  if (blend < 0) step = -s.step_size;
  if (blend == 0) step = 0;
  *p = *p * s.decay - step;
  *m = *m * s.beta2 + g * s.grad_weight2;
}

}  // namespace castor

#endif  // CASTOR_OFFLOAD_KERNELS_OPTIMIZER_MATH_H_
