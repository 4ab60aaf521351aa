// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_OUTCOME_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_OUTCOME_H_

// One configuration, planned: what a rank would hold and move, whether that
// fits, how long a step's links, drives and optimizer would work, and how long
// the step would take. Pure functions, thread-safe.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/budget_raises.h"
#include "collectives/seal_forecast.h"
#include "placement/simulation_result.h"
#include "placement/step_trace.h"
#include "placement/tier_model.h"
#include "tools/commands/plan/plan_request.h"
#include "tools/commands/plan/plan_subject.h"

namespace castor {

// What works for a step; each at the same time as the others, or not.
struct ResourceTime {
  std::string_view name;   // "host_to_device", "optimizer", "compute", ...
  std::string_view title;  // for people
  LinkTraffic moved;       // or worked through; nothing by what computes
  std::optional<double> seconds;  // empty: nobody said how fast it is
};

struct StepTimes {
  std::vector<ResourceTime> resources;  // those that a step uses, in one order

  // All at the same time: the slowest. One after the other: their sum. Empty
  // where one that is used is unknown.
  std::optional<double> least_seconds() const;
  std::optional<double> most_seconds() const;
  // The names of those whose time nobody knows.
  std::vector<std::string_view> unknown() const;
};

struct PlanOutcome {
  PlanRequest request;
  // Most at one time, by formula or as recorded; and what of the device budget
  // is Castor's once they and the overhead are taken off.
  Bytes activations;
  Bytes castor_device;
  ChunkLayout layout;
  StepTrace step;
  SealOptions declared;
  Status fits;  // or Infeasible, and why
  // Where it fits.
  std::optional<SealForecast> seal;
  std::optional<StepForecast> forecast;
  StepTimes times;  // all unknown where no machine was given
  // A step that follows others like it (placement/simulator.h). Where it fits
  // and the machine's file knows all that it uses.
  std::optional<SimulatedStep> simulated;

  // Of a step, simulated; empty where that is.
  std::optional<double> step_seconds() const;
  // The largest chunk that is not oversize.
  Bytes largest_chunk() const;
  // Of the device, with activations and overhead.
  Bytes device_total() const;
  // Between tiers and to other ranks, in a step.
  Bytes moved() const;
  // What a trainer that follows the plan gives its engine; 0 bytes of NVMe
  // where there is none. Where the device has no limit, what is planned is
  // enough. REQUIRES: it fits.
  Bytes engine_budget(Tier tier) const;
};

// InvalidArgument where the flags make no sense for the model; everything that
// does not fit is an outcome.
Result<PlanOutcome> MakePlan(const PlanSubject& subject,
                             const PlanRequest& request);

// By how much its budgets fall short of sealing an engine with its layout.
BudgetRaises RaisesFor(const PlanSubject& subject, const PlanOutcome& outcome);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_OUTCOME_H_
