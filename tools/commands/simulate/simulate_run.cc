// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/simulate/simulate_run.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "chunk/base/tier.h"
#include "collectives/seal_forecast.h"
#include "collectives/simulated_engine_of.h"
#include "collectives/zero_options.h"
#include "placement/fetch_forecast.h"
#include "placement/plan.h"
#include "placement/simulator.h"
#include "placement/step_planner.h"
#include "placement/step_trace.h"
#include "placement/tier_model.h"
#include "tools/cli/progress.h"
#include "tools/commands/simulate/simulate_input.h"
#include "tools/commands/simulate/step_tables.h"

namespace castor {
namespace {

// Steps of the trace before any other: the last of them is steady.
constexpr size_t kSteadySteps = 4;

Result<SimulationResult> SimulateAll(const SimulateRequest& request,
                                     const SimulateInput& input,
                                     const SimulatedEngine& engine) {
  std::vector<const StepTrace*> steps(kSteadySteps, &input.step);
  for (const StepTrace& other : input.then) steps.push_back(&other);
  // The first of these departs, too, and the second one has its plan again.
  if (!input.then.empty()) steps.insert(steps.end(), 2, &input.step);
  return SimulateSteps(
      steps, engine, input.machine,
      {.trainer = request.trainer, .device_memory = request.device_memory});
}

// What the engine would plan of its fetches.
Status ForeseeDeadlines(const SimulateRequest& request,
                        const SimulateInput& input, const SealForecast& seal,
                        SimulatedPoint* point) {
  if (request.engine.prefetch != PrefetchMode::kDeadlines) return OkStatus();
  const PlanProblem& problem = seal.memory.problem;
  CASTOR_ASSIGN_OR_RETURN(
      const StepPlan made,
      PlanStep(request.engine.policy, input.step.accesses, problem));
  point->fetches = ForeseeFetches(input.step.accesses, problem, made.plan);
  if (!point->fetches) point->lacked = NoDeadlinesSentence(seal.memory);
  return OkStatus();
}

Result<SimulatedPoint> Simulated(const SimulateRequest& request,
                                 const SimulateInput& input, int ranks,
                                 Bytes device_budget, Bytes host_budget) {
  SimulatedPoint point;
  point.device_budget = device_budget;
  point.host_budget = host_budget;
  EngineRequest engine;
  engine.params = input.params;
  engine.options = input.options;
  engine.options.device_budget = device_budget;
  engine.options.host_budget = host_budget;
  engine.world = ranks;
  engine.declared = input.declared;
  const Result<SealForecast> seal = ForecastSeal(engine, input.layout);
  if (seal.status().code() == ErrorCode::kInfeasible) {
    point.why = seal.status().message();
    return point;
  }
  CASTOR_RETURN_IF_ERROR(seal.status());
  point.engine = SimulatedEngineOf(*seal, engine.options);
  Result<SimulationResult> result = SimulateAll(request, input, point.engine);
  if (!result.ok()) {
    point.why = result.status().message();
    return point;
  }
  CASTOR_RETURN_IF_ERROR(ForeseeDeadlines(request, input, *seal, &point));
  const auto then =
      result->steps.begin() + static_cast<std::ptrdiff_t>(kSteadySteps);
  point.then.assign(then, result->steps.end());
  result->steps.erase(then, result->steps.end());
  point.result = *std::move(result);
  return point;
}

// What the steps move over links whose speed the machine's file does not tell.
std::vector<std::string> UnknownLinks(const TierModel& machine,
                                      const std::vector<SimulatedPoint>& points,
                                      int ranks) {
  bool moved[3][3] = {};
  for (const SimulatedPoint& point : points) {
    if (!point.result) continue;
    for (size_t from = 0; from < 3; ++from) {
      for (size_t to = 0; to < 3; ++to) {
        moved[from][to] |= point.result->steady().moved[from][to] > Bytes(0);
      }
    }
  }
  const size_t device = TierIndex(Tier::kDevice);
  const size_t host = TierIndex(Tier::kHost);
  const size_t nvme = TierIndex(Tier::kNvme);
  std::vector<std::string> unknown;
  const auto add = [&](bool used, bool known, const char* name) {
    if (used && !known) unknown.emplace_back(name);
  };
  add(moved[host][device], machine.host_to_device.has_value(),
      "host_to_device");
  add(moved[device][host], machine.device_to_host.has_value(),
      "device_to_host");
  add(moved[nvme][host], machine.nvme_read.has_value(), "nvme_read");
  add(moved[host][nvme], machine.nvme_write.has_value(), "nvme_write");
  add(ranks > 1, machine.all_gather.has_value(), "all_gather");
  add(ranks > 1, machine.reduce_scatter.has_value(), "reduce_scatter");
  add(moved[device][host], machine.optimizer.has_value(), "optimizer");
  return unknown;
}

}  // namespace

Result<SimulateReport> RunSimulate(const SimulateRequest& request,
                                   const Console& console) {
  Progress progress(console);
  progress.Phase("reading the trace");
  SimulateReport report;
  report.request = request;
  CASTOR_ASSIGN_OR_RETURN(const SimulateInput input,
                          ReadSimulateInput(request, &report));
  progress.Phase("simulating");
  const auto simulate = [&](Bytes device, Bytes host) -> Status {
    CASTOR_ASSIGN_OR_RETURN(
        SimulatedPoint point,
        Simulated(request, input, report.ranks, device, host));
    report.points.push_back(std::move(point));
    return OkStatus();
  };
  if (!request.sweep) {
    CASTOR_RETURN_IF_ERROR(
        simulate(request.device_budget, request.host_budget));
  } else {
    for (const Bytes value : request.sweep->values) {
      const bool device = request.sweep->budget == SweptBudget::kDevice;
      CASTOR_RETURN_IF_ERROR(simulate(device ? value : request.device_budget,
                                      device ? request.host_budget : value));
    }
  }
  progress.Finish();
  report.unknown = UnknownLinks(input.machine, report.points, report.ranks);
  const bool any =
      std::any_of(report.points.begin(), report.points.end(),
                  [](const SimulatedPoint& p) { return p.result.has_value(); });
  if (any) return report;
  // The last one of a sweep is the roomiest.
  Status why = Infeasible(report.points.back().why);
  return request.sweep ? why.WithContext("no budget of the sweep fits") : why;
}

}  // namespace castor
