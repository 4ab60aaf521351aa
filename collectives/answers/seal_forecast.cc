// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/answers/seal_forecast.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "chunk/base/ids.h"
#include "chunk/base/tier.h"
#include "collectives/sealing/layout_choice.h"
#include "placement/policy/plan_cost.h"
#include "placement/simulation/copy_replay.h"

namespace castor {
Result<SealForecast> ForecastSeal(const EngineRequest& request) {
  CASTOR_RETURN_IF_ERROR(CheckOptions(request.options, request.world));
  for (const ParamSpec& spec : request.params) {
    CASTOR_RETURN_IF_ERROR(CheckTrains(spec, request.options.grad_mode));
    CASTOR_RETURN_IF_ERROR(CountElements(spec.shape, spec.dtype).status());
  }
  const SealBudgets budgets =
      BudgetsOf(request.options, request.communicator_buffers);
  CASTOR_ASSIGN_OR_RETURN(
      ChunkLayout layout,
      ChooseLayout(request.params, request.options,
                   ShardingOf(request.options, request.world, request.rank),
                   budgets, request.declared));
  return ForecastSeal(request, std::move(layout));
}

Result<SealForecast> ForecastSeal(const EngineRequest& request,
                                  ChunkLayout layout) {
  const Sharding sharding =
      ShardingOf(request.options, request.world, request.rank);
  const SealBudgets budgets =
      BudgetsOf(request.options, request.communicator_buffers);
  CASTOR_ASSIGN_OR_RETURN(std::vector<ChunkBindings> bindings,
                          BindingsOf(request.options, request.params, layout));
  CASTOR_ASSIGN_OR_RETURN(MemoryPlan memory,
                          MemoryOf(layout, sharding, request.options, budgets,
                                   bindings, request.declared));
  const ByteTable table = ByteTableOf(memory, request.communicator_buffers);
  return SealForecast{sharding,          budgets, std::move(layout),
                      std::move(memory), table,   std::move(bindings)};
}

Result<StepForecast> ForecastStep(const SealForecast& seal,
                                  const ZeroOptions& options,
                                  const StepTrace& step) {
  const Trace& trace = step.accesses;
  const MemoryPlan& memory = seal.memory;
  const PlanProblem& problem = memory.problem;
  StepForecast forecast;
  CASTOR_ASSIGN_OR_RETURN(forecast.plan,
                          PlanStep(options.policy, trace, problem));
  forecast.fetches = ForeseeFetches(trace, problem, forecast.plan.plan);
  for (const double cost : StepFetchCosts(problem, forecast.plan.plan)) {
    forecast.fetch_cost += cost;
  }

  const size_t gathered = problem.slots.size();
  for (size_t k = 0; k < gathered; ++k) {
    const int64_t slots = forecast.plan.plan.ShardSlots(k);
    forecast.shard_slots += slots;
    forecast.shards += slots * problem.ShardsPerSlot(k);
  }
  std::vector<Bytes> slot_bytes;
  for (size_t c = 0; c < gathered; ++c) {
    slot_bytes.push_back(memory.device_classes[c].slot_bytes);
  }
  const std::vector<ChunkId> refreshed =
      RefreshedThroughSlots(seal.layout, seal.sharding, memory, trace);
  const Plan& plan = forecast.plan.plan;
  // The first step has no plan.
  CopyReplay replay(problem, slot_bytes);
  replay.Step(trace, refreshed);
  replay.Adopt(trace, plan);
  replay.Step(trace, refreshed);
  replay.TakeCounts();
  replay.Step(trace, refreshed);
  const CopyReplay::Counts counts = replay.TakeCounts();
  forecast.gathers = counts.gathers;
  forecast.loads = counts.loads;
  forecast.traffic = TrafficOf(seal.layout, seal.sharding, memory,
                               {.gathers = counts.gathers,
                                .loads = counts.loads,
                                .trace = &step,
                                .norm = CountsNorm(options)});
  forecast.peak = {
      SlotsBytes(std::span(memory.device_classes).subspan(gathered)) +
          replay.peak_bytes(),
      SlotsBytes(memory.host_classes), SlotsBytes(memory.nvme_classes)};
  return forecast;
}

}  // namespace castor
