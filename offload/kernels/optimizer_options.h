// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_KERNELS_OPTIMIZER_OPTIONS_H_
#define CASTOR_OFFLOAD_KERNELS_OPTIMIZER_OPTIONS_H_

// Which optimizer, and with what numbers: PyTorch's names and meanings. Values.

#include <cstdint>
#include <optional>
#include <string_view>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "offload/kernels/optimizer_math.h"
#include "placement/state_kind.h"

namespace castor {

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double lr = 1e-3;
  double beta1 = 0.9;  // beta1 to eps: Adam and AdamW; the betas: Lion too
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double momentum = 0;  // momentum to nesterov: SGD
  double dampening = 0;
  bool nesterov = false;
  // What moments are kept in, kF32 or kBF16; in bf16 rounded by chance, which
  // `seed` decides, or to nearest even, where small gradients are lost.
  DType moment_dtype = DType::kF32;
  bool stochastic_rounding = true;
  uint64_t seed = 0;
};

// What PyTorch takes unless told otherwise; for Lion, its authors (lr 1e-4,
// betas 0.9 and 0.99, no weight decay).
OptimizerOptions DefaultOptimizerOptions(OptimizerKind kind);

// "adam", "adamw", "sgd", "lion".
std::string_view OptimizerName(OptimizerKind kind);
// Empty for anything else.
std::optional<OptimizerKind> ParseOptimizer(std::string_view name);

// kInvalidArgument, naming the numbers, where an optimizer is undefined for
// them. The learning rate may change with every step and is checked then.
Status ValidateOptimizerOptions(const OptimizerOptions& options);

// What the update keeps of every parameter, under PyTorch's names.
StateNames StateNamesOf(const OptimizerOptions& options);
// How many moments these are.
int MomentsOf(const OptimizerOptions& options);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_KERNELS_OPTIMIZER_OPTIONS_H_
