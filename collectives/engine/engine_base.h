// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_ENGINE_BASE_H_
#define CASTOR_COLLECTIVES_ENGINE_ENGINE_BASE_H_

// What all parts of an engine stand on (zero_engine_parts.h). The members of a
// part say which of these it touches. Owner thread only, but for the health.

#include "collectives/communicator.h"
#include "collectives/engine/call_rules.h"
#include "collectives/engine/engine_health.h"
#include "collectives/engine/engine_model.h"
#include "collectives/engine/engine_progress.h"
#include "collectives/engine/engine_record.h"
#include "collectives/engine/memory/engine_memory.h"
#include "collectives/zero_options.h"

namespace castor::internal {

struct EngineBase {
  EngineBase(const ZeroOptions& options, Communicator* comm)
      : model(options, comm),
        health(comm),
        scalars{LossScaler(options.loss_scaling),
                OptimizerGroups(options.optimizer, options.groups)},
        memory(model, health),
        record(model, progress, memory),
        rules(model, health, progress, memory) {}

  EngineModel model;
  EngineHealth health;
  StepProgress progress;
  TrainingScalars scalars;
  EngineMemory memory;
  EngineLanes lanes;  // which stop before the memory goes
  EngineRecord record;
  CallRules rules;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_ENGINE_BASE_H_
