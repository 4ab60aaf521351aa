// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_REQUEST_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_REQUEST_H_

// What the flags of `castor plan` ask for, once they are found to make sense
// together and with what was read. Pure function, thread-safe.

#include <cstdint>
#include <optional>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/zero_options.h"
#include "placement/activation_model.h"
#include "placement/step_model.h"
#include "tools/commands/plan/plan_flags.h"
#include "tools/commands/plan/plan_subject.h"

namespace castor {

struct PlanRequest {
  // For an engine; its device budget is all of the rank's until activations and
  // overhead are taken off. Its chunk sizes never depend on that.
  ZeroOptions options;
  int world = 1;
  bool device_limited = false;  // a device budget was given
  Bytes overhead;               // on the device: CUDA context and NCCL

  StepShape step;
  bool whole_blocks = false;  // the trainer acquires a block at a time
  // Of a micro-batch; empty: activations are not counted.
  std::optional<TransformerShape> activations;
  bool borrows = false;  // they lie in Castor's pool

  std::optional<int64_t> compute_ns;  // of a step
  int64_t ranks_per_host = 1;
};

// More than any device has.
inline constexpr Bytes kNoDeviceLimit{int64_t{1} << 50};

// InvalidArgument with a sentence for what makes no sense.
Result<PlanRequest> CheckPlanFlags(const PlanFlags& flags,
                                   const PlanSubject& subject);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_REQUEST_H_
