// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_CALL_RULES_H_
#define CASTOR_COLLECTIVES_ENGINE_CALL_RULES_H_

// What calls of an engine require of where it is: FailedPrecondition, with what
// to call first, where that does not hold. `call`: what asks for it. No state.
// Owner thread only.

#include <string_view>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "collectives/engine/engine_health.h"
#include "collectives/engine/engine_model.h"
#include "collectives/engine/engine_progress.h"
#include "collectives/engine/memory/engine_memory.h"

namespace castor::internal {

class CallRules {
 public:
  // All outlive this.
  CallRules(const EngineModel& model, const EngineHealth& health,
            const StepProgress& progress, const EngineMemory& memory)
      : model_(model), health_(health), progress_(progress), memory_(memory) {}

  // Sealed, and the states are at hand: perhaps parked.
  Status RequireStates() const;
  // And not parked.
  Status RequireSealed() const;
  // No parameters held and no evaluation under way.
  Status RequireNothingOpen(std::string_view call) const;
  // Nothing of the engine's memory is lent.
  Status RequireNoLeases(std::string_view call) const;
  // Nor a step begun.
  Status RequireBetweenSteps(std::string_view call) const;
  // Nothing is half done with the old values of the parameter.
  Status RequireWritable(ParamId param, std::string_view call) const;

 private:
  const EngineModel& model_;
  const EngineHealth& health_;
  const StepProgress& progress_;
  const EngineMemory& memory_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_CALL_RULES_H_
