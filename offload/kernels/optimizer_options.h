// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_KERNELS_OPTIMIZER_OPTIONS_H_
#define CASTOR_OFFLOAD_KERNELS_OPTIMIZER_OPTIONS_H_

// Which optimizer, and with what numbers: PyTorch's names and meanings. Values.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "offload/kernels/optimizer_math.h"
#include "placement/state_kind.h"

namespace castor {

// What one call of a program's own update needs at least.
enum class UpdateSpan : uint8_t {
  kElements,   // any run of elements, as each is updated by itself
  kParameter,  // whole parameters
};

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
  // What moments are kept in, kF32, kBF16 or kBlocks8; but in kF32 rounded by
  // chance, which `seed` decides, or to nearest, where small gradients are
  // lost. In 8 bits are those of parameters of 4,096 elements and more.
  DType moment_dtype = DType::kF32;
  bool stochastic_rounding = true;
  uint64_t seed = 0;
  // Of kCustom: what its states are called, and what its update needs.
  std::vector<std::string> states = {};
  UpdateSpan span = UpdateSpan::kElements;
};

// What PyTorch takes unless told otherwise; for Lion, its authors (lr 1e-4,
// betas 0.9 and 0.99, no weight decay).
OptimizerOptions DefaultOptimizerOptions(OptimizerKind kind);

// "adam", "adamw", "sgd", "lion", "custom".
std::string_view OptimizerName(OptimizerKind kind);
// "elements", "parameter".
std::string_view UpdateSpanName(UpdateSpan span);
// Empty for anything else.
std::optional<OptimizerKind> ParseOptimizer(std::string_view name);

// kInvalidArgument, naming the numbers, where an optimizer is undefined for
// them. The learning rate may change with every step and is checked then.
Status ValidateOptimizerOptions(const OptimizerOptions& options);

// What the update keeps of every parameter, under PyTorch's names. REQUIRES:
// the options are valid.
StateNames StateNamesOf(const OptimizerOptions& options);
// How many these are.
int MomentsOf(const OptimizerOptions& options);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_KERNELS_OPTIMIZER_OPTIONS_H_
