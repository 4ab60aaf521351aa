// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/answers/foretell.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <span>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/param_spec.h"
#include "chunk/text/budget_text.h"
#include "chunk/text/units_text.h"
#include "collectives/dry/dry_run.h"
#include "collectives/memory/memory_plan.h"
#include "collectives/sealing/seal_plan.h"
#include "placement/plan.h"
#include "placement/policy/plan_cost.h"
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

Result<StepForecast> ForecastStep(const PlanProblem& problem, PlanPolicy policy,
                                  const StepTrace& step) {
  StepForecast forecast;
  CASTOR_ASSIGN_OR_RETURN(forecast.plan,
                          PlanStep(policy, step.accesses, problem));
  const Plan& plan = forecast.plan.plan;
  forecast.fetches = ForeseeFetches(step.accesses, problem, plan);
  for (const double cost : StepFetchCosts(problem, plan)) {
    forecast.fetch_cost += cost;
  }
  for (size_t k = 0; k < problem.slots.size(); ++k) {
    const int64_t slots = plan.ShardSlots(k);
    forecast.shard_slots += slots;
    forecast.shards += slots * problem.ShardsPerSlot(k);
  }
  return forecast;
}

// What Seal takes, and the plan. Infeasible where it does not fit.
Status PlanInto(const ForetellRequest& request, Foretold* told) {
  const EngineRequest& engine = request.engine;
  const StepTrace& step = *request.steps.front();
  CASTOR_RETURN_IF_ERROR(
      CheckRoom(engine.options.device_budget, *request.layout, step));
  CASTOR_ASSIGN_OR_RETURN(SealForecast seal,
                          ForecastSeal(engine, *request.layout));
  CASTOR_ASSIGN_OR_RETURN(
      told->forecast,
      ForecastStep(seal.memory.problem, engine.options.policy, step));
  told->seal = std::move(seal);
  return OkStatus();
}

// Whether the machine surely knows every speed that a step of this rank needs.
bool KnowsAll(const TierModel& speeds, const MemoryPlan& memory, int world) {
  const bool drives = SlotsBytes(memory.nvme_classes) > Bytes(0);
  return speeds.host_to_device && speeds.device_to_host && speeds.optimizer &&
         (!drives || (speeds.nvme_read && speeds.nvme_write)) &&
         (world == 1 || (speeds.all_gather && speeds.reduce_scatter));
}

// What a drive moves at once in a forecast: a piece of a run's, or up to
// sixteen together where a step would have very many.
Bytes NvmePiece(const MemoryPlan& memory) {
  constexpr int64_t kPieces = int64_t{1} << 16;
  const Bytes home = memory.home_bytes[TierIndex(Tier::kNvme)];
  return std::clamp(RoundUp(home / kPieces, MiB(1)), MiB(1), MiB(16));
}

// The steps, and their times where there is a machine.
Status RunInto(const ForetellRequest& request, Foretold* told) {
  const EngineRequest& engine = request.engine;
  const std::optional<ForetoldMachine>& machine = request.machine;
  DryRunRequest run;
  run.params = engine.params;
  run.options = engine.options;
  run.declared = engine.declared;
  run.world = engine.world;
  run.rank = engine.rank;
  run.communicator_buffers = engine.communicator_buffers;
  run.layout = &told->seal->layout;
  run.steps = request.steps;
  run.plan = &told->forecast->plan.plan;
  run.nvme_piece = NvmePiece(told->seal->memory);
  StepRanks ranks{.world = engine.world};
  std::optional<TierModel> speeds;
  if (machine) {
    speeds = machine->speeds;
    ranks.per_host = machine->ranks_per_host;
    run.trainer = machine->trainer;
    run.device_memory = machine->device_memory;
  }
  const std::vector<int64_t>& compute_ns = request.steps.back()->compute_ns;
  const auto make = [&]() -> Status {
    CASTOR_ASSIGN_OR_RETURN(told->run, DryRun(run));
    told->times = TimesOf(
        told->run->steady().traffic, ranks,
        std::accumulate(compute_ns.begin(), compute_ns.end(), int64_t{0}),
        speeds);
    return OkStatus();
  };
  const auto count = [&]() -> Status {
    const std::span<const StepTrace* const> steps = request.steps;
    if (request.steady_only &&
        std::ranges::count(steps, steps.front()) == std::ssize(steps)) {
      run.steps = steps.last(1);
      run.planned_at_seal = true;
      CASTOR_RETURN_IF_ERROR(make());
      run.steps = steps;
      run.planned_at_seal = false;
      // Ranks that reduce in turns take other turns in a first step.
      if (told->run->steady().divergences == 0) return OkStatus();
    }
    return make();
  };
  // Where a speed may be unknown, a run without times says which are needed.
  if (!machine || (machine->needs_all &&
                   !KnowsAll(*speeds, told->seal->memory, engine.world))) {
    CASTOR_RETURN_IF_ERROR(count());
    if (!machine || !told->times.unknown.empty()) return OkStatus();
  }
  run.machine = ShareOfMachine(*speeds, machine->ranks_per_host);
  told->timed = true;
  return make();
}

}  // namespace

Result<Foretold> Foretell(const ForetellRequest& request) {
  CASTOR_CHECK(!request.steps.empty() && request.layout != nullptr);
  Foretold told;
  Status fits = PlanInto(request, &told);
  if (fits.ok()) fits = RunInto(request, &told);
  if (fits.ok()) return told;
  // The engine may refuse such a step for what its options promise, too.
  if (fits.code() != ErrorCode::kInfeasible &&
      fits.code() != ErrorCode::kFailedPrecondition) {
    return fits;
  }
  Foretold refused;
  refused.fits = std::move(fits);
  return refused;
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
