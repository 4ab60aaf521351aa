// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_PLAIN_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_PLAIN_H_

// A plan's report as lines of fields between tabs, for grep and awk. Pure
// function, thread-safe.

#include <string>

#include "tools/commands/plan/plan_report.h"

namespace castor {

// Each line starts with what it is about:
//
//   fits      yes|no
//   tier      TIER  PLANNED_BYTES  PEAK_BYTES
//   class     CLASS  DEVICE_BYTES  HOST_BYTES  NVME_BYTES
//   device    activations|overhead  BYTES
//   link      FROM  TO  BYTES  TRANSFERS
//   wire      all_gather|reduce_scatter|agreement  BYTES  CALLS
//   time      RESOURCE  SECONDS|-
//   change    WHAT  COMMAND  (alternative and more likewise)
//   peak      TIER  PLANNED_BYTES  MEASURED_BYTES
//   measured  LINK  PLANNED_BYTES  MEASURED_BYTES
std::string PlanPlain(const PlanReport& report);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_PLAIN_H_
