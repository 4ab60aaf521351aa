// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/simulate/simulate_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/quote.h"
#include "chunk/layout_file.h"
#include "collectives/held_moments.h"
#include "collectives/seal_plan.h"
#include "placement/grads_in_place.h"
#include "placement/simulator.h"
#include "placement/trace_file.h"
#include "tools/cli/text_forms.h"
#include "tools/commands/simulate/trace_layout.h"
#include "tools/models/castor_files.h"

namespace castor {
namespace {

ZeroOptions OptionsOf(const SimulateRequest& request,
                      const SimulateReport& report) {
  ZeroOptions options = request.engine;
  options.shard_group = report.shard_group;
  options.optimizer_span = report.optimizer_span;
  // As a trainer declares it, who knows the whole of a step.
  options.step_compute_ns = report.compute_ns;
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

// What a file has recorded, as the engine that is asked for makes it.
Result<StepTrace> StepAsAsked(const SimulateRequest& request, StepTrace step) {
  step = WithEvaluations(std::move(step), request.evaluations);
  if (request.engine.grad_mode == GradMode::kReuse)
    return WithGradsInPlace(step);
  return step;
}

Status ReadLayoutInto(const SimulateRequest& request, const TraceFile& trace,
                      int ranks, SimulateInput* input) {
  if (request.files.layout.empty()) {
    CASTOR_ASSIGN_OR_RETURN(input->layout,
                            LayoutOfTrace(trace, request.dtype, ranks));
    input->params = ParamsOfTrace(input->layout);
    input->declared = DeclaredBy(input->step);
    return OkStatus();
  }
  CASTOR_ASSIGN_OR_RETURN(LayoutFile file,
                          ReadLayoutFile(request.files.layout));
  const std::string named = QuotedPath(request.files.layout);
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
  input->params = std::move(file.params);
  input->layout = std::move(file.layout);
  input->declared = DeclaredBy(input->step);
  input->declared.held = HeldMomentsOf(input->layout, input->step.accesses);
  return OkStatus();
}

// The other steps, with as much compute for what they do as the trace has.
Status ReadThen(const SimulateRequest& request, const TraceFile& trace,
                SimulateInput* input) {
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
    Result<StepTrace> asked = StepAsAsked(request, std::move(step));
    if (!asked.ok()) return asked.status().WithContext(QuotedPath(name));
    input->then.push_back(*std::move(asked));
  }
  return OkStatus();
}

// How ranks share shards: as recorded, where nobody asks for another way.
Status TakeGroups(const SimulateRequest& request, const TraceFile& trace,
                  SimulateReport* report) {
  report->shard_group = request.shard_group.value_or(trace.shard_group);
  report->optimizer_span = request.optimizer_span.value_or(
      trace.spans_world ? OptimizerSpan::kWorld : OptimizerSpan::kGroup);
  ZeroOptions groups;
  groups.stage = request.engine.stage;
  groups.shard_group = report->shard_group;
  groups.optimizer_span = report->optimizer_span;
  const Status status = CheckOptions(groups, report->ranks);
  if (status.ok() || (request.shard_group && request.optimizer_span)) {
    return status;
  }
  return status.WithContext(
      "groups are those of the trace where --shard-group and --optimizer-span "
      "ask for no others");
}

}  // namespace

Result<SimulateInput> ReadSimulateInput(const SimulateRequest& request,
                                        SimulateReport* report) {
  CASTOR_ASSIGN_OR_RETURN(const TraceFile trace,
                          ReadTraceFile(request.trace_file));
  CASTOR_ASSIGN_OR_RETURN(const TierModel machine,
                          ReadMachineFile(request.files.machine));
  if (trace.step.accesses.empty()) {
    return Malformed(
        fmt::format("{} has no moment: there is no step to simulate",
                    QuotedPath(request.trace_file)));
  }
  report->chunks = static_cast<int64_t>(trace.chunks.size());
  report->moments = static_cast<int64_t>(trace.step.accesses.size());
  report->dtype_assumed =
      request.files.layout.empty() && !request.dtype && !trace.chunks[0].dtype;
  report->recorded_ranks = trace.world;
  report->ranks = request.ranks.value_or(trace.world);
  if (request.ranks_per_host > report->ranks) {
    return InvalidArgument(
        fmt::format("--ranks-per-host {} is more than the {} ranks there are",
                    request.ranks_per_host, report->ranks));
  }
  CASTOR_RETURN_IF_ERROR(TakeGroups(request, trace, report));
  Result<StepTrace> step = StepAsAsked(
      request, request.compute_ns ? WithComputeTime(trace, *request.compute_ns)
                                  : trace.step);
  if (!step.ok()) {
    return step.status().WithContext(QuotedPath(request.trace_file));
  }
  report->compute_ns = std::accumulate(step->compute_ns.begin(),
                                       step->compute_ns.end(), int64_t{0});
  SimulateInput input{*std::move(step),
                      {},
                      {},
                      ChunkLayout(1, Elements(64), {}, {}, {}),
                      OptionsOf(request, *report),
                      {},
                      ShareOfMachine(machine, request.ranks_per_host)};
  // As a trainer's that is told of the machine, however it fetches ahead.
  input.options.machine = machine;
  CASTOR_RETURN_IF_ERROR(ReadLayoutInto(request, trace, report->ranks, &input));
  for (const ParamSpec& spec : input.params) {
    CASTOR_RETURN_IF_ERROR(CheckTrains(spec, request.engine.grad_mode));
  }
  CASTOR_RETURN_IF_ERROR(ReadThen(request, trace, &input));
  report->dtypes = TypesOf(input.layout);
  report->evaluations = std::ssize(input.step.evaluations);
  return input;
}

}  // namespace castor
