// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/plan/plan_outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/tier.h"
#include "chunk/search/chunk_bounds.h"
#include "chunk/text/budget_text.h"
#include "chunk/text/units_text.h"
#include "collectives/answers/foretell.h"
#include "collectives/answers/plan_file.h"
#include "collectives/memory/held_moments.h"
#include "collectives/sealing/layout_choice.h"
#include "collectives/sealing/seal_plan.h"
#include "collectives/world/launch.h"
#include "placement/placement_rules.h"
#include "placement/trace.h"
#include "placement/trace/grads_in_place.h"
#include "placement/trace/trace_file.h"
#include "tools/commands/simulate/trace_layout.h"

namespace castor {
namespace {

Status CheckTrace(const TraceFile& trace, const ChunkLayout& layout,
                  int world) {
  if (trace.world != world) {
    return InvalidArgument(fmt::format(
        "the trace is of {} ranks: give --world {}", trace.world, trace.world));
  }
  const Status same = CheckSameChunks(TraceChunks(layout), trace.chunks);
  if (same.ok()) return OkStatus();
  return InvalidArgument(fmt::format(
      "the trace is not of this layout: {}; give the --chunk or --layout of "
      "the run that was recorded",
      same.message()));
}

// The first step is served on demand, the second one finds what the first
// left, and the third what follows a planned step. One of very many moments
// leaves nothing that lasts through the next, and takes long to simulate; nor
// do any where nothing takes time.
constexpr size_t kTimedSteps = 3;
constexpr size_t kSteps = 2;
constexpr size_t kLongStep = 8192;

// The same step with the compute time that was given, if one was.
StepTrace WithGivenCompute(const PlanRequest& request,
                           const ChunkLayout& layout, StepTrace step) {
  if (!request.flags.compute) return step;
  TraceFile trace;
  trace.chunks = TraceChunks(layout);
  trace.step = std::move(step);
  return WithComputeTime(trace, *request.flags.compute);
}

// What the step is derived from. Activations of a step that a list describes
// are there all the time, as many as a derived one has at most.
Result<std::vector<ModelBlock>> BlocksFor(const PlanSubject& subject,
                                          const ChunkLayout& layout,
                                          PlanRequest* request) {
  std::vector<ModelBlock> blocks =
      request->flags.hold == "block" ? subject.by_block : subject.by_module;
  if (request->activations) {
    CASTOR_RETURN_IF_ERROR(SetActivations(*request->activations, blocks));
  }
  if (subject.step_source() != StepSource::kListed) return blocks;
  if (request->activations) {
    StepShape shape = request->step;
    shape.grads_in_place = false;
    CASTOR_ASSIGN_OR_RETURN(const StepTrace derived,
                            DeriveStep(layout, blocks, shape));
    request->step.resident = MostLeased(derived);
  }
  return BlocksOf(subject.model.step);
}

// `path` as readers of the plan find it: from the plan's folder on.
std::string FromPlan(const std::string& path, const std::string& plan) {
  if (path.empty()) return path;
  const std::filesystem::path written(plan);
  const std::filesystem::path folder =
      written.has_parent_path() ? written.parent_path() : ".";
  return std::filesystem::proximate(path, folder).string();
}

// Something else than Castor may take all of the device budget.
Status CheckLeft(const PlanOutcome& outcome) {
  const Bytes host = outcome.request.options.host_budget;
  const Bytes other_states = outcome.request.flags.other_states;
  if (host < other_states) {
    return Infeasible(
        fmt::format("the host budget of {} is less than {} of states beside "
                    "chunks",
                    BudgetText(host), FormatBytes(other_states)));
  }
  if (outcome.castor_device >= Bytes(0)) return OkStatus();
  return Infeasible(fmt::format(
      "the device budget of {} is less than {} of activations and {} of "
      "overhead",
      BudgetText(outcome.request.options.device_budget),
      FormatBytes(outcome.request.borrows ? Bytes(0) : outcome.activations),
      FormatBytes(outcome.request.flags.overhead())));
}

}  // namespace

EngineRequest EngineRequestOf(const PlanSubject& subject,
                              const PlanOutcome& outcome) {
  EngineRequest engine;
  engine.params = subject.model.params;
  engine.options = outcome.request.options;
  engine.options.device_budget = outcome.castor_device;
  engine.options.host_budget -= outcome.request.flags.other_states;
  engine.world = outcome.request.flags.world;
  engine.communicator_buffers = outcome.exchange_buffers();
  engine.declared = outcome.declared;
  return engine;
}

std::optional<double> PlanOutcome::step_seconds() const {
  if (!simulated) return std::nullopt;
  return static_cast<double>(simulated->ns()) / 1e9;
}

Bytes PlanOutcome::largest_chunk() const {
  Bytes largest;
  for (const GroupInfo& group : layout.groups()) {
    largest = std::max(largest, BytesOf(group.chunk_size, group.dtype));
  }
  return largest;
}

Bytes PlanOutcome::device_total() const {
  Bytes total = request.flags.overhead();
  if (!request.borrows) total += activations;
  if (seal) total += seal->table.total(Tier::kDevice);
  return total;
}

Bytes PlanOutcome::host_total() const {
  Bytes total = request.flags.other_states;
  if (seal) total += seal->table.total(Tier::kHost);
  return total;
}

Bytes PlanOutcome::exchange_buffers() const {
  if (request.flags.world == 1) return Bytes(0);
  if (request.flags.exchange_buffer) return *request.flags.exchange_buffer;
  if (!request.flags.processes) return Bytes(0);
  return ExchangeBufferFor(castor_device, request.flags.world);
}

Bytes PlanOutcome::moved() const {
  Bytes sum;
  if (!run) return sum;
  for (const auto& from : traffic().moved) {
    for (const LinkTraffic& to : from) sum += to.bytes;
  }
  return sum + traffic().wire_sent();
}

PlanFigures FiguresOf(const PlanOutcome& outcome) {
  return {.flags = outcome.request.flags,
          .device = outcome.device_total(),
          .host = outcome.host_total(),
          .nvme = outcome.seal->table.total(Tier::kNvme),
          .moved = outcome.moved(),
          .fetch_cost = outcome.forecast->fetch_cost,
          .least_seconds = outcome.times.least_seconds,
          .most_seconds = outcome.times.most_seconds,
          .step_seconds = outcome.step_seconds()};
}

Bytes PlanOutcome::engine_budget(Tier tier) const {
  const ZeroOptions& options = request.options;
  switch (tier) {
    case Tier::kDevice:
      return request.flags.device_budget ? castor_device
                                         : seal->table.total(Tier::kDevice);
    case Tier::kHost:
      return options.host_budget - request.flags.other_states;
    case Tier::kNvme:
      break;
  }
  return options.nvme.empty() ? Bytes(0) : options.nvme[0].size.value();
}

namespace {

Result<PlanOutcome> PlanWithin(const PlanSubject& subject, PlanRequest request,
                               bool steady_only) {
  const PlanFlags& flags = request.flags;
  CASTOR_ASSIGN_OR_RETURN(
      ChunkLayout layout,
      LayoutOf(subject.model.params, request.options, flags.world));
  CASTOR_ASSIGN_OR_RETURN(std::vector<ModelBlock> blocks,
                          BlocksFor(subject, layout, &request));
  PlanOutcome outcome{
      request, {}, {}, std::move(layout), {}, {}, {}, {}, {}, {}, {}, {}, {}};
  // A trace's leases were borrowed.
  if (subject.trace) {
    CASTOR_RETURN_IF_ERROR(
        CheckTrace(*subject.trace, outcome.layout, flags.world));
    outcome.step = subject.trace->step;
    outcome.step.evaluations.clear();  // a plan is of training alone
    outcome.request.borrows = true;
  } else {
    CASTOR_ASSIGN_OR_RETURN(outcome.step,
                            DeriveStep(outcome.layout, blocks, request.step));
  }
  outcome.step.updates_early |= flags.update_in_backward;
  outcome.step =
      WithGivenCompute(request, outcome.layout, std::move(outcome.step));
  if (subject.trace && request.step.grads_in_place) {
    CASTOR_ASSIGN_OR_RETURN(outcome.step, WithGradsInPlace(outcome.step));
  }
  // Deadlines are those of a trainer, which declares the time of a step.
  if (request.options.prefetch.mode == PrefetchMode::kDeadlines &&
      !flags.compute) {
    for (const int64_t ns : outcome.step.compute_ns) {
      outcome.request.options.step_compute_ns += ns;
    }
  }
  outcome.activations = MostLeased(outcome.step);
  outcome.declared.held =
      subject.trace ? HeldMomentsOf(outcome.layout, outcome.step.accesses)
                    : HeldMomentsOf(subject.model.params, blocks, request.step);
  if (outcome.request.borrows) {
    outcome.declared.largest_lease = outcome.activations;
  }
  outcome.castor_device = request.options.device_budget - flags.overhead();
  if (!outcome.request.borrows) outcome.castor_device -= outcome.activations;
  outcome.fits = CheckLeft(outcome);
  if (!outcome.fits.ok()) return outcome;

  const EngineRequest engine = EngineRequestOf(subject, outcome);
  ForetellRequest asked;
  asked.engine = engine;
  asked.layout = &outcome.layout;
  asked.steady_only = steady_only;
  const bool is_long = outcome.step.accesses.size() > kLongStep;
  asked.steps.assign(subject.machine && !is_long ? kTimedSteps : kSteps,
                     &outcome.step);
  if (subject.machine) {
    asked.machine = {.speeds = *subject.machine,
                     .ranks_per_host = flags.ranks_per_host,
                     .needs_all = true};
  }
  CASTOR_ASSIGN_OR_RETURN(Foretold told, Foretell(asked));
  const Bytes beside = request.options.device_budget - outcome.castor_device;
  outcome.fits =
      beside == Bytes(0)
          ? std::move(told.fits)
          : told.fits.WithContext(fmt::format(
                "beside {} of activations and overhead", FormatBytes(beside)));
  outcome.seal = std::move(told.seal);
  outcome.forecast = std::move(told.forecast);
  outcome.times = std::move(told.times);
  if (told.timed) outcome.simulated = told.run->steady();
  outcome.run = std::move(told.run);
  return outcome;
}

// By how much its budgets fall short of sealing an engine with its layout.
BudgetRaises RaisesOf(const PlanSubject& subject, const PlanOutcome& outcome) {
  const EngineRequest engine = EngineRequestOf(subject, outcome);
  const ZeroOptions& options = engine.options;
  const Result<std::vector<ChunkBindings>> bindings =
      BindingsOf(options, engine.params, outcome.layout);
  if (!bindings.ok()) return {};
  BudgetRaises raises = castor::RaisesOf(
      outcome.layout, ShardingOf(options, engine.world, engine.rank), options,
      BudgetsOf(options, engine.communicator_buffers), *bindings,
      engine.declared);
  // States beside chunks have the first of the host budget: what is given may
  // lack for them alone, and what was not given was theirs.
  const PlanFlags& flags = outcome.request.flags;
  if (!flags.host_budget) {
    if (raises.host) *raises.host += flags.other_states;
  } else if (!raises.host && *flags.host_budget < flags.other_states) {
    raises.host = flags.other_states - *flags.host_budget;
  }
  return raises;
}

}  // namespace

Result<PlanOutcome> MakePlan(const PlanSubject& subject, const PlanFlags& flags,
                             bool steady_only) {
  CASTOR_ASSIGN_OR_RETURN(PlanRequest request, CheckPlanFlags(flags, subject));
  CASTOR_RETURN_IF_ERROR(CheckOptions(request.options, flags.world));
  for (const ParamSpec& spec : subject.model.params) {
    const Status trains = CheckTrains(spec, request.options.grad_mode);
    if (trains.ok()) continue;
    return InvalidArgument(
        fmt::format("{}; give --dtype bf16, f16{}", trains.message(),
                    request.step.grads_in_place ? "" : " or f32"));
  }
  std::optional<PlanOutcome> nearest;  // lacks least of the device
  std::vector<BudgetRaises> raises;
  for (const ChunkBounds& bounds : BoundsOf(flags, subject)) {
    request.options.min_chunk = bounds.least;
    request.options.max_chunk = bounds.most;
    CASTOR_ASSIGN_OR_RETURN(PlanOutcome outcome,
                            PlanWithin(subject, request, steady_only));
    if (outcome.fits.ok()) return outcome;
    outcome.raises = raises.emplace_back(RaisesOf(subject, outcome));
    const std::optional<Bytes>& lacks = outcome.raises.device;
    if (nearest && (!lacks || (nearest->raises.device &&
                               *lacks >= *nearest->raises.device))) {
      continue;
    }
    nearest = std::move(outcome);
  }
  const ZeroOptions& options = nearest->request.options;
  nearest->raises = NearestRaises(raises, options.device_budget,
                                  options.host_budget, flags.nvme);
  return *std::move(nearest);
}

PlanFile PlanFileOf(const PlanSubject& subject, const PlanOutcome& outcome) {
  const PlanFlags& flags = outcome.request.flags;
  PlanFile file = PlanFileOf(EngineRequestOf(subject, outcome),
                             subject.model.name, flags.processes);
  file.engine.device_budget = outcome.engine_budget(Tier::kDevice);
  file.files.layout = FromPlan(flags.files.layout, flags.output);
  file.files.machine = FromPlan(flags.files.machine, flags.output);
  file.nvme = flags.nvme;
  return file;
}

}  // namespace castor
