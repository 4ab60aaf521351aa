// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CHECKPOINT_LOAD_SOURCES_H_
#define CASTOR_COLLECTIVES_CHECKPOINT_LOAD_SOURCES_H_

// Part of the reader of checkpoints (checkpoint_reader.h).
//
// Which saved tensor each state of a model is made from: parameters are found
// by their names. Pure function, thread-safe.

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_options.h"
#include "collectives/checkpoint/checkpoint_plan.h"
#include "placement/state_kind.h"

namespace castor {

// Null: the state begins with zeros.
struct StateSource {
  size_t param = 0;                   // in the manifest
  const SavedState* state = nullptr;  // of the manifest
};

// By the model's parameters, in their order.
struct LoadSources {
  std::vector<size_t> params;  // index in the manifest
  std::vector<std::array<StateSource, kStateKinds>> states;  // by StateKind
};

// `names`: of the parameters' states, by which those of the manifest are found,
// which outlives what is returned. InvalidArgument, naming the parameter
// and what to do, where the checkpoint is not of this model, lacks a state, or
// has it in a type that `options` do not let be converted.
Result<LoadSources> FindLoadSources(const CheckpointManifest& manifest,
                                    std::span<const ParamWithStates> params,
                                    const StateNames& names,
                                    const LoadOptions& options);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_CHECKPOINT_LOAD_SOURCES_H_
