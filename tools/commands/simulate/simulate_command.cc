// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/simulate/simulate_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <numeric>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/layout_file.h"
#include "chunk/text/quote.h"
#include "collectives/answers/foretell.h"
#include "collectives/sealing/layout_choice.h"
#include "collectives/sealing/seal_plan.h"
#include "offload/nvme/nvme_option.h"
#include "offload/record/record_reader.h"
#include "placement/plan.h"
#include "placement/trace/grads_in_place.h"
#include "tools/cli/atomic_file.h"
#include "tools/cli/flags.h"
#include "tools/cli/output_paths.h"
#include "tools/cli/progress.h"
#include "tools/commands/file_kind.h"
#include "tools/commands/registry.h"
#include "tools/commands/side_by_side.h"
#include "tools/commands/simulate/step_document.h"
#include "tools/commands/simulate/trace_layout.h"
#include "tools/models/files/castor_files.h"
#include "tools/report/run_model.h"
#include "tools/report/statistics/run_files.h"
#include "tools/report/statistics/run_setup.h"
#include "tools/report/statistics/run_statistics.h"
#include "tools/report/statistics/step_detail.h"

namespace castor {
namespace {

// What a file has recorded, as the engine that is asked for makes it.
Result<StepTrace> StepAsAsked(const SimulateFlags& flags, StepTrace step) {
  step = WithEvaluations(std::move(step), flags.evaluations);
  if (flags.engine.grad_mode == GradMode::kReuse) return WithGradsInPlace(step);
  return step;
}

constexpr std::string_view kTraceWanted =
    "the trace of a step (train_gpt --trace FILE)";

Result<TraceFile> ReadStep(const std::string& path) {
  Result<TraceFile> trace = ReadTraceFile(path);
  if (trace.ok()) return trace;
  return NameOtherKind(trace.status(), path, kTraceWanted);
}

Status ReadLayoutInto(SimulateReport* report) {
  const SimulateFlags& flags = report->flags;
  const int ranks = report->ranks;
  if (flags.recorded != nullptr && flags.files.layout.empty() &&
      ranks == report->trace.world) {
    report->params = flags.recorded->layout.params;
    report->layout = flags.recorded->layout.layout;
    return OkStatus();
  }
  if (flags.files.layout.empty()) {
    CASTOR_ASSIGN_OR_RETURN(report->layout,
                            LayoutOfTrace(report->trace, flags.dtype, ranks));
    report->params = ParamsOfTrace(report->layout);
    return OkStatus();
  }
  CASTOR_ASSIGN_OR_RETURN(LayoutFile file, ReadLayoutFile(flags.files.layout));
  const std::string named = QuotedPath(flags.files.layout);
  if (file.layout.world() != ranks) {
    return InvalidArgument(fmt::format(
        "{} is a layout for {} ranks, and not {}: give --world {}, "
        "or the layout of castor search --world {}",
        named, file.layout.world(), ranks, file.layout.world(), ranks));
  }
  if (Status same =
          CheckSameChunks(report->trace.chunks, TraceChunks(file.layout));
      !same.ok()) {
    return same.WithContext(named);
  }
  report->params = std::move(file.params);
  report->layout = std::move(file.layout);
  return OkStatus();
}

// A trace and a layout of castor search know no moments.
Status CheckMomentsFit(const SimulateReport& report) {
  Status status =
      CheckMomentChunks(report.layout, report.params, report.flags.engine);
  return status.ok() ? status : status.WithContext("--moments 8bit");
}

// The other steps, with as much compute for what they do as the trace has.
Status ReadThen(SimulateReport* report) {
  const SimulateFlags& flags = report->flags;
  const TraceFile& trace = report->trace;
  for (const std::string& name : flags.then) {
    CASTOR_ASSIGN_OR_RETURN(const TraceFile other, ReadStep(name));
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
        flags.compute_ns && weight > 0) {
      const double part = ComputeWeight(other) / weight;
      step = WithComputeTime(
          other,
          std::min(kMaxStepNs,
                   static_cast<int64_t>(static_cast<double>(*flags.compute_ns) *
                                        std::min(part, 1e6))));
    }
    Result<StepTrace> asked = StepAsAsked(flags, std::move(step));
    if (!asked.ok()) return asked.status().WithContext(QuotedPath(name));
    report->then.push_back(*std::move(asked));
  }
  return OkStatus();
}

// The engine that is asked for. How ranks share shards: as recorded, where
// nobody asks for another way.
Status TakeOptions(const TierModel& machine, SimulateReport* report) {
  const SimulateFlags& flags = report->flags;
  const TraceFile& trace = report->trace;
  ZeroOptions& options = report->options;
  options = flags.engine;
  options.shard_group = flags.shard_group.value_or(trace.shard_group);
  options.optimizer_span = flags.optimizer_span.value_or(
      trace.spans_world ? OptimizerSpan::kWorld : OptimizerSpan::kGroup);
  // As a trainer's that is told of the machine, however it fetches ahead. A run
  // that was told of none weighs nothing by time.
  if (flags.recorded == nullptr || !flags.files.machine.empty()) {
    options.machine = machine;
  }
  if (flags.nvme_budget) options.nvme = {{{}, flags.nvme_budget}};
  ZeroOptions groups;
  groups.stage = options.stage;
  groups.shard_group = options.shard_group;
  groups.optimizer_span = options.optimizer_span;
  const Status status = CheckOptions(groups, report->ranks);
  if (status.ok() || (flags.shard_group && flags.optimizer_span)) {
    return status;
  }
  return status.WithContext(
      "groups are those of the trace where --shard-group and --optimizer-span "
      "ask for no others");
}

// Steps, layout and machine, as the flags want them.
Result<SimulateReport> ReadInput(const SimulateFlags& flags) {
  SimulateReport report;
  report.flags = flags;
  TierModel machine;
  if (flags.recorded != nullptr) {
    report.trace = flags.recorded->trace;
    machine = flags.recorded->machine;
  } else {
    CASTOR_ASSIGN_OR_RETURN(report.trace, ReadStep(flags.trace_file));
  }
  if (!flags.files.machine.empty()) {
    CASTOR_ASSIGN_OR_RETURN(machine, ReadMachineFile(flags.files.machine));
  }
  const TraceFile& trace = report.trace;
  if (trace.step.accesses.empty()) {
    return Malformed(
        fmt::format("{} has no moment: there is no step to simulate",
                    QuotedPath(flags.trace_file)));
  }
  report.ranks = flags.ranks.value_or(trace.world);
  if (flags.ranks_per_host > report.ranks) {
    return InvalidArgument(
        fmt::format("--ranks-per-host {} is more than the {} ranks there are",
                    flags.ranks_per_host, report.ranks));
  }
  report.machine = ShareOfMachine(machine, flags.ranks_per_host);
  CASTOR_RETURN_IF_ERROR(TakeOptions(machine, &report));
  Result<StepTrace> step = StepAsAsked(
      flags, flags.compute_ns ? WithComputeTime(trace, *flags.compute_ns)
                              : trace.step);
  if (!step.ok()) {
    return step.status().WithContext(QuotedPath(flags.trace_file));
  }
  report.step = *std::move(step);
  // As a trainer declares it, who knows the whole of a step.
  // An engine that counts the norm updates nothing before the norm is known.
  if (report.step.updates_early) {
    const double clip = flags.engine.clip_norm;
    if (clip > 0 && clip != SimulateFlags().engine.clip_norm) {
      return InvalidArgument(fmt::format(
          "the trace updates before the norm is known, and --clip {} clips by "
          "it: leave one of them away",
          clip));
    }
    report.options.clip_norm = 0;
  }
  report.options.step_compute_ns = std::accumulate(
      report.step.compute_ns.begin(), report.step.compute_ns.end(), int64_t{0});
  CASTOR_RETURN_IF_ERROR(ReadLayoutInto(&report));
  CASTOR_RETURN_IF_ERROR(CheckMomentsFit(report));
  report.declared = DeclaredBy(report.layout, report.step);
  for (const ParamSpec& spec : report.params) {
    CASTOR_RETURN_IF_ERROR(CheckTrains(spec, flags.engine.grad_mode));
  }
  CASTOR_RETURN_IF_ERROR(ReadThen(&report));
  return report;
}

// Steps of the trace before any other: the last of them is steady.
constexpr size_t kSteadySteps = 4;

// The steps that are made, one after the other.
std::vector<const StepTrace*> StepsOf(const SimulateReport& report) {
  std::vector<const StepTrace*> steps(kSteadySteps, &report.step);
  for (const StepTrace& other : report.then) steps.push_back(&other);
  // The first of these departs, too, and the second one has its plan again.
  if (!report.then.empty()) steps.insert(steps.end(), 2, &report.step);
  return steps;
}

Result<SimulatedPoint> Simulated(const SimulateReport& report,
                                 Bytes device_budget, Bytes host_budget) {
  SimulatedPoint point;
  point.device_budget = device_budget;
  point.host_budget = host_budget;
  EngineRequest engine;
  engine.params = report.params;
  engine.options = report.options;
  engine.options.device_budget = device_budget;
  engine.options.host_budget = host_budget;
  engine.world = report.ranks;
  engine.declared = report.declared;
  CASTOR_ASSIGN_OR_RETURN(
      Foretold told,
      Foretell({.engine = engine,
                .layout = &report.layout,
                .steps = StepsOf(report),
                .machine = ForetoldMachine{
                    .speeds = report.machine,
                    .trainer = report.flags.trainer,
                    .device_memory = report.flags.device_memory}}));
  if (!told.fits.ok()) {
    point.why = told.fits.message();
    return point;
  }
  point.seal = std::move(told.seal);
  if (report.options.prefetch.mode == PrefetchMode::kDeadlines) {
    point.fetches = told.forecast->fetches;
    point.prefetch = DeadlinesSentence(point.fetches, point.seal->memory);
  }
  SimulationResult& result = *told.run;
  const auto then =
      result.steps.begin() + static_cast<std::ptrdiff_t>(kSteadySteps);
  point.then.assign(then, result.steps.end());
  result.steps.erase(then, result.steps.end());
  point.result = std::move(result);
  return point;
}

class SimulateCommand final : public Command {
 public:
  std::string_view name() const override { return "simulate"; }
  std::string_view summary() const override {
    return "how long a recorded step takes under other budgets, and why";
  }

  void Declare(CLI::App& app) override {
    DeclareSimulateFlags(app, &flags_);
    app_ = &app;
  }

  Status Run(const Console& console) override {
    CASTOR_ASSIGN_OR_RETURN(const Form form, FormOf(flags_.json, flags_.plain));
    CASTOR_ASSIGN_OR_RETURN(
        flags_, WithRecord(std::move(flags_), [&](std::string_view flag) {
          return IsGiven(*app_, flag);
        }));
    CASTOR_ASSIGN_OR_RETURN(const SimulateReport report,
                            RunSimulate(flags_, console));
    if (!flags_.svg.empty()) {
      CASTOR_RETURN_IF_ERROR(WriteFileAtomically(flags_.svg, SweepSvg(report)));
    }
    Print(SimulateDocument(report), form, console);
    return flags_.recorded == nullptr ? OkStatus()
                                      : flags_.recorded->completeness;
  }

 private:
  SimulateFlags flags_;
  CLI::App* app_ = nullptr;
};

// The step under way is the typical one of the record.
Result<RunModel> ReadModel(const std::string& path, Status* completeness) {
  CASTOR_ASSIGN_OR_RETURN(const RunRecord record, ReadRun(path));
  *completeness = record.completeness;
  const RunStatistics run = ComputeRunStatistics(record, {});
  Result<RunModel> model =
      ModelOf(record, ReadSetup(record), run, TypicalStep(run, {}));
  if (!model.ok()) return model.status().WithContext(QuotedPath(path));
  return model;
}

// The rows of `from` that were given, into `to`.
Status CopyGiven(const OptionTable& from, const OptionTable& to,
                 const std::function<bool(std::string_view)>& given) {
  for (const Option& row : from.rows()) {
    if (row.flag.empty() || !given(row.flag)) continue;
    const auto same = std::ranges::find(to.rows(), row.flag, &Option::flag);
    CASTOR_CHECK(same != to.rows().end());
    if (row.print) {
      for (const std::string& word : row.print()) {
        CASTOR_RETURN_IF_ERROR(same->parse(word));
      }
    } else if (const std::optional<OptionScalar> value = row.get()) {
      CASTOR_RETURN_IF_ERROR(same->set(*value));
    }
  }
  return OkStatus();
}

}  // namespace

Result<SimulateFlags> WithRecord(
    SimulateFlags flags, const std::function<bool(std::string_view)>& given) {
  if (flags.trace_file.empty() ||
      KindOfFile(RecordFilesOf(flags.trace_file).front()) !=
          FileKind::kRecord) {
    return flags;
  }
  Status completeness;
  CASTOR_ASSIGN_OR_RETURN(RunModel model,
                          ReadModel(flags.trace_file, &completeness));
  const Result<SimulatedStep> as_it_was = SimulateModel(model);
  ZeroOptions asked = std::move(flags.engine);
  flags.engine = model.options;
  EngineFiles none;
  CASTOR_RETURN_IF_ERROR(
      CopyGiven(EngineOptions(&asked, &none).For(kSimulateFlag),
                EngineOptions(&flags.engine, &none).For(kSimulateFlag), given));
  if (!flags.device_budget && !flags.sweep.starts_with("device")) {
    flags.device_budget = model.options.device_budget;
  }
  if (!flags.host_budget && !flags.sweep.starts_with("host")) {
    flags.host_budget = model.options.host_budget;
  }
  if (!flags.nvme_budget && !model.options.nvme.empty()) {
    flags.nvme_budget = NvmeLimit(model.options.nvme).value_or(kUnlimited);
  }
  if (!given("--trainer")) flags.trainer = model.trainer;
  flags.recorded = std::make_shared<const RecordedRun>(
      RecordedRun{std::move(model.trace),
                  {std::move(model.params), std::move(model.layout)},
                  model.machine,
                  model.of_step,
                  model.measured_ns,
                  as_it_was.ok() ? as_it_was->ns() : 0,
                  std::move(completeness)});
  return flags;
}

Result<SimulateReport> RunSimulate(const SimulateFlags& flags,
                                   const Console& console) {
  CASTOR_ASSIGN_OR_RETURN(const std::vector<Bytes> swept,
                          CheckSimulateFlags(flags));
  CASTOR_RETURN_IF_ERROR(
      CheckOutputs(std::array{NamedPath{"TRACE", flags.trace_file},
                              NamedPath{"--layout", flags.files.layout},
                              NamedPath{"--machine", flags.files.machine}},
                   std::array{NamedPath{"--svg", flags.svg}}));
  if (!flags.svg.empty()) CASTOR_RETURN_IF_ERROR(CheckFileTarget(flags.svg));
  Progress progress(console);
  progress.Phase("reading the trace");
  CASTOR_ASSIGN_OR_RETURN(SimulateReport report, ReadInput(flags));
  progress.Phase("simulating");
  // Without a sweep both budgets are given.
  const std::vector<Bytes> values =
      swept.empty() ? std::vector(1, Bytes(0)) : swept;
  std::vector<Result<SimulatedPoint>> points(values.size(), SimulatedPoint());
  SideBySide(values.size(), [&](size_t i) {
    points[i] = Simulated(report, flags.device_budget.value_or(values[i]),
                          flags.host_budget.value_or(values[i]));
  });
  for (Result<SimulatedPoint>& point : points) {
    CASTOR_RETURN_IF_ERROR(point.status());
    report.points.push_back(*std::move(point));
  }
  progress.Finish();
  if (std::ranges::any_of(report.points, &SimulatedPoint::fits)) return report;
  // The last one of a sweep is the roomiest.
  const Status why = Infeasible(report.points.back().why);
  if (flags.sweep.empty()) return why;
  return why.WithContext("no budget of the sweep fits");
}

std::unique_ptr<Command> MakeSimulateCommand() {
  return std::make_unique<SimulateCommand>();
}

}  // namespace castor
