// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_PLAN_H_
#define CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_PLAN_H_

// Part of the writer of checkpoints (checkpoint_writer.h).
//
// All files of a checkpoint before any of them is written: which states of
// which parameters stand where. Weights are `model.safetensors` and bear the
// model's own names, so that any reader of safetensors takes the folder for a
// model; each other state has files of its own below `optimizer/`. The same on
// every rank. Pure functions, thread-safe.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/param_spec.h"
#include "collectives/checkpoint/files/tensor_files.h"
#include "placement/state_kind.h"

namespace castor {

inline constexpr char kModelStem[] = "model";
inline constexpr char kOptimizerFolder[] = "optimizer";

// Gradients mean nothing between steps.
constexpr bool IsSaved(StateKind state) { return state != StateKind::kGrad; }
// What a file has of a state that is kept in this type.
constexpr DType SavedDType(DType dtype) {
  return IsBlocks8(dtype) ? DType::kF32 : dtype;
}

// A parameter of a model and what an engine keeps of it.
struct ParamWithStates {
  ParamSpec spec;
  struct State {
    StateKind state = StateKind::kParam;
    DType dtype = DType::kF32;
  };
  std::vector<State> states;  // kParam among them, of the spec's type
};

struct CheckpointPlan {
  // Of all states; names are below the checkpoint's folder, and `tensors` are
  // indices of parameters.
  std::vector<TensorFile> files;
  // By parameter and StateKind. Only those of states that it has mean anything.
  std::vector<std::array<TensorPlace, kStateKinds>> places;
  // Texts beside them: name and bytes.
  std::vector<std::pair<std::string, std::string>> indexes;
};

// `names`: of the states. InvalidArgument, naming the parameter, where its name
// is not UTF-8, empty or given twice.
Result<CheckpointPlan> PlanCheckpoint(std::span<const ParamWithStates> params,
                                      const StateNames& names, Bytes max_file);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_PLAN_H_
