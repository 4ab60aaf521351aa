// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_COMMAND_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_COMMAND_H_

// `castor plan MODEL`: reads the model and what else is named, plans, and
// writes the plan for trainers. Owner thread only.

#include <optional>
#include <vector>

#include "chunk/base/status.h"
#include "placement/exact/exact_policy.h"
#include "tools/cli/console.h"
#include "tools/cli/text/document.h"
#include "tools/commands/plan/plan_outcome.h"
#include "tools/commands/plan/plan_request.h"

namespace castor {

struct PlanReport {
  PlanSubject subject;
  PlanOutcome outcome;
  // How good the plan's fetches are, in the unit of its costs. Where it fits.
  std::optional<PlanCertificate> bound = {};
  PlanVariants changes = {};       // where it does not fit
  PlanVariants alternatives = {};  // where it does
  PlanVariants more = {};
  std::vector<BudgetPoint> grid = {};      // where a page is asked for
  std::optional<LargestFit> largest = {};  // where one is asked for
  std::optional<Document> comparison = {};
  // Of the record that it is compared with: kStoppedEarly where that was cut.
  Status compared = {};
  std::optional<Document> explained = {};  // both where it fits, if asked for

  const PlanFlags& flags() const { return outcome.request.flags; }
};

// Progress and notes go to `console.err`, nothing to `console.out`. A report
// that says no is a report; the plan's file is written only where it fits.
Result<PlanReport> RunPlan(const PlanFlags& flags, const Console& console);

// What is printed of it. Lines of --plain start with what they are about:
//
//   largest   batch|seq  FITS  REFUSED
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

// The part of it on what is planned. REQUIRES: it fits.
void AddFit(const PlanReport& report, Document* doc);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_COMMAND_H_
