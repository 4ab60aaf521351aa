// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_COMPARE_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_COMPARE_H_

// What was planned next to what a recorded run measured: peaks of tiers, bytes
// of links in a step, and how long a step took. Pure functions, thread-safe.
// Part of plan_outcome.h.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "placement/plan.h"
#include "tools/cli/document.h"
#include "tools/commands/plan/plan_outcome.h"
#include "tools/commands/plan/plan_subject.h"
#include "tools/report/run_statistics.h"

namespace castor {

struct ComparedBytes {
  std::string what;  // "device", "host -> device", "all-gather"
  int64_t planned = 0;
  int64_t measured = 0;

  // Measured over planned less one; empty where nothing was planned.
  std::optional<double> difference() const;
};

// A policy that the run followed in place of the plan's.
struct OtherPolicy {
  PlanPolicy planned = PlanPolicy::kAuto;
  PlanPolicy run = PlanPolicy::kAuto;
};

struct PlanComparison {
  std::string file;
  // What the run was told otherwise: budgets by tier, `measured` being the
  // run's and 0 where it had none; and its policy, as far as steps tell it.
  std::vector<ComparedBytes> budgets;
  std::optional<OtherPolicy> policy;
  // Of the rank that used most.
  std::vector<ComparedBytes> peaks;
  // Of all ranks, in the median of the steps from `first_step` on: those before
  // follow no plan yet.
  std::vector<ComparedBytes> links;
  int32_t first_step = 0;
  int64_t steps = 0;
  // Of the slowest rank, the median of the same steps.
  int64_t measured_ns = 0;
  std::optional<double> planned_seconds;  // of a step, simulated
};

// InvalidArgument, naming the first difference, where the run was of other
// ranks, another stage, another model or other chunks; Malformed where the file
// is no record. REQUIRES: the outcome fits.
Result<PlanComparison> CompareWithRun(const PlanSubject& subject,
                                      const PlanOutcome& outcome,
                                      const std::string& file);

// "comparison" in JSON, and lines of --plain: other_budget, other_policy, peak
// and measured.
void AddComparison(const PlanComparison& run, Document* doc);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_COMPARE_H_
