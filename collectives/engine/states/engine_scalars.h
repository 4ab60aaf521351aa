// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_STATES_ENGINE_SCALARS_H_
#define CASTOR_COLLECTIVES_ENGINE_STATES_ENGINE_SCALARS_H_

// Part of the ranks' agreement (rank_agreement.h).
//
// What a training goes on by besides its states, as a checkpoint's manifest
// says it: the optimizer, its seed, the loss scale, learning rates. Pure
// functions, thread-safe.

#include "chunk/base/status.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/loss_scaler.h"
#include "collectives/optimizer_groups.h"
#include "offload/kernels/optimizer_options.h"

namespace castor::internal {

EngineScalars ScalarsOf(const OptimizerOptions& optimizer,
                        const LossScaler& scaler,
                        const OptimizerGroups& groups);

// InvalidArgument, with both, where the moments that `manifest` lists mean
// something else to `optimizer`, or were rounded by another seed.
Status CheckSameMoments(const CheckpointManifest& manifest,
                        const OptimizerOptions& optimizer);

// Gives `scaler` the state of a run that scaled its losses; that of one which
// did not leaves it as it is. InvalidArgument as LossScaler::Restore.
Status RestoreScaler(const EngineScalars& scalars, LossScaler* scaler);

// Gives `groups` the rates that SetLearningRate said last. Those that were told
// none keep their own, and so do those that only the checkpoint has.
// InvalidArgument as OptimizerGroups::SetLearningRate.
Status RestoreRates(const EngineScalars& scalars, OptimizerGroups* groups);

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_STATES_ENGINE_SCALARS_H_
