// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/answers/foretell.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/param_spec.h"
#include "chunk/text/budget_text.h"
#include "chunk/text/units_text.h"
#include "collectives/answers/simulated_engine_of.h"
#include "collectives/sealing/seal_plan.h"
#include "placement/simulation/simulator.h"
#include "placement/trace.h"

namespace castor {
namespace {

// What is used is on the device, whole, whatever homes there are.
Status CheckRoom(Bytes budget, const ChunkLayout& layout,
                 const StepTrace& step) {
  Bytes largest;
  for (const Access& access : step.accesses) {
    largest = std::max(largest, BytesOf(layout.chunk(access.chunk).size,
                                        layout.dtype(access.chunk)));
  }
  if (budget >= largest) return OkStatus();
  return Infeasible(fmt::format(
      "the device budget of {} does not hold one chunk: the largest has {}, "
      "and what a step uses lies on the device, whole, while it is used",
      BudgetText(budget), FormatBytes(largest)));
}

// Fills in all that is foretold without a machine. Infeasible where it does
// not fit.
Status PlanInto(const ForetellRequest& request, Foretold* told) {
  const EngineRequest& engine = request.engine;
  const StepTrace& step = *request.steps.front();
  CASTOR_RETURN_IF_ERROR(
      CheckRoom(engine.options.device_budget, *request.layout, step));
  CASTOR_ASSIGN_OR_RETURN(SealForecast seal,
                          ForecastSeal(engine, *request.layout));
  CASTOR_ASSIGN_OR_RETURN(told->forecast,
                          ForecastStep(seal, engine.options, step));
  told->seal = std::move(seal);
  return OkStatus();
}

Status SimulateInto(const ForetellRequest& request, Foretold* told) {
  const ForetoldMachine& machine = *request.machine;
  CASTOR_ASSIGN_OR_RETURN(
      told->simulated,
      SimulateSteps(request.steps,
                    SimulatedEngineOf(*told->seal, request.engine.options),
                    ShareOfMachine(machine.speeds, machine.ranks_per_host),
                    {.plan = &told->forecast->plan.plan,
                     .begins_planned = request.begins_planned,
                     .trainer = machine.trainer,
                     .device_memory = machine.device_memory}));
  return OkStatus();
}

}  // namespace

Result<Foretold> Foretell(const ForetellRequest& request) {
  CASTOR_CHECK(!request.steps.empty() && request.layout != nullptr);
  Foretold told;
  const auto ends = [](Status status) -> Result<Foretold> {
    if (status.code() != ErrorCode::kInfeasible) return status;
    Foretold refused;
    refused.fits = std::move(status);
    return refused;
  };
  if (Status planned = PlanInto(request, &told); !planned.ok()) {
    return ends(std::move(planned));
  }
  const std::vector<int64_t>& compute_ns = request.steps.front()->compute_ns;
  std::optional<TierModel> speeds;
  StepRanks ranks{.world = request.engine.world};
  if (request.machine) {
    speeds = request.machine->speeds;
    ranks.per_host = request.machine->ranks_per_host;
  }
  told.times =
      TimesOf(told.forecast->traffic, ranks,
              std::accumulate(compute_ns.begin(), compute_ns.end(), int64_t{0}),
              speeds);
  if (request.machine &&
      (told.times.unknown.empty() || !request.machine->needs_all)) {
    if (Status simulated = SimulateInto(request, &told); !simulated.ok()) {
      return ends(std::move(simulated));
    }
  }
  return told;
}

PlanFile PlanFileOf(const EngineRequest& request, const std::string& model,
                    bool processes) {
  PlanFile file;
  file.model = model;
  file.tensors = std::ssize(request.params);
  for (const ParamSpec& spec : request.params) {
    // The layout was made of these shapes.
    file.elements += CountElements(spec.shape, spec.dtype).value();
  }
  file.world = request.world;
  file.packing = PackingDigest(request.params);
  file.moments = MomentsText(request.options.optimizer);
  file.norm = CountsNorm(request.options);
  file.processes = processes;
  file.engine = request.options;
  return file;
}

}  // namespace castor
