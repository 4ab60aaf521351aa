// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/simulate/simulate_command.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
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
#include "tools/cli/atomic_file.h"
#include "tools/cli/document.h"
#include "tools/cli/progress.h"
#include "tools/commands/registry.h"
#include "tools/commands/simulate/simulate_flags.h"
#include "tools/commands/simulate/simulate_input.h"
#include "tools/commands/simulate/step_document.h"

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
  const auto moved = [&](Tier from, Tier to) {
    return std::any_of(
        points.begin(), points.end(), [&](const SimulatedPoint& point) {
          return point.result &&
                 point.result->steady().moved[TierIndex(from)][TierIndex(to)] >
                     Bytes(0);
        });
  };
  std::vector<std::string> unknown;
  const auto add = [&](bool used, const auto& speed, const char* name) {
    if (used && !speed) unknown.emplace_back(name);
  };
  using enum Tier;
  const bool down = moved(kDevice, kHost);
  add(moved(kHost, kDevice), machine.host_to_device, "host_to_device");
  add(down, machine.device_to_host, "device_to_host");
  add(moved(kNvme, kHost), machine.nvme_read, "nvme_read");
  add(moved(kHost, kNvme), machine.nvme_write, "nvme_write");
  add(ranks > 1, machine.all_gather, "all_gather");
  add(ranks > 1, machine.reduce_scatter, "reduce_scatter");
  add(down, machine.optimizer, "optimizer");
  return unknown;
}

class SimulateCommand final : public Command {
 public:
  std::string_view name() const override { return "simulate"; }
  std::string_view summary() const override {
    return "how long a recorded step takes under other budgets, and why";
  }

  void Declare(CLI::App& app) override { DeclareSimulateFlags(app, &flags_); }

  Status Run(const Console& console) override {
    CASTOR_ASSIGN_OR_RETURN(const Form form, FormOf(flags_.json, flags_.plain));
    CASTOR_ASSIGN_OR_RETURN(const SimulateRequest request,
                            CheckSimulateFlags(flags_));
    if (!request.svg.empty()) {
      CASTOR_RETURN_IF_ERROR(CheckFileTarget(request.svg));
    }
    CASTOR_ASSIGN_OR_RETURN(const SimulateReport report,
                            RunSimulate(request, console));
    if (!request.svg.empty()) {
      CASTOR_RETURN_IF_ERROR(
          WriteFileAtomically(request.svg, SweepSvg(report)));
    }
    Print(SimulateDocument(report), form, console);
    return OkStatus();
  }

 private:
  SimulateFlags flags_;
};

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

std::unique_ptr<Command> MakeSimulateCommand() {
  return std::make_unique<SimulateCommand>();
}

}  // namespace castor
