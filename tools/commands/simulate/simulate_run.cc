// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/simulate/simulate_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "chunk/base/quote.h"
#include "chunk/base/tier.h"
#include "chunk/chunk_layout.h"
#include "collectives/memory_plan.h"
#include "collectives/seal_plan.h"
#include "collectives/sharding.h"
#include "collectives/simulated_engine_of.h"
#include "collectives/zero_options.h"
#include "placement/simulator.h"
#include "placement/step_trace.h"
#include "placement/tier_model.h"
#include "placement/trace_file.h"
#include "tools/cli/progress.h"
#include "tools/commands/simulate/trace_layout.h"
#include "tools/models/machine_reader.h"
#include "tools/models/trace_reader.h"

namespace castor {
namespace {

// What all points of a report have in common.
struct Common {
  StepTrace step;
  ChunkLayout layout;
  Sharding sharding;
  SealOptions declared;
  TierModel machine;
};

Result<Common> ReadCommon(const SimulateRequest& request,
                          SimulateReport* report) {
  CASTOR_ASSIGN_OR_RETURN(const TraceFile trace,
                          ReadTraceFile(request.trace_file));
  CASTOR_ASSIGN_OR_RETURN(const TierModel machine,
                          ReadMachineFile(request.machine_file));
  if (trace.step.accesses.empty()) {
    return Malformed(
        fmt::format("{} has no moment: there is no step to simulate",
                    QuotedPath(request.trace_file)));
  }
  report->chunks = static_cast<int64_t>(trace.chunks.size());
  report->moments = static_cast<int64_t>(trace.step.accesses.size());
  report->recorded_ranks = trace.world;
  report->ranks = request.ranks.value_or(trace.world);
  report->ranks_per_machine = request.ranks_per_machine.value_or(report->ranks);
  if (report->ranks_per_machine > report->ranks) {
    return InvalidArgument(fmt::format(
        "--ranks-per-machine {} is more than the {} ranks there are",
        report->ranks_per_machine, report->ranks));
  }
  ZeroOptions groups;
  groups.stage = request.stage;
  groups.shard_group = request.shard_group;
  groups.optimizer_span = request.optimizer_span;
  CASTOR_RETURN_IF_ERROR(CheckOptions(groups, report->ranks));
  CASTOR_ASSIGN_OR_RETURN(ChunkLayout layout,
                          LayoutOfTrace(trace, request.dtype, report->ranks));
  Common common{trace.step,
                std::move(layout),
                {},
                DeclaredBy(trace.step),
                ShareOfMachine(machine, report->ranks_per_machine)};
  if (request.compute_ns) {
    common.step = WithComputeTime(trace, *request.compute_ns);
  }
  report->compute_ns = std::accumulate(
      common.step.compute_ns.begin(), common.step.compute_ns.end(), int64_t{0});
  common.sharding = {
      .stage = request.stage,
      .world = report->ranks,
      .rank = 0,
      .moments = MomentsOf(request.optimizer),
      .moment_dtype = request.optimizer.moment_dtype,
      .fp32_grads = request.fp32_grads,
      .shard_group = request.shard_group,
      .spans_world = request.optimizer_span == OptimizerSpan::kWorld};
  return common;
}

SimulatedPoint Simulated(const SimulateRequest& request, const Common& common,
                         Bytes device_budget, Bytes host_budget) {
  SimulatedPoint point;
  point.device_budget = device_budget;
  point.host_budget = host_budget;
  MemoryPlanInput memory;
  memory.layout = &common.layout;
  memory.sharding = common.sharding;
  memory.device_budget = device_budget;
  memory.host_budget = host_budget;
  memory.nvme_budget = request.nvme_budget;
  if (request.clip) memory.norm_bytes = kNormBytes;
  memory.prefetch_depth = request.prefetch_depth;
  memory.declared = common.declared;
  const Result<MemoryPlan> plan = PlanMemory(memory);
  if (!plan.ok()) {
    point.why = plan.status().message();
    return point;
  }
  point.engine =
      SimulatedEngineOf({&memory, &*plan, request.policy,
                         static_cast<int64_t>(common.layout.places().size())});
  Result<SimulationResult> result = Simulate(
      common.step, point.engine, common.machine,
      {.trainer = request.trainer, .device_memory = request.device_memory});
  if (result.ok()) {
    point.result = *std::move(result);
  } else {
    point.why = result.status().message();
  }
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
  CASTOR_ASSIGN_OR_RETURN(const Common common, ReadCommon(request, &report));
  progress.Phase("simulating");
  if (!request.sweep) {
    report.points.push_back(
        Simulated(request, common, request.device_budget, request.host_budget));
  } else {
    for (const Bytes value : request.sweep->values) {
      const bool device = request.sweep->budget == SweptBudget::kDevice;
      report.points.push_back(Simulated(request, common,
                                        device ? value : request.device_budget,
                                        device ? request.host_budget : value));
    }
  }
  progress.Finish();
  report.unknown = UnknownLinks(common.machine, report.points, report.ranks);
  const bool any =
      std::any_of(report.points.begin(), report.points.end(),
                  [](const SimulatedPoint& p) { return p.result.has_value(); });
  if (any) return report;
  // The last one of a sweep is the roomiest.
  Status why = Infeasible(report.points.back().why);
  return request.sweep ? why.WithContext("no budget of the sweep fits") : why;
}

}  // namespace castor
