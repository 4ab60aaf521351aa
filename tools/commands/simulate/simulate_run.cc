// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/simulate/simulate_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/quote.h"
#include "chunk/base/tier.h"
#include "chunk/chunk_layout.h"
#include "chunk/layout_file.h"
#include "chunk/param_spec.h"
#include "collectives/held_moments.h"
#include "collectives/seal_forecast.h"
#include "collectives/seal_plan.h"
#include "collectives/simulated_engine_of.h"
#include "collectives/zero_options.h"
#include "placement/simulator.h"
#include "placement/step_trace.h"
#include "placement/tier_model.h"
#include "placement/trace_file.h"
#include "tools/cli/progress.h"
#include "tools/cli/text_forms.h"
#include "tools/commands/simulate/trace_layout.h"
#include "tools/models/layout_reader.h"
#include "tools/models/machine_reader.h"
#include "tools/models/trace_reader.h"

namespace castor {
namespace {

// Steps of the trace before any other: the last of them is steady.
constexpr size_t kSteadySteps = 4;

// What all points of a report have in common.
struct Common {
  StepTrace step;
  std::vector<StepTrace> then;
  std::vector<ParamSpec> params;
  ChunkLayout layout;
  ZeroOptions options;  // budgets aside
  SealOptions declared;
  TierModel machine;
};

ZeroOptions OptionsOf(const SimulateRequest& request) {
  ZeroOptions options;
  options.stage = request.stage;
  options.shard_group = request.shard_group;
  options.optimizer_span = request.optimizer_span;
  options.optimizer = request.optimizer;
  // Whatever the norm is, it is computed.
  options.clip_norm = request.clip ? 1 : 0;
  if (request.fp32_grads) options.grad_mode = GradMode::kFp32;
  options.prefetch_depth = request.prefetch_depth;
  options.policy = request.policy;
  options.home_limits = request.limits;
  options.home_rules = request.rules;
  if (request.nvme_budget) options.nvme = {{{}, request.nvme_budget}};
  return options;
}

std::string TypesOf(const ChunkLayout& layout) {
  std::vector<std::string> names;
  for (const GroupInfo& group : layout.groups()) {
    std::string name(DTypeName(group.dtype));
    if (std::count(names.begin(), names.end(), name) == 0) {
      names.push_back(std::move(name));
    }
  }
  return JoinedWithAnd(names);
}

Status ReadLayoutInto(const SimulateRequest& request, const TraceFile& trace,
                      int ranks, Common* common) {
  if (request.layout_file.empty()) {
    CASTOR_ASSIGN_OR_RETURN(common->layout,
                            LayoutOfTrace(trace, request.dtype, ranks));
    common->params = ParamsOfTrace(common->layout);
    common->declared = DeclaredBy(trace.step);
    return OkStatus();
  }
  CASTOR_ASSIGN_OR_RETURN(LayoutFile file, ReadLayoutFile(request.layout_file));
  const std::string named = QuotedPath(request.layout_file);
  if (file.layout.world() != ranks) {
    return InvalidArgument(fmt::format(
        "{} is a layout for {} ranks, and not {}: give --world {}, "
        "or the layout of castor search --world {}",
        named, file.layout.world(), ranks, file.layout.world(), ranks));
  }
  if (Status same = CheckSameChunks(trace.chunks, TraceChunks(file.layout));
      !same.ok()) {
    return same.WithContext(named);
  }
  common->params = std::move(file.params);
  common->layout = std::move(file.layout);
  common->declared = DeclaredBy(trace.step);
  common->declared.held = HeldMomentsOf(common->layout, trace.step.accesses);
  return OkStatus();
}

// The other steps, with as much compute for what they do as the trace has.
Status ReadThen(const SimulateRequest& request, const TraceFile& trace,
                Common* common) {
  for (const std::string& name : request.then) {
    CASTOR_ASSIGN_OR_RETURN(const TraceFile other, ReadTraceFile(name));
    Status fits = CheckSameChunks(trace.chunks, other.chunks);
    if (fits.ok() && other.step.accesses.empty()) {
      fits = Malformed("it has no moment: there is no step to simulate");
    }
    if (fits.ok() &&
        other.step.compute_ns.empty() != trace.step.compute_ns.empty()) {
      fits = InvalidArgument(
          "it has compute times and the trace has none, or the other way "
          "round: record both, or neither and give --compute");
    }
    if (!fits.ok()) return fits.WithContext(QuotedPath(name));
    StepTrace step = other.step;
    if (const double weight = ComputeWeight(trace);
        request.compute_ns && weight > 0) {
      const double part = ComputeWeight(other) / weight;
      step = WithComputeTime(
          other,
          std::min(kMaxStepNs, static_cast<int64_t>(
                                   static_cast<double>(*request.compute_ns) *
                                   std::min(part, 1e6))));
    }
    common->then.push_back(
        WithEvaluations(std::move(step), request.evaluations));
  }
  return OkStatus();
}

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
  report->dtype_assumed =
      request.layout_file.empty() && !request.dtype && !trace.chunks[0].dtype;
  report->recorded_ranks = trace.world;
  report->ranks = request.ranks.value_or(trace.world);
  if (request.ranks_per_host > report->ranks) {
    return InvalidArgument(
        fmt::format("--ranks-per-host {} is more than the {} ranks there are",
                    request.ranks_per_host, report->ranks));
  }
  ZeroOptions groups;
  groups.stage = request.stage;
  groups.shard_group = request.shard_group;
  groups.optimizer_span = request.optimizer_span;
  CASTOR_RETURN_IF_ERROR(CheckOptions(groups, report->ranks));
  Common common{trace.step,
                {},
                {},
                ChunkLayout(1, Elements(64), {}, {}, {}),
                OptionsOf(request),
                {},
                ShareOfMachine(machine, request.ranks_per_host)};
  CASTOR_RETURN_IF_ERROR(
      ReadLayoutInto(request, trace, report->ranks, &common));
  CASTOR_RETURN_IF_ERROR(ReadThen(request, trace, &common));
  if (request.compute_ns) {
    common.step = WithComputeTime(trace, *request.compute_ns);
  }
  common.step = WithEvaluations(std::move(common.step), request.evaluations);
  report->compute_ns = std::accumulate(
      common.step.compute_ns.begin(), common.step.compute_ns.end(), int64_t{0});
  report->evaluations = std::ssize(common.step.evaluations);
  return common;
}

Result<SimulationResult> SimulateAll(const SimulateRequest& request,
                                     const Common& common,
                                     const SimulatedEngine& engine) {
  std::vector<const StepTrace*> steps(kSteadySteps, &common.step);
  for (const StepTrace& other : common.then) steps.push_back(&other);
  // The first of these departs, too, and the second one has its plan again.
  if (!common.then.empty()) steps.insert(steps.end(), 2, &common.step);
  return SimulateSteps(
      steps, engine, common.machine,
      {.trainer = request.trainer, .device_memory = request.device_memory});
}

Result<SimulatedPoint> Simulated(const SimulateRequest& request,
                                 const Common& common, int ranks,
                                 Bytes device_budget, Bytes host_budget) {
  SimulatedPoint point;
  point.device_budget = device_budget;
  point.host_budget = host_budget;
  EngineRequest engine;
  engine.params = common.params;
  engine.options = common.options;
  engine.options.device_budget = device_budget;
  engine.options.host_budget = host_budget;
  engine.world = ranks;
  engine.declared = common.declared;
  const Result<SealForecast> seal = ForecastSeal(engine, common.layout);
  if (seal.status().code() == ErrorCode::kInfeasible) {
    point.why = seal.status().message();
    return point;
  }
  CASTOR_RETURN_IF_ERROR(seal.status());
  point.engine = SimulatedEngineOf(*seal, engine.options);
  Result<SimulationResult> result = SimulateAll(request, common, point.engine);
  if (!result.ok()) {
    point.why = result.status().message();
    return point;
  }
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
  CASTOR_ASSIGN_OR_RETURN(const Common common, ReadCommon(request, &report));
  report.dtypes = TypesOf(common.layout);
  progress.Phase("simulating");
  const auto simulate = [&](Bytes device, Bytes host) -> Status {
    CASTOR_ASSIGN_OR_RETURN(
        SimulatedPoint point,
        Simulated(request, common, report.ranks, device, host));
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
