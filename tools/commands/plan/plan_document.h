// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_DOCUMENT_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_DOCUMENT_H_

// What `castor plan` prints. Pure function, thread-safe. Part of castor plan
// (plan_command.h).

#include "chunk/base/units.h"
#include "tools/cli/document.h"
#include "tools/commands/plan/plan_run.h"

namespace castor {

// Lines of --plain start with what they are about:
//
//   fits      yes|no
//   tier      TIER  PLANNED_BYTES  PEAK_BYTES
//   class     CLASS  DEVICE_BYTES  HOST_BYTES  NVME_BYTES
//   device    activations|overhead  BYTES
//   link      FROM  TO  BYTES  TRANSFERS
//   wire      all_gather|reduce_scatter|agreement  BYTES  CALLS
//   time      RESOURCE  SECONDS|-
//   step_ns   NS  BUSIEST
//   stall     CAUSE  NS  COUNT
//   change    WHAT  COMMAND  (alternative and more likewise)
//   peak      TIER  PLANNED_BYTES  MEASURED_BYTES  (other_budget likewise)
//   measured  LINK  PLANNED_BYTES  MEASURED_BYTES
Document PlanDocument(const PlanReport& report);

// Its part on what is planned. REQUIRES: it fits.
void AddFit(const PlanReport& report, Document* doc);

// Nothing is shown as nothing.
Value BytesOrDash(Bytes bytes);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_DOCUMENT_H_
